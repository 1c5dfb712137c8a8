"""click's classes for whole programs. They end with one sentence if the output can't be written (output_errors.py)."""

from __future__ import annotations

import click

from disque_py.output_errors import SafeOutput


class ProgramCommand(SafeOutput, click.Command):
    """A program without commands."""


class ProgramGroup(SafeOutput, click.Group):
    """A program with commands."""
