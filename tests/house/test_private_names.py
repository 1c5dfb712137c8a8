"""A name with an underscore belongs to its module: other modules use methods, properties and public fields."""

from __future__ import annotations

import ast

import pytest

# Names with an underscore that Python itself makes public.
OF_PYTHON = {"_asdict", "_exit", "_fields", "_make", "_replace"}
# PySpark's way to the Java side, which has no public name.
OF_OTHERS = {"_jvm"}
OWN = {"self", "cls"}


def is_private(name):
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")


def made_here(tree):
    """Return private names that the module gives to its own classes: fields, slots and methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield node.attr


def is_own(value):
    """Return whether an object accesses itself, perhaps through its parent class."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in OWN


def foreign(name, tree):
    """Yield each use of another module's private name."""
    here = set(made_here(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            if node.attr not in here | OF_PYTHON | OF_OTHERS:
                yield f"{name}:{node.lineno}: {ast.unparse(node)}"


def test_no_module_uses_a_private_name_of_another(modules):
    assert [found for module in modules for found in foreign(module.name, module.tree)] == []


@pytest.mark.parametrize("line", ["size = len(broker.schedule._tasks)", "journal._queue.clear()", "module._helper()"])
def test_a_use_of_a_foreign_private_name_is_found(line):
    assert list(foreign("some.py", ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "self._a = cls._b",
        "super()._got(reply)",
        "pair._replace(a=1)",
        "class A:\n    def copy(self):\n        self._files = {}\n        other._files = {}",
    ],
)
def test_a_module_may_use_its_own_private_names(line):
    assert list(foreign("some.py", ast.parse(line))) == []
