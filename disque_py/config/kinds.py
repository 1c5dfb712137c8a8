"""Kinds of values of directives: how each is read, checked and written.

`parse` takes the words after the directive's name and returns the value, or raises ValueError with the reason. `merge`
combines the value with a further line of the same directive. Usually the later line wins. `text` is the value as CONFIG
GET shows it. `lines` is the value in a config file, one list of words per line. Parsing these lines gives the value
back. `accepted` describes the values that `parse` accepts, for the error of CONFIG SET (spec R8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.config.memory_units import BYTES_MAX, memory_text, parse_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

AMOUNT: Final = "an amount of memory, in bytes or with a unit (k, kb, m, mb, g, gb)"
WRONG_COUNT: Final = "Bad directive or wrong number of arguments"

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


class OutputLimit(NamedTuple):
    """The limit at which a client with unread replies is closed: `hard_bytes`, or `soft_seconds` above `soft_bytes`."""

    hard_bytes: int
    soft_bytes: int
    soft_seconds: int


class OutputLimits(NamedTuple):
    """One limit per class of clients; 0 means unlimited (spec B2)."""

    normal: OutputLimit
    stream: OutputLimit  # MONITOR and event tails, which no back-pressure slows down.


class Seed(NamedTuple):
    """A node to meet at start; bus_port 0 means port + 10000."""

    host: str
    port: int
    bus_port: int


class Kind:
    """A kind whose value is a single word. The other kinds derive from it."""

    takes_many_words = False

    @property
    def accepted(self) -> str:
        """Describe the accepted values, as the object of "give"."""
        return "one word"

    def parse(self, words: Sequence[str]) -> Any:
        """Return the value of a line. Raise ValueError with the reason if the words are wrong."""
        if len(words) != 1:
            raise ValueError(f"{WRONG_COUNT}: give one value, in quotes if it has blanks")
        return self.parse_word(words[0])

    def parse_word(self, word: str) -> Any:
        """Return the value of a single word. Raise ValueError with the reason if the word is wrong."""
        return word

    def merge(self, current: Any, parsed: Any) -> Any:
        """Return the value after a further line of the same directive."""
        return parsed

    def text(self, value: Any) -> str:
        """Return the value as CONFIG GET shows it."""
        return str(value)

    def lines(self, value: Any) -> list[list[str]]:
        """Return the value as lines of a config file. Return no lines if only a missing line means this value."""
        return [[self.text(value)]]


class Flag(Kind):
    """yes or no."""

    @property
    def accepted(self) -> str:
        """Name both words."""
        return "yes or no"

    def parse_word(self, word: str) -> bool:
        """Return True for yes."""
        if word.lower() not in ("yes", "no"):
            raise ValueError("argument must be 'yes' or 'no'")
        return word.lower() == "yes"

    def text(self, value: bool) -> str:
        """Return `yes` or `no`."""
        return "yes" if value else "no"


class Integer(Kind):
    """An integer within a range. With `is_clamped`, a value outside the range becomes the nearest bound.

    `unit` is for people: the things that are counted, or the unit of time. It may be empty.
    """

    def __init__(self, low: int, high: int = BYTES_MAX, unit: str = "", *, is_clamped: bool = False) -> None:
        self.low = low
        self.high = high
        self.unit = unit
        self.is_clamped = is_clamped

    @property
    def accepted(self) -> str:
        """Name the range and the unit."""
        if self.is_clamped:
            return f"an integer, not negative; it becomes at least {self.low} and at most {self.high}"
        bounds = ""
        if self.high != BYTES_MAX:
            bounds = f" from {self.low} to {self.high}"
        elif self.low >= 0:
            bounds = f" of at least {self.low}"
        return f"an integer{bounds}" + (f" ({self.unit})" if self.unit else "")

    def parse_word(self, word: str) -> int:
        """Return the number."""
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
    """Seconds. `yes` and `no` are accepted as well, as in the original's CONFIG SET (spec Q24)."""

    YES_SECONDS: Final = 300  # Redis's default. The original took one second, which sends far too many probes.

    def __init__(self) -> None:
        super().__init__(0, 32_767, "seconds")  # Linux refuses larger idle times.

    @property
    def accepted(self) -> str:
        """Name the words, the range and the unit."""
        return f"yes, no, or {super().accepted}"

    def parse_word(self, word: str) -> int:
        """Return the seconds of silence before the first probe. 0 means no probes."""
        if word.lower() in ("yes", "no"):
            return self.YES_SECONDS if word.lower() == "yes" else 0
        return super().parse_word(word)


class Memory(Kind):
    """A number of bytes within a range, written with units."""

    def __init__(self, low: int = 0, high: int = BYTES_MAX) -> None:
        self.low = low
        self.high = high

    @property
    def accepted(self) -> str:
        """Name the units and the range."""
        bounds = [f"at least {memory_text(self.low)}"] if self.low else []
        if self.high != BYTES_MAX:
            bounds.append(f"at most {memory_text(self.high)}")
        return f"{AMOUNT}, {' and '.join(bounds)}" if bounds else AMOUNT

    def parse_word(self, word: str) -> int:
        """Return the bytes."""
        value = parse_memory(word)
        if not self.low <= value <= self.high:
            upper = "" if self.high == BYTES_MAX else f" and at most {memory_text(self.high)}"
            raise ValueError(f"argument must be at least {memory_text(self.low)}{upper}")
        return value

    def lines(self, value: int) -> list[list[str]]:
        """Return the value with the largest exact unit."""
        return [[memory_text(value)]]


class Octal(Kind):
    """File permissions."""

    @property
    def accepted(self) -> str:
        """Name the range."""
        return "an octal number from 0 to 777"

    def parse_word(self, word: str) -> int:
        """Return the mode bits, 0 to 0o777."""
        if re.fullmatch(r"0*[0-7]{1,3}", word) is None:
            raise ValueError("argument must be an octal number from 0 to 777")
        return int(word, 8)

    def text(self, value: int) -> str:
        """Return octal digits without a prefix."""
        return f"{value:o}"


class Choice(Kind):
    """One of a few words, in upper or lower case."""

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def accepted(self) -> str:
        """List the words."""
        return f"one of: {', '.join(self.words)}"

    def parse_word(self, word: str) -> str:
        """Return the word as the table writes it."""
        for known in self.words:
            if known.lower() == word.lower():
                return known
        raise ValueError(f"argument must be one of: {', '.join(self.words)}")


class Text(Kind):
    """Any text up to a number of bytes. An empty text means none."""

    def __init__(self, bytes_max: int = 4096, *, may_be_empty: bool = True) -> None:
        self.bytes_max = bytes_max
        self.may_be_empty = may_be_empty

    @property
    def accepted(self) -> str:
        """Name the limit."""
        return f"a text of {'up to' if self.may_be_empty else '1 to'} {self.bytes_max} bytes, without a NUL byte"

    def parse_word(self, word: str) -> str:
        """Return the text."""
        if "\0" in word:
            raise ValueError("argument must not contain a NUL byte")
        if not word and not self.may_be_empty:
            raise ValueError("argument must not be empty")
        if len(word.encode("utf-8", "surrogateescape")) > self.bytes_max:
            raise ValueError(f"argument must not be longer than {self.bytes_max} bytes")
        return word


class PlaceName(Text):
    """The name of a data centre or a zone, which nodes tell each other. An empty name means none."""

    def __init__(self) -> None:
        super().__init__(64)

    @property
    def accepted(self) -> str:
        """Name the limit."""
        return f"a printable text of up to {self.bytes_max} bytes"

    def parse_word(self, word: str) -> str:
        """Return the name."""
        if not word.isprintable():
            raise ValueError("argument must be printable text")
        return super().parse_word(word)


class FileName(Text):
    """The name of a file inside `dir`."""

    def __init__(self) -> None:
        super().__init__(255, may_be_empty=False)

    @property
    def accepted(self) -> str:
        """Name the limit."""
        return f"a file name of 1 to {self.bytes_max} bytes, without a slash"

    def parse_word(self, word: str) -> str:
        """Return the name."""
        if "/" in word:
            raise ValueError("argument must be a file name, not a path")
        return super().parse_word(word)


class Addresses(Kind):
    """One to sixteen addresses to listen on. An empty value means all."""

    takes_many_words = True

    @property
    def accepted(self) -> str:
        """Name the number."""
        return "1 to 16 addresses"

    def parse(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses, in order."""
        if not 1 <= len(words) <= 16 or not all(words):
            raise ValueError("give 1 to 16 addresses")
        known: set[str] = set()
        for word in words:
            if word.lower() in known:  # The second socket would find the port in use, as if by another process.
                raise ValueError(f"the address {word} is there twice")
            known.add(word.lower())
        return tuple(words)

    def text(self, value: tuple[str, ...]) -> str:
        """Return the values, separated by blanks."""
        return " ".join(value)

    def lines(self, value: tuple[str, ...]) -> list[list[str]]:
        """Return one line with the addresses. Return no lines if the value means all addresses."""
        return [list(value)] if value else []


class Seeds(Kind):
    """Nodes to meet: host:port, host:port@busport, [v6]:port. One empty word means none."""

    takes_many_words = True

    @property
    def accepted(self) -> str:
        """Name the form."""
        return "host:port or host:port@busport, any number of them"

    def parse(self, words: Sequence[str]) -> tuple[Seed, ...]:
        """Return the seeds, in order."""
        if not words:
            raise ValueError(f"{WRONG_COUNT}: give host:port of one or more nodes")
        return tuple(self.parse_word(word) for word in words if word)

    def parse_word(self, word: str) -> Seed:
        """Return one seed."""
        address, _, bus_port = word.partition("@")
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not _is_port(port) or (bus_port and not _is_port(bus_port)) or word.endswith("@"):
            raise ValueError(f"'{word}' is not host:port or host:port@busport")
        return Seed(host, int(port), int(bus_port or 0))

    def text(self, value: tuple[Seed, ...]) -> str:
        """Return the values, separated by blanks."""
        return " ".join(self._seed_text(seed) for seed in value)

    def lines(self, value: tuple[Seed, ...]) -> list[list[str]]:
        """Return one line with the seeds. Return no lines without seeds."""
        return [[self._seed_text(seed) for seed in value]] if value else []

    @staticmethod
    def _seed_text(seed: Seed) -> str:
        host = f"[{seed.host}]" if ":" in seed.host else seed.host
        return f"{host}:{seed.port}" + (f"@{seed.bus_port}" if seed.bus_port else "")


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 1 <= int(text) <= 65_535


class OutputLimitGroups(Kind):
    """`<class> <hard> <soft> <soft seconds>`. A line of a file sets one class, CONFIG SET any number."""

    takes_many_words = True

    @property
    def accepted(self) -> str:
        """Name the form and the classes."""
        classes = " or ".join(OutputLimits._fields)
        return f"<class> <hard> <soft> <soft seconds>, with the class {classes}; hard and soft are {AMOUNT}"

    def parse(self, words: Sequence[str]) -> dict[str, OutputLimit]:
        """Return the named classes with their limits."""
        if not words or len(words) % 4:
            raise ValueError(f"{WRONG_COUNT}: give <class> <hard> <soft> <soft seconds>")
        limits: dict[str, OutputLimit] = {}
        for at in range(0, len(words), 4):
            name, hard, soft, seconds = words[at : at + 4]
            if name.lower() not in OutputLimits._fields:
                raise ValueError(f"unknown class of clients '{name}': use {' or '.join(OutputLimits._fields)}")
            limits[name.lower()] = OutputLimit(parse_memory(hard), parse_memory(soft), Integer(0).parse_word(seconds))
        return limits

    def merge(self, current: OutputLimits, parsed: dict[str, OutputLimit]) -> OutputLimits:
        """Return all limits. Classes that the line doesn't name keep theirs."""
        return current._replace(**parsed)

    def text(self, value: OutputLimits) -> str:
        """Return all classes, in plain bytes."""
        return " ".join(
            f"{name} {limit.hard_bytes} {limit.soft_bytes} {limit.soft_seconds}"
            for name, limit in zip(OutputLimits._fields, value, strict=True)
        )

    def lines(self, value: OutputLimits) -> list[list[str]]:
        """Return one line per class."""
        return [
            [name, memory_text(limit.hard_bytes), memory_text(limit.soft_bytes), str(limit.soft_seconds)]
            for name, limit in zip(OutputLimits._fields, value, strict=True)
        ]


class Renames(Kind):
    """`<command> <new name>`, any number of lines. An empty new name removes the command."""

    takes_many_words = True

    @property
    def accepted(self) -> str:
        """Name the form."""
        return "<command> <new name>"

    def parse(self, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return one pair, the old name in lower case."""
        if len(words) != 2 or not words[0]:
            raise ValueError(f"{WRONG_COUNT}: give <command> <new name>")
        return ((words[0].lower(), words[1]),)

    def merge(self, current: tuple[tuple[str, str], ...], parsed: tuple[tuple[str, str], ...]) -> Any:
        """Return the pairs of all lines."""
        return current + parsed

    def text(self, value: tuple[tuple[str, str], ...]) -> str:
        """Return the pairs, separated by blanks."""
        return " ".join(f"{old} {new}" for old, new in value)

    def lines(self, value: tuple[tuple[str, str], ...]) -> list[list[str]]:
        """Return one line per pair."""
        return [[old, new] for old, new in value]
