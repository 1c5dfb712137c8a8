"""redis-benchmark, the load generator of Redis, as an independent measure."""

from __future__ import annotations

import csv
import shutil
import subprocess
from dataclasses import dataclass

HOST = "127.0.0.1"
LIMIT_SECONDS = 600.0


class RedisBenchmarkError(Exception):
    """redis-benchmark failed. The text is its output."""


@dataclass(frozen=True, slots=True)
class RedisResult:
    """Commands per second, and the 99th percentile of their latency if this version reports it."""

    per_s: float
    p99_ms: float | None


def is_installed() -> bool:
    """Return whether redis-benchmark is installed (Debian: redis-tools)."""
    return shutil.which("redis-benchmark") is not None


def run_redis_benchmark(port: int, command: tuple[str, ...], count: int, clients: int, pipeline: int) -> RedisResult:
    """Send one command `count` times. Raises RedisBenchmarkError."""
    words = ["redis-benchmark", "-h", HOST, "-p", str(port), "-c", str(clients), "-P", str(pipeline), "-n", str(count)]
    try:
        done = subprocess.run(
            [*words, "--csv", *command], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        raise RedisBenchmarkError(f"redis-benchmark was not ready after {LIMIT_SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as error:
        raise RedisBenchmarkError(f"redis-benchmark: {error.stderr or error.stdout}") from None
    return read_csv(done.stdout)


def read_csv(text: str) -> RedisResult:
    """Read its output. Before version 6.2 there was no headline, and only the rate."""
    rows = [row for row in csv.reader(text.splitlines()) if len(row) > 1]
    if not rows:
        raise RedisBenchmarkError(f"redis-benchmark said {text!r}")
    last = rows[-1]
    if len(rows) > 1 and "rps" in rows[0]:
        named = dict(zip(rows[0], last, strict=False))
        return RedisResult(float(named["rps"]), float(named["p99_latency_ms"]))
    return RedisResult(float(last[1]), None)
