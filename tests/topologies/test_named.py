"""Every check that a topology makes has its name: what `validate` lists leaves none out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dr_ctl.topologies.bridges import named as bridges
from dr_ctl.topologies.brokersync import named as brokersync
from dr_ctl.topologies.common.named import OF_BROKER, OF_PAIR
from dr_ctl.topologies.continuity import named as continuity
from dr_ctl.topologies.fanout import named as fanout
from dr_ctl.topologies.mirror import named as mirror
from dr_ctl.topologies.replica import named as replica
from dr_ctl.topologies.sharedstore import named as sharedstore

FINDING = re.compile(r'"(DR-[A-Z]+-\d{3})"')
TOPOLOGIES = Path(mirror.__file__).parents[1]
# The family whose checks a topology makes too.
FAMILIES = dict.fromkeys(("brokersync", "fanout", "replica", "sharedstore"), ("classic",))
# A broker that did not answer has no check that holds; a name that is taken is looked at where something is written.
NOT_A_CHECK = {"DR-SITE-001", "DR-LOCK-005"}


@pytest.mark.parametrize(
    "of",
    [mirror, continuity, bridges, brokersync, fanout, replica, sharedstore],
    ids=["mirror", "continuity", "bridges", "brokersync", "fanout", "replica", "sharedstore"],
)
def test_each_finding_of_the_checks_has_a_name_and_no_other(of: object) -> None:
    folder = str(getattr(of, "__name__", "")).split(".")[-2]
    own = _yielded(TOPOLOGIES / folder / "checks.py")
    for family in FAMILIES.get(folder, ()):
        own |= _yielded(TOPOLOGIES / family / "checks.py")
    tables = (*OF_BROKER, *OF_PAIR, *getattr(of, "BY_BROKER", ()), *getattr(of, "BY_PAIR", ()))

    assert {each.id for each in tables} == (own | _yielded(TOPOLOGIES / "common" / "checks.py")) - NOT_A_CHECK
    assert len({each.name for each in tables}) == len(tables)


def _yielded(path: Path) -> set[str]:
    """The ids of the findings that a module makes; those that it only names in a set are not."""
    text = path.read_text(encoding="utf-8")
    return set(FINDING.findall(re.sub(r"frozenset\(\{[^}]*\}\)", "", text)))
