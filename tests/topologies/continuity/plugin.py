"""Labs with the real continuity plugin, and what tests do to its bridges."""

import os
from pathlib import Path

import pytest

from dr_ctl_lab.lab.artemis.continuity import JAR
from dr_ctl_lab.lab.kinds import CONTINUITY
from dr_ctl_lab.lab.lab import Lab

FAST, SLOW = ("fast.a", "fast.b"), ("slow.a", "slow.b")
needs_plugin = pytest.mark.skipif(
    not Path(os.environ.get(JAR, "")).is_file(),
    reason=f"the tests of the continuity plugin did NOT run: {JAR} names no jar (docs/artemis-continuity.md)",
)


def up(directory: Path, **more: object) -> Lab:
    return Lab.up(directory, topology=CONTINUITY, queues=(*FAST, *SLOW), **more)  # type: ignore[arg-type]


def left(lab: Lab) -> dict[str, int]:
    """What lies in the lab's queues, delivered or staged, by site and queue; nothing of those that are empty."""
    result = {}
    for broker in lab.state.sites:
        for name, depth in lab.admin(broker.name, broker.pair).depths().items():
            if depth and name.removesuffix(".in.mirror") in lab.queues:
                result[f"{broker.broker}/{name}"] = depth
    return result


def bridges(lab: Lab, site: str, operation: str, *kinds: str) -> None:
    """Stop or start the bridges of a site whose names end so."""
    admin = lab.admin(site)
    call = admin._call({"type": "read", "mbean": f"{admin._broker},component=bridges,name=*", "attribute": ["Name"]})
    for bean, value in call.items():
        if value["Name"].endswith(kinds):
            admin._call({"type": "exec", "mbean": bean, "operation": operation})


def activated(lab: Lab, site: str, pair: str | None = None) -> tuple[bool, bool]:
    """What the plugin says of itself: activated, delivering."""
    admin = lab.admin(site, pair)
    bean = f'{admin._broker},component=continuity,name="continuity.service"'
    call = admin._call({"type": "read", "mbean": bean, "attribute": ["SiteActivated", "Delivering"]})
    return call["SiteActivated"], call["Delivering"]
