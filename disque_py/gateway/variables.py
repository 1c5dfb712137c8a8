"""Environment variables with a program's prefix that name none of its settings, such as misspelled ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

# Variables by which Kubernetes tells containers the address of a service called disque-gateway or disque-gateway-….
OF_SERVICE: Final = re.compile(r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_\w+)?)")


def unknown_variables(environment: Mapping[str, str], prefix: str, known: Iterable[str]) -> list[str]:
    """Return a warning for each variable with this prefix that is not among `known`."""
    names = list(known)
    found = []
    for name, value in sorted(environment.items()):
        if not name.startswith(prefix) or name in names or OF_SERVICE.fullmatch(name, len(prefix)):
            continue
        if name.endswith("_PORT") and "://" in value:
            continue
        near = get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        found.append(f"the environment variable {name} names no setting and is ignored{hint}")
    return found
