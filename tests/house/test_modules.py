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
    `disque_py/core/acks.py` is tested by `tests/unit/core/test_acks.py`. Where real processes, Spark,
    the gateway or a task library are needed, it lies in `tests/integration`, `tests/spark`, `tests/gateway` or
    `tests/integrations`. Declarations alone need none.
    """
    unit = {path.relative_to(root / "tests/unit").as_posix() for path in (root / "tests/unit").rglob("test_*.py")}
    folders = ("integration", "integrations", "spark", "gateway")
    other = {path.stem for folder in folders for path in (root / "tests" / folder).rglob("test_*.py")}
    assert [m.name for m in modules if has_code(m.tree) and not has_test(m.name, unit, other)] == []


def has_test(name: str, unit: set[str], other: set[str]) -> bool:
    """Whether a unit test of that module exists, or a test file of its name in another folder."""
    path = name.removeprefix("disque_py/").removesuffix(".py")
    folder, _, base = path.rpartition("/")
    if base in ("__init__", "__main__"):
        base = folder.rpartition("/")[2] if base == "__main__" else "package"
    words = path.removesuffix("/__init__").removesuffix("/__main__").split("/")
    names = {"_".join(words[start:]) for start in range(len(words))}
    prefix = f"{folder}/" if folder else ""
    return f"{prefix}test_{base}.py" in unit or any(
        f"{prefix}test_{n}.py" in unit or f"test_{n}" in other for n in names
    )


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
