"""Arguments: path, query and JSON body as checked values.

An unknown field is refused by its name, so a misspelled option is never ignored.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import msgspec

from disque_py.gateway.fields import Argument, merged
from disque_py.gateway.operations import TABLE, Operation
from disque_py.gateway.problems import RefusedError

_BY_PLACE: Final[dict[str, dict[str, dict[str, Argument]]]] = {
    row.name: {
        place: {argument.name: argument for argument in row.arguments if argument.place == place}
        for place in ("path", "query", "body")
    }
    for row in TABLE
}
_REQUIRED: Final = {
    (row.name, place): tuple(
        argument.name for argument in row.arguments if argument.required and argument.place == place
    )
    for row in TABLE
    for place in ("query", "body")
}


def of_path(operation: Operation, texts: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of the path. Raises RefusedError."""
    kinds = operation.kinds
    return {name: kinds[name].read_text(name, text) for name, text in texts.items()}


def of_query(operation: Operation, query: dict[str, list[str]], place: str = "query") -> dict[str, Any]:
    """Return the arguments of the query; with `place` "body", the options of a raw body. Raises RefusedError."""
    known = _BY_PLACE[operation.name][place]
    if not query and not known:
        return {}
    _check(query, known)
    found = {name: merged(known[name].kind, name, texts) for name, texts in query.items()}
    if place == "query":
        _check_required(operation, place, found)
    return found


def of_json(operation: Operation, body: bytes) -> dict[str, Any]:
    """Return the arguments of a JSON body; an empty body has none. Raises RefusedError."""
    known = _BY_PLACE[operation.name]["body"]
    if not body:
        found: Any = {}
    else:
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError("ERR", f"the body is not JSON: {error}") from None
    return of_values(operation, found, known)


def of_values(operation: Operation, found: Any, known: dict[str, Argument] | None = None) -> dict[str, Any]:
    """Return the fields of an object as checked arguments. Raises RefusedError."""
    known = known if known is not None else _BY_PLACE[operation.name]["body"]
    if not isinstance(found, dict):
        raise RefusedError("ERR", "the body must be an object")
    _check(found, known)
    checked = {name: known[name].kind.read(name, value) for name, value in found.items() if value is not None}
    _check_required(operation, "body", checked)
    return checked


def _check(names: dict[str, Any], known: dict[str, Argument]) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise RefusedError("ERR", f"there is no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _check_required(operation: Operation, place: str, found: dict[str, Any]) -> None:
    for name in _REQUIRED[operation.name, place]:
        if name not in found:
            raise RefusedError("ERR", f"{name} is missing")
