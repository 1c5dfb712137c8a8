"""Routing: method and path → operation and the texts in the path.

A path is matched before it is decoded, so a name may have any character, percent-encoded. Ids of jobs may have slashes.
Each character of an id may be encoded or not: some programs encode `+` and leave `/` as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from disque_py.gateway.operations import Operation
from disque_py.gateway.problems import RefusedError

ID: Final = r"(D-[0-9a-f]{8}-(?:%[0-9A-Fa-f]{2}|[^%]){24}-[0-9a-f]{4}|[^/]+)"

# The paths whose operations are remembered, and the most characters of such a path.
KNOWN_MAX: Final = 2_000
KNOWN_PATH_MAX: Final = 256


class Routes:
    """The paths of operations."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        # Most requests have one of the same few paths.
        self._known: dict[tuple[str, str], tuple[Operation, dict[str, str]]] = {}
        paths: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            paths.setdefault(operation.path, {})[operation.verb] = operation
        # Fixed endings (`jobs:batch`) come before names, so that no name hides them.
        self._paths = [
            (_pattern(path), re.findall(r"{(\w+)}", path), verbs)
            for path, verbs in sorted(paths.items(), key=lambda pair: (pair[0].count("{"), -len(pair[0])))
        ]

    def find(self, verb: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation, and name → text of its path. Raises RefusedError: NOTFOUND, METHOD, ERR.

        HEAD finds the operation of GET, as HTTP requires. The answer is then sent without its body.
        """
        known = self._known.get((verb, path))
        if known is not None:
            return known
        found = self._search(verb, path)
        if "id" not in found[1] and len(path) <= KNOWN_PATH_MAX:  # The same id rarely comes twice.
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[verb, path] = found
        return found

    def _search(self, verb: str, path: str) -> tuple[Operation, dict[str, str]]:
        others: list[str] = []
        for pattern, names, verbs in self._paths:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            operation = verbs.get("GET" if verb == "HEAD" else verb)
            if operation is None:
                others += verbs
                continue
            return operation, {name: decoded(text) for name, text in zip(names, match.groups(), strict=True)}
        if others:
            methods = sorted({*others, *(["HEAD"] if "GET" in others else ())})
            raise RefusedError("METHOD", f"this path supports {', '.join(methods)}", methods=methods)
        raise RefusedError("NOTFOUND", "there is no such path; see /docs")


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"({\w+})", path)
    return re.compile(
        "".join(ID if part == "{id}" else "([^/]+)" if part[:1] == "{" else re.escape(part) for part in parts)
    )


def decoded(text: str) -> str:
    """Return a name in a path without its percent-encoding.

    Names are bytes. Those that are not UTF-8 become surrogates, as in the client library.
    """
    return text if "%" not in text and text.isascii() else unquote(text, errors="surrogateescape")
