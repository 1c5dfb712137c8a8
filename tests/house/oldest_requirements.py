"""Print the dependencies of pyproject.toml, each in the oldest release it allows; for `make bounds`."""

from __future__ import annotations

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(word.replace(">=", "==") for word in project["dependencies"]))
