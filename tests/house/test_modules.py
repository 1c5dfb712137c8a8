"""Every module states its purpose, and has its own test file."""

from __future__ import annotations

import ast


def test_every_module_begins_with_its_theory(modules):
    """Without a docstring, a reader can't tell what the module is for."""
    assert [module.name for module in modules if not ast.get_docstring(module.tree)] == []


def test_no_module_has_a_name_that_says_nothing(modules):
    """The contents of such a file belong in modules where readers look for them."""
    empty = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
    assert [module.name for module in modules if module.name.rsplit("/", 1)[-1].removesuffix(".py") in empty] == []


def test_every_module_that_does_something_has_its_own_test_file(modules, root):
    """
    `disque_py/core/acks.py` is tested by `tests/unit/core/test_acks.py`. If a test needs real processes, Spark, the
    gateway or a task library, it is in `tests/integration`, `tests/spark`, `tests/gateway` or `tests/integrations`.
    Modules with only declarations need no test.
    """
    unit = {path.relative_to(root / "tests/unit").as_posix() for path in (root / "tests/unit").rglob("test_*.py")}
    folders = ("integration", "integrations", "spark", "gateway")
    other = {path.stem for folder in folders for path in (root / "tests" / folder).rglob("test_*.py")}
    assert [m.name for m in modules if has_code(m.tree) and not has_test(m.name, unit, other)] == []


def has_test(name: str, unit: set[str], other: set[str]) -> bool:
    """Return whether the module has a unit test, or a test file with its name in another folder."""
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
    """Return whether any function has a body that is more than a declaration (a docstring, `...`, or nothing)."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(not is_declaration(function) for function in functions)


def is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a body has only constants: the docstring of a protocol's method, or an ellipsis."""
    return all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in function.body)


def test_a_protocol_without_bodies_is_not_code():
    """Modules such as ports.py only declare, so there is nothing to test in them."""
    assert not has_code(ast.parse('class P:\n    def f(self) -> int:\n        """Say."""\n    def g(self): ...\n'))
    assert has_code(ast.parse("def f():\n    return 1\n"))
