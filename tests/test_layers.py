"""Imports point down only, and some libraries have one home."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "dr_ctl"
LAYERS = (
    {"core"},
    {"telemetry"},
    {"settings"},
    {"engine"},
    {"jolokia", "stomp_io", "processes", "rpo"},
    {"topologies"},
    {"report", "lab", "twin", "agents"},
    {"application"},
    {"cli"},
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
# What the twin shared with the product it could not show to be wrong.
ALONE = {"twin": {"core"}}
HOMES = {"pyspark": ("rpo/spark/session.py",), "rich": ("cli/progress.py",), "click": ()}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def imports(path: Path) -> list[str]:
    found: list[str] = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []  # names for the type checker are never imported when it runs
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is_for_and_imports_only_from_below(path: Path) -> None:
    mine = path.relative_to(ROOT).parts[0]

    told = imports(path)

    for name in told:
        parts = name.split(".")
        if parts[0] == "dr_ctl" and len(parts) > 1 and parts[1] != mine:
            assert LEVEL[parts[1]] < LEVEL[mine], name
            assert parts[1] in ALONE.get(mine, LEVEL), name
        elif parts[0] != "dr_ctl" and mine in ALONE:
            assert parts[0] in sys.stdlib_module_names, name
        if parts[0] in HOMES:
            assert str(path.relative_to(ROOT)) in HOMES[parts[0]], name
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


TOPOLOGIES = ROOT / "topologies"


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*/*.py")), ids=lambda path: str(path.relative_to(TOPOLOGIES)))
def test_a_topology_knows_no_other_one(path: Path) -> None:
    """What several have in common stands in `artemis`, which knows none of them."""
    mine = path.relative_to(TOPOLOGIES).parts[0]

    others = {name.split(".")[2] for name in imports(path) if name.startswith("dr_ctl.topologies.")}

    assert others <= {mine, "artemis", "topology"}
