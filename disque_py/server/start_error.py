"""The error of a node that can't start."""

from __future__ import annotations


class StartError(Exception):
    """A reason why the node can't start, as one line for the operator. The exit status is 1."""
