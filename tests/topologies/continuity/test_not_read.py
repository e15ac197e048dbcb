"""A plugin that has not started: what was not read is told as such, in waits and in the journal, and is never zero."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.patience import Patience
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.topologies.common.acts import proving
from dr_ctl.topologies.common.evidence import evidence
from dr_ctl.topologies.continuity.acts import catch_up, residue
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl.topologies.continuity.view import ContinuitySeen, SiteView
from tests.topologies.continuity.views import PAIR, broker, flow, seen

LONDON = broker("london", flow("orders", to_ship=3, acks=2, unapplied=1))
UNREAD = replace(broker("paris"), service=None, flows=(), commands=None)
MOVE: Any = SimpleNamespace(source="london", target="paris")
STEP: Any = SimpleNamespace(limits={"within": 1.0}, calls=())


class World:
    """Stands for tools, observer and hand; the same two brokers at every look, on a clock that only waiting moves."""

    patience, waits = Patience(), PluginPatience()

    def __init__(self, *views: SiteView) -> None:
        self.views = views
        self.observer = self
        self.now_s = 0.0
        self.depths: list[int | None] = []
        self.sampled: list[Any] = []
        self.had: dict[str, dict[str, frozenset[str]]] = {}

    def ways(self, move: Any) -> list[Any]:
        return [self.views]

    def look(self, ways: Any) -> list[Any]:
        return [self.views]

    def at(self, site: str) -> list[Any]:
        return [SimpleNamespace(look=lambda view=view: view) for view in self.views if view.site == site]

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        return next(view.link.unapplied for view in self.views if view.site == site)

    def waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        self.depths.append(depth)

    def sample(self, told: Any) -> None:
        self.sampled.append(told)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


NOTHING = {"outflow": None, "pending": None, "attached": None}


def test_one_of_several_brokers_that_was_not_read_makes_the_figures_of_its_site_unknown() -> None:
    silent = TimedOut("http://paris: no answer")
    told = evidence([("london", LONDON.link), ("paris", UNREAD.link)])
    assert told == {"london": {"outflow": 5, "pending": 1, "attached": True}, "paris": NOTHING}
    assert evidence([("paris", LONDON.link), ("paris", UNREAD.link)])["paris"] == NOTHING
    assert evidence([("paris", LONDON.link), ("paris", silent)])["paris"] == {"unknown": "http://paris: no answer"}


@pytest.mark.parametrize(
    ("act", "text", "refused"),
    [
        (catch_up.act, "was not read: the continuity plugin has not started", True),
        (proving.settle, "which acknowledgements from london are not applied at paris was not read", False),
        (residue.act, "what paris still holds was not read: the continuity plugin has not started", True),
    ],
)
def test_a_step_that_rests_on_it_waits_and_never_ends_well(act: Any, text: str, refused: bool) -> None:
    world = World(LONDON, UNREAD)
    ended: Outcome = act(world, STEP, MOVE, world)
    assert text in ended.text
    assert isinstance(ended, Refused) or not refused
    if act is catch_up.act:
        assert ({*world.depths}, world.sampled[0]["paris"]["outflow"]) == ({None}, None)
    if act is proving.settle:
        assert {each["paris"]["pending"] for each in world.sampled} == {None}


def test_neither_its_residue_nor_its_link_is_told() -> None:
    paris = {PAIR: broker("paris", flow("orders", to_ship=4)), "orders-2": replace(UNREAD, pair="orders-2")}
    assert ContinuitySeen({"london": {}, "paris": paris}).residue("paris") == {}
    assert seen(LONDON, broker("paris", flow("orders", to_ship=4))).residue("paris")["messages"] == 4
    link = UNREAD.link.linked(None, 1.0)
    assert (link.started, link.attached, link.outflow) == (None, None, None)
