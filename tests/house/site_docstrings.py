"""An extension of griffe, which reads the client library for the API reference. mkdocs.yml names this file.

Docstrings of the library name each parameter at the beginning of a line and explain it in a second column. In Markdown
that would be one paragraph, so it becomes a list. Methods that are made from functions when the library is imported
(disque_py/client/faces.py) look like attributes to griffe. They become methods again, with their own signatures.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import FunctionType
from typing import Any

import griffe

ROW = re.compile(r"^([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)$")


class Docstrings(griffe.Extension):
    """Rewrite classes and docstrings after griffe has read them."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Turn derived attributes of a class into methods."""
        if not cls.path.startswith("disque_py.client."):
            return
        real = getattr(import_module(cls.module.path), cls.name, None)
        for name, member in list(cls.members.items()):
            value = vars(real).get(name) if real is not None else None
            if member.is_attribute and isinstance(value, FunctionType):
                method = as_method(name, value)
                method.lineno = method.endlineno = member.lineno
                cls.set_member(name, method)
                self.on_object(obj=method)

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_method(name: str, function: FunctionType) -> griffe.Function:
    """Return what griffe would have found if the method had been written out."""
    signature = inspect.signature(function)
    parameters = [
        griffe.Parameter(
            each.name,
            annotation=None if each.annotation is each.empty else str(each.annotation),
            kind=getattr(griffe.ParameterKind, each.kind.name.lower()),
            default=None if each.default is each.empty else repr(each.default),
        )
        for each in signature.parameters.values()
    ]
    returns = None if signature.return_annotation is signature.empty else str(signature.return_annotation)
    method = griffe.Function(name, parameters=griffe.Parameters(*parameters), returns=returns)
    method.docstring = griffe.Docstring(inspect.getdoc(function) or "", parent=method)
    return method


def as_markdown(text: str) -> str:
    """Return a docstring with `name   explanation` rows, and the lines that continue them, as a list."""
    lines: list[str] = []
    in_row = False
    for line in text.split("\n"):
        row = ROW.match(line)
        if row:
            if not in_row and lines and lines[-1]:
                lines.append("")
            lines.append(f"- `{row[1]}`: {row[2]}")
            in_row = True
        elif in_row and line.startswith(" "):
            lines[-1] += f" {line.strip()}"
        else:
            if in_row and line:
                lines.append("")
            in_row = False
            lines.append(line)
    return "\n".join(lines)
