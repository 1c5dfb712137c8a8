"""Kinds of values a directive may have: how each is read, checked and written.

`parse` takes the words after the directive's name and returns the value, or raises ValueError with the reason; `merge`
says what a further line of the same directive means (usually: the later line wins); `text` is what CONFIG GET shows;
`lines` is what a config file says, one list of words per line, so that parsing those lines gives the value back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.config.memory_units import BYTES_MAX, memory_text, parse_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

WRONG_COUNT: Final = "Bad directive or wrong number of arguments"

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


class RefusedError(ValueError):
    """The value is well formed, but this version can't do it; the text is shown even by CONFIG SET."""


class OutputLimit(NamedTuple):
    """When a client whose replies pile up is closed: at `hard_bytes`, or after `soft_seconds` above `soft_bytes`."""

    hard_bytes: int
    soft_bytes: int
    soft_seconds: int


class OutputLimits(NamedTuple):
    """One limit per class of clients; 0 means unlimited (spec B2)."""

    normal: OutputLimit
    stream: OutputLimit  # MONITOR and event tails, which nobody can slow down.


class Seed(NamedTuple):
    """A node to meet at start; bus_port 0 means port + 10000."""

    host: str
    port: int
    bus_port: int


class Kind:
    """A single word; the kinds below refine it."""

    takes_many_words = False

    def parse(self, words: Sequence[str]) -> Any:
        """The value of a line; ValueError with the reason."""
        if len(words) != 1:
            raise ValueError(WRONG_COUNT)
        return self.parse_word(words[0])

    def parse_word(self, word: str) -> Any:
        """The value of a single word; ValueError with the reason."""
        return word

    def merge(self, current: Any, parsed: Any) -> Any:
        """The value after a further line of the same directive."""
        return parsed

    def text(self, value: Any) -> str:
        """As CONFIG GET shows it."""
        return str(value)

    def lines(self, value: Any) -> list[list[str]]:
        """As a config file says it; no lines if only silence means this value."""
        return [[self.text(value)]]


class Flag(Kind):
    """yes or no."""

    def parse_word(self, word: str) -> bool:
        """True for yes."""
        if word.lower() not in ("yes", "no"):
            raise ValueError("argument must be 'yes' or 'no'")
        return word.lower() == "yes"

    def text(self, value: bool) -> str:
        """`yes` or `no`."""
        return "yes" if value else "no"


class RefusedFlag(Flag):
    """A flag that must stay `no` in this version; `reason` tells why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def parse_word(self, word: str) -> bool:
        """False, or RefusedError."""
        if super().parse_word(word):
            raise RefusedError(self.reason)
        return False


class Integer(Kind):
    """An integer of a range; with `is_clamped` values outside become the nearest bound."""

    def __init__(self, low: int, high: int = BYTES_MAX, *, is_clamped: bool = False) -> None:
        self.low = low
        self.high = high
        self.is_clamped = is_clamped

    def parse_word(self, word: str) -> int:
        """The number."""
        if _INTEGER.fullmatch(word) is None:
            raise ValueError("argument must be an integer")
        value = int(word)
        if self.is_clamped and value >= 0:
            return min(max(value, self.low), self.high)
        if not self.low <= value <= self.high:
            bounds = f"at least {self.low}" if self.high == BYTES_MAX else f"from {self.low} to {self.high}"
            raise ValueError(f"argument must be an integer {bounds}")
        return value


class KeepAlive(Integer):
    """Seconds; `yes` and `no` are understood as well, as the original's CONFIG SET had them (spec Q24)."""

    YES_SECONDS: Final = 300  # Redis's default; the original's one second would be a flood.

    def __init__(self) -> None:
        super().__init__(0, 32_767)  # Larger idle times are refused by Linux.

    def parse_word(self, word: str) -> int:
        """Seconds of silence before the first probe; 0: no probes."""
        if word.lower() in ("yes", "no"):
            return self.YES_SECONDS if word.lower() == "yes" else 0
        return super().parse_word(word)


class Memory(Kind):
    """Bytes of a range, written with units."""

    def __init__(self, low: int = 0, high: int = BYTES_MAX) -> None:
        self.low = low
        self.high = high

    def parse_word(self, word: str) -> int:
        """Bytes."""
        value = parse_memory(word)
        if not self.low <= value <= self.high:
            upper = "" if self.high == BYTES_MAX else f" and at most {memory_text(self.high)}"
            raise ValueError(f"argument must be at least {memory_text(self.low)}{upper}")
        return value

    def lines(self, value: int) -> list[list[str]]:
        """With the largest unit that is exact."""
        return [[memory_text(value)]]


class Octal(Kind):
    """File permissions."""

    def parse_word(self, word: str) -> int:
        """The mode bits, 0 to 0o777."""
        if re.fullmatch(r"0*[0-7]{1,3}", word) is None:
            raise ValueError("argument must be an octal number from 0 to 777")
        return int(word, 8)

    def text(self, value: int) -> str:
        """Octal digits without a prefix."""
        return f"{value:o}"


class Choice(Kind):
    """One of a few words, in any case."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def parse_word(self, word: str) -> str:
        """The word in lower case."""
        if word.lower() not in self.words:
            raise ValueError(f"argument must be one of: {', '.join(self.words)}")
        return word.lower()


class Text(Kind):
    """Any text up to a number of bytes; empty means none."""

    def __init__(self, bytes_max: int = 4096, *, may_be_empty: bool = True) -> None:
        self.bytes_max = bytes_max
        self.may_be_empty = may_be_empty

    def parse_word(self, word: str) -> str:
        """The text."""
        if "\0" in word:
            raise ValueError("argument must not contain a NUL byte")
        if not word and not self.may_be_empty:
            raise ValueError("argument must not be empty")
        if len(word.encode("utf-8", "surrogateescape")) > self.bytes_max:
            raise ValueError(f"argument must not be longer than {self.bytes_max} bytes")
        return word


class FileName(Text):
    """The name of a file inside `dir`."""

    def __init__(self) -> None:
        super().__init__(255, may_be_empty=False)

    def parse_word(self, word: str) -> str:
        """The name."""
        if "/" in word:
            raise ValueError("argument must be a file name, not a path")
        return super().parse_word(word)


class Addresses(Kind):
    """One to sixteen addresses to listen on; an empty value means all."""

    takes_many_words = True

    def parse(self, words: Sequence[str]) -> tuple[str, ...]:
        """The addresses, in order."""
        if not 1 <= len(words) <= 16 or not all(words):
            raise ValueError("give 1 to 16 addresses")
        return tuple(words)

    def text(self, value: tuple[str, ...]) -> str:
        """Separated by blanks."""
        return " ".join(value)

    def lines(self, value: tuple[str, ...]) -> list[list[str]]:
        """Nothing for all addresses."""
        return [list(value)] if value else []


class Seeds(Kind):
    """Nodes to meet: host:port, host:port@busport, [v6]:port; one empty word means none."""

    takes_many_words = True

    def parse(self, words: Sequence[str]) -> tuple[Seed, ...]:
        """The seeds, in order."""
        if not words:
            raise ValueError(WRONG_COUNT)
        return tuple(self.parse_word(word) for word in words if word)

    def parse_word(self, word: str) -> Seed:
        """One seed."""
        address, _, bus_port = word.partition("@")
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not _is_port(port) or (bus_port and not _is_port(bus_port)) or word.endswith("@"):
            raise ValueError(f"'{word}' is not host:port or host:port@busport")
        return Seed(host, int(port), int(bus_port or 0))

    def text(self, value: tuple[Seed, ...]) -> str:
        """Separated by blanks."""
        return " ".join(self._seed_text(seed) for seed in value)

    def lines(self, value: tuple[Seed, ...]) -> list[list[str]]:
        """Nothing without seeds."""
        return [[self._seed_text(seed) for seed in value]] if value else []

    @staticmethod
    def _seed_text(seed: Seed) -> str:
        host = f"[{seed.host}]" if ":" in seed.host else seed.host
        return f"{host}:{seed.port}" + (f"@{seed.bus_port}" if seed.bus_port else "")


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 1 <= int(text) <= 65_535


class OutputLimitGroups(Kind):
    """`<class> <hard> <soft> <soft seconds>`: a line of a file sets one class, CONFIG SET any number."""

    takes_many_words = True

    def parse(self, words: Sequence[str]) -> dict[str, OutputLimit]:
        """The classes named, with their limits."""
        if not words or len(words) % 4:
            raise ValueError(WRONG_COUNT)
        limits: dict[str, OutputLimit] = {}
        for at in range(0, len(words), 4):
            name, hard, soft, seconds = words[at : at + 4]
            if name.lower() not in OutputLimits._fields:
                raise ValueError(f"unknown class of clients '{name}': use {' or '.join(OutputLimits._fields)}")
            limits[name.lower()] = OutputLimit(parse_memory(hard), parse_memory(soft), Integer(0).parse_word(seconds))
        return limits

    def merge(self, current: OutputLimits, parsed: dict[str, OutputLimit]) -> OutputLimits:
        """Classes that the line doesn't name keep their limits."""
        return current._replace(**parsed)

    def text(self, value: OutputLimits) -> str:
        """All classes, in plain bytes."""
        return " ".join(
            f"{name} {limit.hard_bytes} {limit.soft_bytes} {limit.soft_seconds}"
            for name, limit in zip(OutputLimits._fields, value, strict=True)
        )

    def lines(self, value: OutputLimits) -> list[list[str]]:
        """One line per class."""
        return [
            [name, memory_text(limit.hard_bytes), memory_text(limit.soft_bytes), str(limit.soft_seconds)]
            for name, limit in zip(OutputLimits._fields, value, strict=True)
        ]


class Renames(Kind):
    """`<command> <new name>`, any number of lines; an empty new name removes the command."""

    takes_many_words = True

    def parse(self, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """One pair, old name in lower case."""
        if len(words) != 2 or not words[0]:
            raise ValueError(WRONG_COUNT)
        return ((words[0].lower(), words[1]),)

    def merge(self, current: tuple[tuple[str, str], ...], parsed: tuple[tuple[str, str], ...]) -> Any:
        """Lines add up."""
        return current + parsed

    def text(self, value: tuple[tuple[str, str], ...]) -> str:
        """Pairs, separated by blanks."""
        return " ".join(f"{old} {new}" for old, new in value)

    def lines(self, value: tuple[tuple[str, str], ...]) -> list[list[str]]:
        """One line per pair."""
        return [[old, new] for old, new in value]
