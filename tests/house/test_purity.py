"""The core is deterministic: the same calls with the same clock and chance give the same bytes.

Import contracts (pyproject.toml) check imports between floors. These tests check the rest. They read the syntax tree,
so they find the usual slips, not every possible way around the rules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

FORBIDDEN_IMPORTS = {
    "asyncio", "datetime", "multiprocessing", "os", "secrets", "select", "shutil", "signal", "socket", "subprocess",
    "tempfile", "threading", "time", "uuid", "uvloop",
}  # fmt: skip
FORBIDDEN_CALLS = {"open", "print", "input", "hash", "id"}
# Calls whose result does not depend on the order of their argument.
ORDERLESS = {"sorted", "set", "frozenset", "sum", "len", "min", "max", "any", "all"}
EXCUSE = "# any order:"


def pure(modules):
    """The modules to which these rules apply."""
    return [module for module in modules if module.is_pure]


def test_pure_modules_import_no_outside(modules):
    """Time, chance, sockets, files and threads come only through ports."""
    found = [
        f"{module.name}:{line}: {name}"
        for module in pure(modules)
        for name, line in imports(module.tree)
        if name.partition(".")[0] in FORBIDDEN_IMPORTS
    ]
    assert found == []


def test_pure_modules_do_not_call_the_outside_through_builtins(modules):
    """`hash` and `id` differ from run to run; `open`, `print` and `input` use the outside."""
    found = [
        f"{module.name}:{node.lineno}: {node.func.id}()"
        for module in pure(modules)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS
    ]
    assert found == []


def test_modules_use_only_the_generator_that_they_are_given(modules):
    """`random.Random` may be named as a type. A module may not make a generator, or use the module's functions."""
    assert [f"{module.name}:{line}" for module in pure(modules) for line in own_chance(module.tree)] == []


def test_no_walk_over_a_set_decides_anything(modules):
    """
    The order of a set of nodes depends on addresses, that of a set of bytes on a random seed. A walk in another order
    would send other messages. Sort the set, or say in a comment `# any order: …` on that line why the order can't
    matter.
    """
    found = [
        f"{module.name}:{line}"
        for module in pure(modules)
        for line in walks_over_sets(module.tree)
        if EXCUSE not in module.text.splitlines()[line - 1]
    ]
    assert found == []


def test_only_the_lifecycle_changes_the_state_of_a_job(modules):
    """
    Only one file writes `job.state`, so a job's life can be read in one place. There are two exceptions: restoring
    makes jobs from records before clients are served, and the jobs of the tools (persistence) are other objects.
    """
    found = [
        f"{module.name}:{node.lineno}"
        for module in pure(modules)
        if module.name not in ("disque_py/core/lifecycle.py", "disque_py/core/restoring.py")
        if not module.name.startswith("persistence/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert found == []


def test_no_module_swallows_every_error(modules):
    """
    A bare `except`, or `except BaseException`, would also catch errors of the module itself. Raise the error again, or
    say in a comment `# every error: …` on that line why none may leave.
    """
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        if node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "BaseException")
        if not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
        if "# every error: " not in module.text.splitlines()[node.lineno - 1]
    ]
    assert found == []


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Return the absolute names of imported modules, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno


def own_chance(tree: ast.Module) -> Iterator[int]:
    """Return the lines that use the random module for more than the name of the type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            yield from (node.lineno for alias in node.names if alias.name != "Random")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            if node.attr != "Random":
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"random.Random", "Random"}:
            yield node.lineno


def walks_over_sets(tree: ast.Module) -> Iterator[int]:
    """Return the lines that walk a set, or turn one into a sequence, where the order may matter."""
    names = set(set_names(tree))
    harmless = {
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDERLESS
        for argument in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor):
            walked = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in harmless:
            walked = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Starred):
            walked = [node.value]
        elif isinstance(node, ast.Call) and called(node) in {"list", "tuple", "iter", "enumerate", "join"}:
            walked = node.args[:1]
        elif isinstance(node, ast.Call) and called(node) == "pop" and not node.args:
            walked = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        else:
            continue
        yield from (node.lineno for each in walked if is_set(each, names) and node not in harmless)


def called(node: ast.Call) -> str:
    """Return the last word of the called name."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_set(node: ast.expr, names: set[str]) -> bool:
    """Return whether an expression is a set, as far as the text of its module shows."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {"set", "frozenset"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(node.left, names) or is_set(node.right, names)
    return ast.unparse(node).rpartition(".")[2] in names if isinstance(node, ast.Name | ast.Attribute) else False


def set_names(tree: ast.Module) -> Iterator[str]:
    """Return the last words of names and fields that this module annotates as sets, or to which it assigns sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and annotates_a_set(node.annotation):
            yield ast.unparse(node.target).rpartition(".")[2]
        elif isinstance(node, ast.arg) and node.annotation is not None and annotates_a_set(node.annotation):
            yield node.arg
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            yield from (ast.unparse(target).rpartition(".")[2] for target in node.targets)


def annotates_a_set(annotation: ast.expr) -> bool:
    """Return whether an annotation is `set[...]`, `frozenset[...]` or an abstract set, also as `… | None`."""
    words = ast.unparse(annotation).strip("'\"").split("|")
    return any(word.strip().partition("[")[0] in {"set", "frozenset", "Set", "AbstractSet"} for word in words)


def test_the_search_for_walks_finds_the_usual_slips():
    """Each of these lines would make two runs differ."""
    slips = (
        "for x in {1, 2}: pass",
        "y = [f(x) for x in set(z)]",
        "def f(a: set[int]):\n    return list(a)",
        "class C:\n    def f(self):\n        self.a: set[int] = set()\n        return self.a.pop()",
        "a = {1}\nb = (*a, 2)",
        "a = set()\nb = b','.join(a)",
    )
    assert [slip for slip in slips if not list(walks_over_sets(ast.parse(slip)))] == []


def test_the_search_for_walks_lets_ordered_and_orderless_ones_pass():
    """Sorting, counting and `any` don't depend on the order."""
    fine = (
        "a = {1}\nfor x in sorted(a): pass",
        "a = {1}\nb = sum(x for x in a)",
        "a = {1}\nb = any(f(x) for x in a)",
        "a = {1}\nb = {x + 1 for x in a}",
        "a = {1: 2}\nfor x in a: pass",
    )
    assert [each for each in fine if list(walks_over_sets(ast.parse(each)))] == []
