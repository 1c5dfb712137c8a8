"""Every module says what it is for, and has a test file of its own."""

from __future__ import annotations

import ast


def test_every_module_begins_with_its_theory(modules):
    """A module without a docstring is a room without a door plate."""
    assert [module.name for module in modules if not ast.get_docstring(module.tree)] == []


def test_no_module_has_a_name_that_says_nothing(modules):
    """Things in such a file belong somewhere else, where they are looked for."""
    empty = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
    assert [module.name for module in modules if module.name.rsplit("/", 1)[-1].removesuffix(".py") in empty] == []


def test_every_module_that_does_something_has_its_own_test_file(modules, root):
    """
    `core/acks.py` is tested by `test_acks.py`, `server/main.py` by `test_main.py` or, where the
    bare name would say too little, by `test_server_main.py`. Declarations alone need none.
    """
    folders = ("unit", "integration", "spark")
    tests = {path.stem for folder in folders for path in (root / "tests" / folder).glob("test_*.py")}
    assert [module.name for module in modules if has_code(module.tree) and not tests & names_of_test(module.name)] == []


def names_of_test(name: str) -> set[str]:
    """What the test file of a module may be called."""
    words = name.removesuffix(".py").removesuffix("/__init__").removesuffix("/__main__").split("/")
    return {"test_" + "_".join(words[start:]) for start in range(len(words))}


def has_code(tree: ast.Module) -> bool:
    """Whether any function does more than declare a shape (a docstring, `...`, or nothing)."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(not is_declaration(function) for function in functions)


def is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A body of constants only: the docstring of a protocol's method, or an ellipsis."""
    return all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in function.body)


def test_a_protocol_without_bodies_is_no_code():
    """ports.py and the like declare; there is nothing in them that could be wrong alone."""
    assert not has_code(ast.parse('class P:\n    def f(self) -> int:\n        """Say."""\n    def g(self): ...\n'))
    assert has_code(ast.parse("def f():\n    return 1\n"))
