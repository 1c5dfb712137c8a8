"""Tests of the benchmarks' own parts; the benchmarks themselves are run by `make bench`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # Where the benchmarks' modules lie.
