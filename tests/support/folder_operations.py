"""Random operations on a folder, for the tests that compare folders or cut the power in between."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from persistence.disk import Folder

NAMES = ("a", "b", "c")
NUMBERS = st.integers(0, 2000)
BYTES = st.binary(max_size=40) | st.integers(500, 1500).map(lambda size: bytes(number % 251 for number in range(size)))
NAME = st.sampled_from(NAMES)

OPERATION = st.one_of(
    st.tuples(st.just("create"), NAME, BYTES),
    st.tuples(st.just("write"), NAME, NUMBERS, st.lists(BYTES, max_size=3)),
    st.tuples(st.just("sync"), NAME),
    st.tuples(st.just("truncate"), NAME, NUMBERS),
    st.tuples(st.just("replace"), NAME, BYTES),
    st.tuples(st.just("remove"), NAME),
    st.tuples(st.just("rename"), NAME, NAME),
    st.tuples(st.just("allocate"), NAME, NUMBERS),
    st.tuples(st.just("read"), NAME, NUMBERS, NUMBERS),
    st.tuples(st.just("size"), NAME),
)


def outcome(folder: Folder, operation: tuple[Any, ...]) -> Any:
    """Return the result of the call, or the number of its OSError."""
    try:
        return getattr(folder, operation[0])(*operation[1:])
    except OSError as error:
        return type(error), error.errno


def contents(folder: Folder) -> dict[str, bytes]:
    """Return the contents of all files, by name."""
    return {name: folder.read(name, 0, folder.size(name)) for name in folder.names()}
