"""The drawing of the floors in ARCHITECTURE.md shows the actual imports, and the table of tiers the contract."""

from __future__ import annotations

import re

import pytest

from rewrite_floors import BLOCK, PACKAGES, TIERS, arrows, floors, in_step, layers, reduced, tiers

# Every module is parsed, which takes minutes on a machine that is busy with other work.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.timeout(600)  # The graph of all imports takes a busy machine minutes.
def test_the_drawing_shows_the_imports(root):
    """`python tests/house/rewrite_floors.py` brings it into step."""
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert BLOCK.search(text)
    assert in_step(text) == text


def test_the_table_of_tiers_is_the_contract(root, modules):
    """`python tests/house/rewrite_floors.py` brings it into step. The contract has each module of the core once."""
    table = TIERS.search((root / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert table is not None
    assert table[0] == tiers()
    core = [m.name for m in modules if m.name.startswith("disque_py/core/") and not m.name.endswith("__init__.py")]
    named = [name for row in layers("Tiers of the core") for name in row]
    assert sorted(name.removeprefix("disque_py/core/").removesuffix(".py") for name in core) == sorted(named)


@pytest.mark.timeout(600)
def test_every_arrow_leads_to_a_lower_floor():
    """The contract checks the imports; this test checks the drawing itself."""
    floor = {name: number for number, row in enumerate(floors()) for name in row}
    assert [pair for pair in arrows(list(floor)) if floor[pair[0]] >= floor[pair[1]]] == []


def test_an_arrow_is_left_out_where_a_longer_way_says_the_same():
    """Otherwise every box would point at every lower one."""
    assert reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}


def test_the_tree_of_the_page_names_every_package_and_module(root, modules):
    """A new reader finds each package there, and each module outside the large packages."""
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = re.findall(r"^```\n(cluster_bus/.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    folders = {m.name.rpartition("/")[0] for m in modules}
    missing = [f for f in sorted(folders - set(PACKAGES)) if f"{f.rpartition('/')[2]}/" not in tree]
    files = [m.name for m in modules if m.name.startswith(("cluster_bus/", "persistence/", "disque_py/core/"))]
    files += [
        m.name for m in modules if m.name.startswith(("disque_py/node/", "disque_py/storage/", "disque_py/resp/"))
    ]
    names = {name.rpartition("/")[2] for name in files} - {"__init__.py"}
    assert missing + sorted(name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}", tree)) == []
