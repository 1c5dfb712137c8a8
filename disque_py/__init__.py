"""disque-py: a Disque-style, multi-master, distributed job broker."""

from typing import Final

__version__: Final = "0.1.0"
