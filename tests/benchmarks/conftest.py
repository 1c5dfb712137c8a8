"""Tests of the benchmarks' own parts. `make bench` runs the benchmarks themselves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # For the benchmarks' modules.
