"""Puts this folder on the path, because the tests of Celery share modules in it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
