"""Commands about the node asked, and `execute` for every command without a function. Pure.

An answer is about one node, so ask a certain one where that matters. `execute` takes any words, and returns the reply
as it came. The library does not know whether such a command may be repeated, so the caller says so.
"""

from __future__ import annotations

from disque_py.client import results
from disque_py.client.address import Address
from disque_py.client.protocol import Reply, Word, text
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.spans import Milliseconds, milliseconds


def ping() -> Request[str]:
    """Check that a node answers (PING) → PONG."""
    return Request((b"PING",), text)


def time() -> Request[tuple[int, int]]:
    """Ask for a node's clock (TIME) → Unix seconds, and microseconds of that second."""
    return Request((b"TIME",), lambda reply: (int(reply[0]), int(reply[1])))


def info(section: str | None = None) -> Request[dict[str, str | int | float]]:
    """Ask for a node's figures (INFO) → the fields by name. Values that are numbers become numbers.

    section   name of one section; by default all

        print(client.info("jobs")["registered_jobs"])
    """
    return Request((b"INFO",) if section is None else words(b"INFO", section), results.info)


def config_get(pattern: str = "*") -> Request[dict[str, str]]:
    """Read directives of a node (CONFIG GET) → their names and values.

    pattern   pattern of directives, such as `tls-*`; by default "*", all
    """
    return Request(words(b"CONFIG", b"GET", pattern), results.pairs)


def config_set(name: str, value: Word) -> Request[str]:
    """Change a directive of the node asked (CONFIG SET) → OK.

    name    name of the directive
    value   its new value
    """
    return Request(words(b"CONFIG", b"SET", name, value), text, Repeat.NEVER)


def execute(
    *argv: Word, repeat: bool = False, wait_ms: Milliseconds | None = None, node: Address | None = None
) -> Request[Reply]:
    """Execute any command → the raw reply: bytes, int, None, lists.

    argv      the command and its arguments
    repeat    True: the command may be executed twice. False, the default: it is sent again only if no byte of it has
              left
    wait_ms   milliseconds that the command itself may wait, 0 for ever; such a command gets its own connection. None,
              the default, for a command that does not wait
    node      ask this node only; by default the client chooses

        client.execute("QLEN", "mail", repeat=True)
    """
    lane = Lane.PLAIN if wait_ms is None else Lane.OWN
    again = Repeat.SAFE if repeat else Repeat.NEVER
    wait = None if wait_ms is None else milliseconds("wait_ms", wait_ms)
    return Request(words(*argv), _raw, again, lane, wait, node=node, is_pinned=node is not None)


def _raw(reply: Reply) -> Reply:
    return reply
