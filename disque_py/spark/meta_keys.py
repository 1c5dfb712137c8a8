"""Keys of metadata as columns of a result. The queries of disque-query and of the pipelines group by them. Pure.

A key may be any text, so it may have the name of a column, such as `worker` or `state`. A query would then group by
that column. So queries know keys by number, and the result gets the names that people read: the key, or `meta_<key>`
if a column of the result has that name. SQL does not distinguish case in names, so `Queue` is such a key, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def distinct(keys: Iterable[str]) -> list[str]:
    """Return the keys, each once."""
    return list(dict.fromkeys(keys))


def column_of(number: int) -> str:
    """Return the name that a query has for the key with this number."""
    return f"_meta_{number}"


def with_keys(columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the names of a result's columns, with the names of keys in the place of their numbers."""
    numbered = {column_of(number): key for number, key in enumerate(keys)}
    taken = {name.lower() for name in columns if name not in numbered}
    names: list[str] = []
    for column in columns:
        name = column
        if column in numbered:
            name = numbered[column]
            while name.lower() in taken:
                name = f"meta_{name}"
            taken.add(name.lower())
        names.append(name)
    return names
