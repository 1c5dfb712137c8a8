"""Kinds of arguments: one class per kind reads a value from JSON or from the text of a query, and has a JSON Schema.

A wrong value is refused with the argument's name. Values are not converted: a number is not text, and `1.0` is not a
whole number.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from disque_py.gateway.problems import RefusedError

INT_MAX: Final = 2**63 - 1
MS_MAX: Final = 2**52
SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def check_encoding(name: str, text: str) -> None:
    """Refuse a text that was not UTF-8. Raises RefusedError."""
    if not text.isascii() and SURROGATES.search(text):
        raise RefusedError("ERR", f"{name} is not UTF-8")


class Kind:
    """One kind of argument."""

    def read(self, name: str, value: Any) -> Any:
        """Return the checked value from JSON. Raises RefusedError."""
        raise TypeError(type(self).__name__)

    def read_text(self, name: str, text: str) -> Any:
        """Return the checked value of a text from the query. Raises RefusedError."""
        return self.read(name, text)

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        raise TypeError(type(self).__name__)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Text with a least and a greatest number of characters.

    is_name   whether it is a name, which may have bytes that are not UTF-8. They are surrogates in the value
    """

    shortest: int = 0
    longest: int = 4096
    is_name: bool = False

    def read(self, name: str, value: Any) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise RefusedError("ERR", f"{name} must be text")
        if not self.shortest <= len(value) <= self.longest:
            raise RefusedError("ERR", f"{name} must have {self.shortest} to {self.longest} characters")
        if not self.is_name:
            check_encoding(name, value)
        return value

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "string", "minLength": self.shortest, "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number within limits."""

    least: int = 0
    most: int = INT_MAX

    def read(self, name: str, value: Any) -> int:
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise RefusedError("ERR", f"{name} must be a whole number from {self.least} to {self.most}")
        return value

    def read_text(self, name: str, text: str) -> int:
        """Return the number of a text."""
        digits = text.removeprefix("-")
        return self.read(name, int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text)

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false."""

    def read(self, name: str, value: Any) -> bool:
        """Return the truth value."""
        if not isinstance(value, bool):
            raise RefusedError("ERR", f"{name} must be true or false")
        return value

    def read_text(self, name: str, text: str) -> bool:
        """Return the truth value of a text."""
        return self.read(name, {"true": True, "1": True, "false": False, "0": False}.get(text, text))

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, name: str, value: Any) -> str:
        """Return the word."""
        if value not in self.words:
            raise RefusedError("ERR", f"{name} must be one of {', '.join(self.words)}")
        return str(value)

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Pairs(Kind):
    """Names and texts. In a query: `name:value`, repeated."""

    most: int = 64

    def read(self, name: str, value: Any) -> dict[str, str]:
        """Return the pairs."""
        if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
            raise RefusedError("ERR", f"{name} must be an object of texts")
        if len(value) > self.most:
            raise RefusedError("ERR", f"{name} has more than {self.most} pairs")
        return value

    def read_text(self, name: str, text: str) -> dict[str, str]:
        """Return the pair of one `name:value`."""
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise RefusedError("ERR", f"{name} must be name:value")
        return {key: value}

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": self.most}


@dataclass(frozen=True, slots=True)
class Texts(Kind):
    """A list of texts. In a query it is repeated."""

    longest: int = 256
    most: int = 10_000
    least: int = 1

    def read(self, name: str, value: Any) -> list[str]:
        """Return the list."""
        if not isinstance(value, list) or not all(
            isinstance(each, str) and len(each) <= self.longest for each in value
        ):
            raise RefusedError("ERR", f"{name} must be a list of texts")
        if not self.least <= len(value) <= self.most:
            raise RefusedError("ERR", f"{name} must have {self.least} to {self.most} entries")
        return value

    def read_text(self, name: str, text: str) -> list[str]:
        """Return a list of one text."""
        return self.read(name, [text])

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        items = {"type": "string", "maxLength": self.longest}
        return {"type": "array", "items": items, "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Octets(Kind):
    """Bytes, as Base64."""

    def read(self, name: str, value: Any) -> bytes:
        """Return the bytes."""
        if isinstance(value, bytes):
            return value
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise RefusedError("ERR", f"{name} must be Base64") from error

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {"type": "string", "contentEncoding": "base64"}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an operation.

    name       its name, in snake case
    kind       its kind
    help       its meaning, in a sentence
    place      its place in an HTTP request: `path`, `query` or `body`
    required   whether it must be given
    """

    name: str
    kind: Kind
    help: str
    place: str = "body"
    required: bool = False


def pairs_of(kind: Pairs, name: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the pairs of `name:value` texts. Raises RefusedError for a name that occurs twice."""
    found: dict[str, str] = {}
    for text in texts:
        [(key, value)] = kind.read_text(name, text).items()
        if key in found:
            raise RefusedError("ERR", f"{name} has the name {key} twice")
        found[key] = value
    return found


def merged(kind: Kind, name: str, texts: list[str]) -> Any:
    """Return the value of an argument that occurs in a query, perhaps several times. Raises RefusedError."""
    if not isinstance(kind, Text):
        for text in texts:
            check_encoding(name, text)
    if isinstance(kind, Pairs):
        return kind.read(name, pairs_of(kind, name, texts))
    if isinstance(kind, Texts):
        return kind.read(name, texts)
    if len(texts) != 1:
        raise RefusedError("ERR", f"{name} was given {len(texts)} times")
    return kind.read_text(name, texts[0])
