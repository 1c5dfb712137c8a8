"""Serializers: arguments and results as bytes, and back.

A serializer must give back plain values: reading bytes from a queue must never run code. So there is none for pickle.
Both of these know None, booleans, numbers, text, lists and dictionaries. A tuple comes back as a list. msgpack is
shorter and knows bytes as well. An object with the same two methods may take their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from disque_py.tasks.errors import SerializerError


class Serializer(Protocol):
    """Values as bytes, and back."""

    def dumps(self, value: Any) -> bytes:
        """Return a value as bytes. Raises SerializerError for a value that it does not know."""

    def loads(self, data: bytes) -> Any:
        """Return the value of these bytes. Raises SerializerError if they are no value."""


class JSONSerializer:
    """Values as JSON.

    default       makes a known value of one that JSON does not know; None, the default: such a value is refused
    object_hook   makes a value of each dictionary that is read; None, the default: it stays a dictionary
    """

    def __init__(
        self,
        *,
        default: Callable[[Any], Any] | None = None,
        object_hook: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self._default = default
        self._hook = object_hook

    def dumps(self, value: Any) -> bytes:
        """Return a value as JSON, in UTF-8. Raises SerializerError for a value that JSON does not know."""
        try:
            text = json.dumps(value, default=self._default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializerError(str(error)) from error

    def loads(self, data: bytes) -> Any:
        """Return the value of JSON. Raises SerializerError if it is none."""
        try:
            return json.loads(data, object_hook=self._hook)
        except (ValueError, RecursionError) as error:
            raise SerializerError(str(error)) from error


class MsgPackSerializer:
    """Values as msgpack, which is shorter than JSON and knows bytes and moments in UTC (as `datetime`).

    default   makes a known value of one that msgpack does not know; None, the default: such a value is refused

    Needs the package `msgpack`, which comes with disque-py unless it was installed with `--no-deps`.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        import msgpack  # type: ignore[import-untyped]

        self._pack = msgpack.Packer(default=default, datetime=True, autoreset=True).pack
        self._unpack = msgpack.unpackb

    def dumps(self, value: Any) -> bytes:
        """Return a value as msgpack. Raises SerializerError for a value that msgpack does not know."""
        try:
            return bytes(self._pack(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializerError(str(error)) from error

    def loads(self, data: bytes) -> Any:
        """Return the value of msgpack. Raises SerializerError if it is none."""
        try:
            return self._unpack(data, timestamp=3)
        except Exception as error:  # The errors of msgpack have no common type but this one.
            raise SerializerError(f"no msgpack: {error}") from error
