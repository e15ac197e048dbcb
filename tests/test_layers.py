"""Imports point down only, and a few libraries stay where they belong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dr_ctl

PACKAGE = Path(dr_ctl.__file__).parent
# The top first; parts that share a row do not know each other.
LAYERS = (
    ("dr_ctl", "__main__"),
    ("cli",),
    ("report", "lab", "agents"),
    ("topologies",),
    ("jolokia", "stomp_io", "processes", "rpo"),
    ("engine",),
    ("settings",),
    ("telemetry",),
    ("core",),
)
ROW = {part: row for row, parts in enumerate(LAYERS) for part in parts}
ONLY_IN = {"pyspark": ("rpo/transforms.py", "rpo/spark.py"), "rich": ("cli/",), "click": ()}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else "__main__"


def imported(tree: ast.AST) -> set[str]:
    names = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{each.name}" for each in node.names}
    return names


def for_types(tree: ast.AST) -> set[str]:
    """What is imported for annotations only, and costs nothing when the program runs."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {name for block in blocks for name in imported(block)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_what_it_is_for_and_imports_only_downwards(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    names, own = imported(tree), part(path)

    others = {name.split(".")[1] for name in names if name.startswith("dr_ctl.")} - {own, "__version__"}
    assert ast.get_docstring(tree)
    assert {other for other in others if ROW[other] <= ROW[own]} == set()
    for library, places in ONLY_IN.items():
        uses = any(name.split(".")[0] == library for name in names - for_types(tree))
        assert not uses or str(path.relative_to(PACKAGE)).startswith(places or "-"), f"{library} does not belong here"


def test_every_part_has_its_layer() -> None:
    assert {part(path) for path in MODULES} <= ROW.keys()
