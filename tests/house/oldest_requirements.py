"""Print the dependencies of pyproject.toml, each with the oldest release that it allows, for `make bounds`.

No requirement has a space, so that a shell takes each as one word.

python oldest_requirements.py [extra …]      also those of extras
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
words = project["dependencies"] + [word for extra in sys.argv[1:] for word in project["optional-dependencies"][extra]]
print("\n".join(re.sub(r">=([\d.]+)(,<[\d.]+)?(;.*)?$", r"==\1\3", word).replace(" ", "") for word in words))
