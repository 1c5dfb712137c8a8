"""A process that sends PING to a node every few milliseconds and notes how long each answer took.

Usage: python pinger.py <port> <interval ms> <file>

It ends when its standard input ends. Then it writes pairs of doubles into the file: when each PING was sent (seconds of
the monotonic clock, the same for all processes), and the milliseconds until the answer. It is a separate process,
because a program that generates load can't distinguish its own pauses from those of the node.
"""

from __future__ import annotations

import gc
import select
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

HOST = "127.0.0.1"
PING = b"PING\r\n"
PONG = b"+PONG\r\n"
ANSWER_SECONDS = 60.0
END_SECONDS = ANSWER_SECONDS + 10.0


class Pings:
    """The PINGs of another process: while it runs, and afterwards with its sorted milliseconds."""

    def __init__(self) -> None:
        self.ordered_ms: list[float] = []


@contextmanager
def pinging(port: int, interval_ms: float, folder: Path) -> Iterator[Pings]:
    """Let a process ping a node for the time of a `with` block. The result is there after the block.

    Raises EOFError if the node hung up.
    """
    path = folder / f"pings-{port}"
    pings = Pings()
    words = [sys.executable, __file__, str(port), str(interval_ms), str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()  # Wait for the first answer, or for the process's end.
            yield pings
            process.stdin.close()
            process.wait(END_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise EOFError(f"the pinger of port {port} ended with status {process.returncode}")
    pings.ordered_ms = sorted(read_samples(path)[1::2])


def read_samples(path: Path) -> array[float]:
    """Return the samples of a pinger's file."""
    samples = array("d")
    samples.frombytes(path.read_bytes())
    return samples


def answers(sock: socket.socket) -> bool:
    """Send a PING, wait, and return whether it was answered."""
    try:
        sock.sendall(PING)
        return sock.recv(64) == PONG
    except OSError:
        return False


def main(port: int, interval_ms: float, path: Path) -> int:
    """Ping until no process has the other end of this process's standard input."""
    gc.disable()
    samples = array("d")
    with socket.create_connection((HOST, port), ANSWER_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not select.select([sys.stdin], [], [], interval_ms / 1000)[0]:
            sent_at = monotonic()
            if not answers(sock):
                # If the benchmark was killed, the node ends with it. That is not an error.
                if not select.select([sys.stdin], [], [], 1.0)[0]:
                    print("pinger.py: a PING was not answered", file=sys.stderr)
                return 1
            samples.append(sent_at)
            samples.append((monotonic() - sent_at) * 1000)
            if len(samples) == 2:
                print("ready", flush=True)
    path.write_bytes(samples.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
