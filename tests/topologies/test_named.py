"""Every check that a topology makes has its name: what `validate` lists leaves none out."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from dr_ctl.core.findings import FindingKind
from dr_ctl.topologies.bridges import named as bridges
from dr_ctl.topologies.brokersync import named as brokersync
from dr_ctl.topologies.common.named import OF_BROKER, OF_PAIR
from dr_ctl.topologies.continuity import named as continuity
from dr_ctl.topologies.fanout import named as fanout
from dr_ctl.topologies.mirror import named as mirror
from dr_ctl.topologies.sharedstore import named as sharedstore

TOPOLOGIES = Path(mirror.__file__).parents[1]
# The family whose checks a topology makes too.
FAMILIES = dict.fromkeys(("brokersync", "fanout", "sharedstore"), ("classic",)) | dict.fromkeys(
    ("mirror", "continuity", "bridges"), ("artemis",)
)
# A name that is taken is looked at where something is written, and what was done at a lost site when it returns.
NOT_A_CHECK = {"DR-LOCK-005", "DR-RETURN-010"}


@pytest.mark.parametrize(
    "of",
    [mirror, continuity, bridges, brokersync, fanout, sharedstore],
    ids=["mirror", "continuity", "bridges", "brokersync", "fanout", "sharedstore"],
)
def test_each_finding_of_the_checks_has_a_name_and_no_other(of: object) -> None:
    folder = str(getattr(of, "__name__", "")).split(".")[-2]
    own = _yielded(folder)
    for family in FAMILIES.get(folder, ()):
        own |= _yielded(family)
    tables = (*OF_BROKER, *OF_PAIR, *getattr(of, "BY_BROKER", ()), *getattr(of, "BY_PAIR", ()))

    own |= _yielded("common") | _yielded("common", "obstacles") | _yielded("common", "nodes")

    assert {each.kind.id for each in tables} == own - NOT_A_CHECK
    assert all(each.name for each in tables)
    assert len({each.name for each in tables}) == len(tables)


def _yielded(package: str, module: str = "checks") -> set[str]:
    """The ids of the findings that the checks of a package make: the kinds that are called there."""
    checks = import_module(f"dr_ctl.topologies.{package}.{module}")
    tree = ast.parse((TOPOLOGIES / package / f"{module}.py").read_text(encoding="utf-8"))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    kinds = [kind for name in called if isinstance(kind := getattr(checks, name, None), FindingKind)]
    return {kind.id for kind in kinds}
