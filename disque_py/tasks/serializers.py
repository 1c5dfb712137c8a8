"""Serializers: arguments and results as bytes, and back.

A serializer must return plain values, because reading bytes from a queue must never run code. So there is none for
pickle. Both serializers support None, booleans, numbers, text, lists and dictionaries. A tuple becomes a list. msgpack
is shorter, and also supports bytes. Any object with the same two methods can replace them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from disque_py.tasks.errors import SerializerError


class Serializer(Protocol):
    """Values as bytes, and back."""

    def dumps(self, value: Any) -> bytes:
        """Return a value as bytes. Raises SerializerError for an unsupported value."""

    def loads(self, data: bytes) -> Any:
        """Return the value of these bytes. Raises SerializerError for invalid bytes."""


class JSONSerializer:
    """Values as JSON.

    default       a function that converts a value which JSON does not support; None, the default: such a value is
                  refused
    object_hook   a function that converts each dictionary that is read; None, the default: it stays a dictionary
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
        """Return a value as JSON, in UTF-8. Raises SerializerError for an unsupported value."""
        try:
            text = json.dumps(value, default=self._default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializerError(str(error)) from error

    def loads(self, data: bytes) -> Any:
        """Return the value of JSON. Raises SerializerError for any other text."""
        try:
            return json.loads(data, object_hook=self._hook)
        except (ValueError, RecursionError) as error:
            raise SerializerError(str(error)) from error


class MsgPackSerializer:
    """Values as msgpack, which is shorter than JSON and supports bytes and moments in UTC (as `datetime`).

    default   a function that converts a value which msgpack does not support; None, the default: such a value is
              refused

    Needs the package `msgpack`, which comes with disque-py unless it was installed with `--no-deps`.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        import msgpack  # type: ignore[import-untyped]  # It ships no types.

        self._default = default
        # Not one Packer for all values: two threads would write into its buffer at the same time.
        self._pack = msgpack.packb
        self._unpack = msgpack.unpackb

    def dumps(self, value: Any) -> bytes:
        """Return a value as msgpack. Raises SerializerError for an unsupported value."""
        try:
            return bytes(self._pack(value, default=self._default, datetime=True))
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializerError(str(error)) from error

    def loads(self, data: bytes) -> Any:
        """Return the value of msgpack. Raises SerializerError for any other bytes."""
        try:
            return self._unpack(data, timestamp=3, strict_map_key=False)
        except Exception as error:  # The errors of msgpack have no other common type.
            raise SerializerError(f"not msgpack: {error}") from error
