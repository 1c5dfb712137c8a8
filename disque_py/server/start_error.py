"""Why a node can't start."""

from __future__ import annotations


class StartError(Exception):
    """The node can't start; the text is one line that tells the operator why. The exit status is 1."""
