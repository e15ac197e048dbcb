"""The tools of acts at a pair of the continuity plugin, and their memory while a lost site is taken in."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.access import READ_S
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.continuity.access import Observer, Way
from dr_ctl.topologies.continuity.fence import WAITS_MS
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl.topologies.continuity.verifier import ContinuityVerifier
from dr_ctl.topologies.continuity.view import SiteView

Both = tuple[SiteView, SiteView]


@dataclass
class Applied:
    """Whether all that the serving site's consumers had acknowledged at the first look is applied at the returned one.

    By counters: under load neither queue is ever seen empty. First what was to be shipped then, after that what had
    arrived when it was."""

    _shipped: dict[str, int] = field(default_factory=dict)
    _arrived: dict[str, int] = field(default_factory=dict)

    def why_not(self, both: Both) -> list[str]:
        here, there = both
        found = []
        for flow in here.flows:
            other = there.flow(flow.queue)
            to = self._shipped.setdefault(flow.queue, flow.acks_bridge.acked + flow.out_acks.depth)
            if other is None or flow.acks_bridge.acked < to:
                found.append(f"{flow.out_acks.name} of {here.site} is not shipped")
            elif other.in_acks.acked < self._arrived.setdefault(flow.queue, other.in_acks.added):
                found.append(f"{other.in_acks.name} of {there.site} is not applied")
        return found


class ContinuityTools(Tools[SiteView]):
    """`recovered`, `removed` and `unproven` are ids by queue; `compares` is True once a return of this command has
    compared them. `had` are staged ids by pair and queue that the serving site's queue refused, because it had them
    before."""

    observer: Observer
    opening_s = WAITS_MS[Peer.CLOSED] / 1000

    def __init__(self, observer: Observer, recipe: Recipe[SiteView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, ContinuityVerifier(observer, recipe.rules.drain.poll))
        self.waits = self.patience.of(PluginPatience)
        self.recovered: dict[str, set[str]] = {}
        self.removed: dict[str, set[str]] = {}
        self.unproven: dict[str, frozenset[str]] = {}
        self.compares = False
        self.had: dict[str, dict[str, frozenset[str]]] = {}

    @property
    def number(self) -> int | None:
        """The number of recovered messages; returns None where no `reinstate` of this command has compared them."""
        return sum(len(ids) for ids in self.recovered.values()) if self.compares else None

    def taken_back(self, move: Move) -> set[str]:
        """An activation that a command which was under way has taken back before it was shown to hold."""
        return {view.pair for view in self.observer.look_once().views(move.target) if not view.open}

    def ways(self, move: Move) -> list[Way]:
        there = self.observer.brokers[move.target]
        return [(here, there[pair]) for pair, here in self.observer.brokers[move.source].items()]

    def look(self, ways: Sequence[Way], *, timeout_s: float = READ_S) -> list[Both]:
        both = [access for way in ways for access in way]
        seen = self.observer.together(lambda access: access.look(timeout_s=timeout_s), both)
        return list(zip(seen[::2], seen[1::2], strict=True))
