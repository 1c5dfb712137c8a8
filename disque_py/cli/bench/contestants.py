"""The contestants: servers that can be measured, the way to start each, and the addresses of running ones.

A contestant's command may contain {port} and {dir}. {port} is a free loopback port, and {dir} is a scratch directory
that is removed with the server. A server that is not installed is skipped, and the caller reports it. Pure, except that
it looks into PATH.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from disque_py.cli.bench.dialects import BEANSTALKD, DIALECTS, DISQUE, FLOOR, REDIS_LIST, REDIS_STREAM, Dialect
from disque_py.client.address import parse_address

OURS: Final = "disque-py"
LOOPBACK: Final = ("127.0.0.1", "localhost")
_NAMED: Final = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)


class ChoiceError(ValueError):
    """A word of the command line names no contestant; the text gives the next step."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server to measure.

    name      as on the command line
    dialect   its protocol
    command   starts it; empty: it is running
    port      of a running server; 0: it will be started
    host      the name of this machine under which a running server was given
    """

    name: str
    dialect: Dialect
    command: tuple[str, ...] = ()
    port: int = 0
    host: str = LOOPBACK[0]

    @property
    def is_started(self) -> bool:
        """Whether this program starts it."""
        return not self.port

    def words(self, port: int, folder: str) -> list[str]:
        """Return the command line for a port and a directory."""
        return [word.replace("{port}", str(port)).replace("{dir}", folder) for word in self.command]


def ours(maxmemory: int) -> Contestant:
    """Return the server of this installation, with a limit for its jobs in bytes."""
    options = ("--port", "{port}", "--bind", "127.0.0.1", "--dir", "{dir}", "--maxmemory", str(maxmemory))
    return Contestant(OURS, DISQUE, (sys.executable, "-m", "disque_py.server.main", *options))


def floor() -> Contestant:
    """Return the server that only answers PING."""
    return Contestant("floor", FLOOR, (sys.executable, "-m", "disque_py.cli.bench.floor", "{port}"))


def others() -> tuple[list[Contestant], list[str]]:
    """Return the other brokers that are installed, and the names of the programs that are missing."""
    redis = ("redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    known = {
        "redis-server": [
            Contestant("redis-list", REDIS_LIST, (*redis, "--dir", "{dir}")),
            Contestant("redis-stream", REDIS_STREAM, (*redis, "--dir", "{dir}")),
        ],
        "beanstalkd": [Contestant("beanstalkd", BEANSTALKD, ("beanstalkd", "-l", "127.0.0.1", "-p", "{port}"))],
    }
    found, missing = [], []
    for program, contestants in known.items():
        if shutil.which(program):
            found += contestants
        else:
            missing.append(program)
    return found, missing


def from_command(text: str, number: int) -> Contestant:
    """Return the contestant of `--server [NAME=]COMMAND`. Raises ChoiceError if it can't be started."""
    named = _NAMED.fullmatch(text)
    name, command = (named[1], named[2]) if named else (f"server-{number}", text)
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ChoiceError(f"SERVER '{text}' is not a command line: {error}") from error
    if not any("{port}" in word for word in words):
        raise ChoiceError(
            f"SERVER '{text}' needs {{port}} where the port belongs, as in: disque-server --port {{port}}"
        )
    if shutil.which(words[0]) is None:
        raise ChoiceError(f"SERVER {words[0]} is not installed; give its path")
    return Contestant(name, DISQUE, words)


def from_address(text: str) -> Contestant:
    """Return the contestant of `--connect [DIALECT=][HOST:]PORT`. Raises ChoiceError for another machine."""
    named = _NAMED.fullmatch(text)
    word, place = (named[1], named[2]) if named else ("disque", text)
    if word not in DIALECTS:
        raise ChoiceError(f"CONNECT '{word}' is not a protocol; use one of {', '.join(DIALECTS)}")
    where = place.removeprefix(":")
    try:
        address = parse_address(where if ":" in where else f"{LOOPBACK[0]}:{where}")
    except ValueError as error:
        raise ChoiceError(f"CONNECT '{place}' has no port; write 127.0.0.1:7711") from error
    if address.host not in LOOPBACK:
        raise ChoiceError(f"CONNECT {address} is not this machine; run disque-bench there, where it sees the process")
    return Contestant(f"{word}:{address.port}", DIALECTS[word], port=address.port, host=address.host)


def chosen(all_of_them: Sequence[Contestant], names: Sequence[str], skipped: Sequence[str]) -> list[Contestant]:
    """Return the named contestants (without names, all) except the skipped. Raises ChoiceError for unknown names."""
    known = [contestant.name for contestant in all_of_them]
    if doubled := sorted({name for name in known if known.count(name) > 1}):
        raise ChoiceError(f"the name '{doubled[0]}' is used twice; put another NAME= before a command")
    if unknown := [name for name in (*names, *skipped) if name not in known]:
        raise ChoiceError(f"there is no contestant '{unknown[0]}' here; the contestants are {', '.join(known)}")
    return [one for one in all_of_them if (not names or one.name in names) and one.name not in skipped]
