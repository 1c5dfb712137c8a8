"""setup.py compiles by a rule: all modules of certain folders, except modules that say why they stay Python."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def build(root):
    """setup.py as a module."""
    spec = importlib.util.spec_from_file_location("setup_of_the_checkout", root / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_finds_modules_in_every_folder(build, root):
    """A missing folder, or one without a compiled module, is a mistake in the rule."""
    found = build.modules()
    for folder in build.FOLDERS:
        assert (root / folder).is_dir()
        assert any(name.startswith(f"{folder}/") for name in found)


def test_every_pure_module_of_the_folders_is_compiled_or_says_why_not(build, modules):
    """This includes new folders inside these."""
    compiled = set(build.modules())
    inside = [m for m in modules if m.name.startswith(tuple(f"{folder}/" for folder in build.FOLDERS))]
    left = [m.name for m in inside if m.name not in compiled and not m.name.endswith("__init__.py")]
    assert [m.name for m in inside if m.name in left and not build.STAYS_PYTHON.search(m.text)] == []
    assert "disque_py/core/acks.py" in compiled
    assert not [name for name in compiled if name.startswith("disque_py/simulator/")]


def test_no_module_outside_these_folders_claims_to_stay_python(build, modules):
    """The mark would mean nothing there."""
    elsewhere = [m for m in modules if not m.name.startswith(tuple(f"{folder}/" for folder in build.FOLDERS))]
    assert [m.name for m in elsewhere if build.STAYS_PYTHON.search(m.text)] == []


def test_a_mark_in_other_words_is_not_recognized(build, modules):
    """setup.py would compile a module whose comment has other words, and mypyc would refuse the whole build."""
    said = [m for m in modules if re.search(r"^# .*\bstays python\b", m.text, re.MULTILINE | re.IGNORECASE)]
    assert [m.name for m in said if not build.STAYS_PYTHON.search(m.text)] == []


def test_modules_that_know_the_outside_are_not_compiled_unless_every_command_passes_them(build, modules):
    """Other modules for sockets, files and threads gain nothing."""
    outside = {m.name for m in modules if not m.is_pure}
    assert outside & set(build.modules()) == outside & set(build.FILES)


def test_no_compiled_class_derives_from_a_builtin_one(build, modules):
    """mypyc can't compile such classes, except exceptions and dict. The build would fail."""
    compiled = set(build.modules())
    refused = {name for name, value in vars(builtins).items() if isinstance(value, type)} - {"object", "dict"}
    refused -= {name for name in refused if issubclass(getattr(builtins, name), BaseException)}
    found = [
        f"{module.name}: {node.name}"
        for module in modules
        if module.name in compiled
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & refused
    ]
    assert found == []


def test_no_named_tuple_has_a_field_of_a_class_that_is_imported_for_type_checkers_only(build, modules):
    """mypyc puts the class itself into the annotations, so the import of such a module may end the process."""
    compiled = set(build.modules())
    found = [
        f"{module.name}: {node.name}.{ast.unparse(field.target)}"
        for module in modules
        if module.name in compiled
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in node.bases)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        if {name.id for name in ast.walk(field.annotation) if isinstance(name, ast.Name)} & only_for_types(module.tree)
    ]
    assert found == []


def only_for_types(tree):
    """Return the names of the project's classes that are imported under `if TYPE_CHECKING`."""
    ours = ("disque_py", "cluster_bus", "persistence")
    return {
        alias.name
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
        if isinstance(line, ast.ImportFrom) and (line.module or "").startswith(ours)
        for alias in line.names
    }


def test_modules_that_are_optimized_exist(build):
    """A renamed module would no longer be optimized, and jobs would take longer."""
    assert set(build.OFTEN) - set(build.modules()) == set()


def test_pieces_contain_every_c_file_once(build, tmp_path):
    """A missing file would be a missing module, and a doubled one would not compile."""
    modules = [build.MODULE_C + module[:-3].replace("/", "___") + ".c" for module in build.modules()]
    sources = [tmp_path / name for name in [*modules, "int_ops.c"]]
    for source in sources:
        source.write_text("int x;\n", encoding="utf-8")
    made = build.pieces([str(source) for source in sources])
    assert (str(tmp_path / "int_ops.c"), True) in made
    inside = {path: re.findall(r'#include "(.*)"', Path(path).read_text(encoding="utf-8")) for path, _ in made}
    assert sorted(name for names in inside.values() for name in names) == sorted(modules)
    often = {name for path, is_often in made if is_often for name in inside.get(path, [])}
    assert "__native_disque_py___core___topics.c" not in often
    assert "__native_disque_py___core___acks.c" in often
