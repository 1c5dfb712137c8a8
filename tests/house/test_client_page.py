"""The examples of pages for programs: each one is complete and can be pasted into a program."""

from __future__ import annotations

import ast
import builtins
import re

import pytest

import disque_py.client
from rewrite_docs import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(code, id=f"{page}-{number}")
    for page in (
        "docs/client.md",
        "docs/retries.md",
        "docs/locks.md",
        "docs/schedules.md",
        "docs/topics.md",
        "docs/guides/developers.md",
        "docs/guides/data-engineers.md",
        "README.md",
    )
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")), 1)
    if "spark" not in code
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_defines_all_names_that_it_uses(code):
    """`async with` may be outside of a function, as in `python -m asyncio`."""
    compile(code, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    tree = ast.parse(code)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    defined = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    assert sorted({node.id for node in names} - defined) == []


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_imports_of_an_example_exist(code):
    froms = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    wanted = {alias.name for node in froms if node.module == "disque_py.client" for alias in node.names}
    assert wanted <= set(disque_py.client.__all__)


def test_each_public_name_of_the_client_is_in_the_api_reference():
    """The page shows the module of errors as a whole."""
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: disque_py\.client\.(\w+)$", page, re.MULTILINE)) | set(vars(disque_py.client.errors))
    assert [name for name in disque_py.client.__all__ if name not in shown] == []
