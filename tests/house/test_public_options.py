"""Editors and type checkers see every option of the packages that programs import."""

from __future__ import annotations

import ast

import pytest

PUBLIC = ("disque_py/client/", "disque_py/tasks/", "disque_py/testing/")


@pytest.mark.parametrize("package", PUBLIC)
def test_no_function_takes_any_keyword(modules, package):
    """`**options: Any` hides names and types; `Unpack` of a typed dict shows them."""
    found = [
        f"{module.name}:{node.lineno}: {node.name}"
        for module in modules
        if module.name.startswith(package)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.args.kwarg is not None
        and ast.unparse(node.args.kwarg.annotation or ast.Constant(None)) in ("Any", "None")
    ]
    assert found == []
