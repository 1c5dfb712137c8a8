"""Requests of the client library as text."""

from __future__ import annotations

from disque_py.client.request import Request


def words_of(request: Request[object]) -> str:
    """Return the words of a request with blanks between."""
    return b" ".join(request.argv).decode()
