"""Put the floors and the tiers of the core into ARCHITECTURE.md: `python tests/house/rewrite_floors.py`.

The rows of the drawing are the layers of the import contract "Floors" in pyproject.toml. The arrows are the actual
imports of the modules. An arrow is left out if a longer path of arrows implies it. test_floors.py compares the drawing
with the imports, and this program rewrites it. The table of tiers has the layers of the contract "Tiers of the core".
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster_bus", "persistence", "disque_py")
# Programs and libraries beside the broker: no floor names them, because they use the client library only.
BESIDE = (
    "disque_py.cli",
    "disque_py.gateway",
    "disque_py.integrations",
    "disque_py.spark",
    "disque_py.tasks",
    "disque_py.testing",
    "disque_py.client",
)
BLOCK = re.compile(r"(?<=<!-- floors -->\n).*?(?=<!-- end of floors -->)", re.DOTALL)
TIERS = re.compile(r"(?<=<!-- tiers -->\n).*?(?=<!-- end of tiers -->)", re.DOTALL)

Arrows = set[tuple[str, str]]


def layers(title: str) -> list[list[str]]:
    """Return the layers of the contract whose name begins like this, top first, each with its names."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contract = next(each for each in tools["importlinter"]["contracts"] if each["name"].startswith(title))
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def floors() -> list[list[str]]:
    """Return the layers of the packages, top first."""
    return layers("Floors")


def tiers() -> str:
    """Return the table of the core's layers, top first, with their numbers from the bottom."""
    rows = layers("Tiers of the core")
    lines = ["| tier | modules of `core/` |", "|---:|---|"]
    for number, row in enumerate(rows):
        lines.append(f"| {len(rows) - number} | {', '.join(f'`{name}`' for name in row)} |")
    return "\n".join(lines) + "\n"


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Return the imports of every module, by dotted name. Cached, because it takes many seconds on a busy machine."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found[name] = tuple(imports_of(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module may import at run time, without imports for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.expr):  # Expressions import nothing.
            yield from imports_of(node)


def box_of(name: str, boxes: list[str]) -> str:
    """Return the box of a module, or "" for a module without one."""
    return next((box for box in boxes if name == box or name.startswith(f"{box}.")), "")


def arrows(boxes: list[str]) -> Arrows:
    """Return for each box the boxes that it imports."""
    found = set()
    for name, targets in modules().items():
        source = box_of(name, boxes)
        for target in targets:
            wanted = box_of(target, boxes)
            if source and wanted and source != wanted:
                found.add((source, wanted))
    return found


def reduced(every: Arrows) -> Arrows:
    """Return the arrows without those that a longer path replaces. The arrows must have no cycle."""
    following: dict[str, set[str]] = {}
    for source, target in every:
        following.setdefault(source, set()).add(target)

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(following.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += following.get(name, ())
        return found

    return {
        (source, target)
        for source, target in every
        if not any(target in reach(other) for other in following[source] - {target})
    }


def drawing() -> str:
    """Return the Mermaid block: a box per name of the contract, a frame per floor."""
    rows = floors()
    boxes = [name for row in rows for name in row]
    lines = ["```mermaid", "flowchart TB"]
    for number, row in enumerate([*rows, list(BESIDE)], 1):
        title = f"floor {len(rows) - number + 1}" if number <= len(rows) else "beside the broker"
        lines.append(f'  subgraph f{number}["{title}"]')
        lines += [f'    {ident(name)}["{label(name)}"]' for name in row]
        lines.append("  end")
    inside = reduced(arrows(boxes))
    # Programs beside the broker use a few of its packages for files. The contracts name these packages.
    outside = {pair for pair in arrows([*BESIDE, *boxes]) if pair[0] in BESIDE}
    lines += [f"  {ident(source)} --> {ident(target)}" for source, target in sorted(inside)]
    lines += [f"  {ident(source)} -.-> {ident(target)}" for source, target in sorted(outside)]
    return "\n".join([*lines, "```"]) + "\n"


def ident(name: str) -> str:
    """Return a name that Mermaid accepts for a box."""
    return name.replace(".", "_")


def label(name: str) -> str:
    """Return the text in a box: a path, with a slash after a package."""
    path = name.removeprefix("disque_py.").replace(".", "/")
    return path + ("/" if (ROOT / name.replace(".", "/")).is_dir() else ".py")


def in_step(text: str) -> str:
    """Return ARCHITECTURE.md with a new drawing and a new table of tiers."""
    return TIERS.sub(lambda _: tiers(), BLOCK.sub(lambda _: drawing(), text, count=1), count=1)


def main() -> None:
    """Rewrite the page."""
    path = ROOT / "ARCHITECTURE.md"
    path.write_text(in_step(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
