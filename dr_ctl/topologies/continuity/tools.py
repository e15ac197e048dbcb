"""The tools of acts at a pair of the continuity plugin: its waits, its gate, and what they remember of a return."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity, brief, total
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.jolokia.client import READ_S
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import selected
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.view import PeerState
from dr_ctl.topologies.common.waiting import Barrier, Direction
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.copies import Compared
from dr_ctl.topologies.continuity.reading import LinkEnds, Observer
from dr_ctl.topologies.continuity.view import WAITS_MS, SiteView

Both = tuple[SiteView, SiteView]


@dataclass(frozen=True, slots=True)
class PluginTimeouts:
    """Waits in seconds."""

    window_s: float = 2.2
    """How long the gate must hold at least: bridges confirm up to two seconds late; a zero in between is not one."""
    poll_s: float = 0.05
    """Between readings of its flows."""
    read_timeout_s: float = 1.0
    """For the first such reading behind the fence, where one that hangs is time without service."""
    left_over_s: float = 2.5
    """How long sites differ after a return until nothing explains it: longer than bridges confirm late."""
    taken_in_poll_s: float = 0.1
    """Between readings of them while a lost site is taken in."""
    stuck_s: float = 1.5
    """What is staged for delivery and does not move for so long was refused by its queue: it lies there already."""
    refused_s: float = 10.0
    """What a queue does not take for so long that takes what others send meanwhile it had before: bridges confirm late,
    and one whose broker hesitates must not be taken for refused."""
    watch_s: float = 3.0
    """How long no command may be under way: longer than bridges confirm late, and than most wait for their next try."""
    watch_intervals: int = 3
    """The same in waits between two tries of the bridges, where these are longer."""
    watch_poll_s: float = 0.2
    """Between readings of commands that are under way."""
    watch_at_most_s: float = 35.0
    """Until commands that are still under way are left alone; a bridge whose connection was dropped times out first."""


class ContinuityGate(Gate[SiteView]):
    observer: Observer

    def __init__(self, observer: Observer, poll_s: float) -> None:
        super().__init__(observer, poll_s, observer.timeouts.of(PluginTimeouts).window_s)

    def differing(self, now: PairReading[SiteView], move: Move) -> list[str]:
        source, target = now.source, now.target
        accepted = move.spec.accept_difference
        differences = []
        for name, queue in selected(source, self.observer.queues).items():
            depth = target.depth_of(name)
            if queue.depth != depth and accepted.get(name) != abs(queue.depth - depth):
                differences.append(f"{name}: {queue.depth} at {move.source}, {depth} at {move.target}")
        return differences

    def same(self, now: PairReading[SiteView], move: Move) -> Outcome:
        source, target = now.source, now.target
        compared, unread, wrong = compare(self.observer, source, target, move)
        if wrong is not None:
            return wrong
        if not_named := [queue for queue in unread if queue not in move.spec.accept_difference]:
            return Failed.of(found("DR-CONT-014.not_named", queues=brief(not_named)))
        where = f"too many at {move.target}"
        if more := {
            comparison.queue: {where: gone}
            for comparison in compared
            if (gone := comparison.surplus | comparison.consumed)
        }:
            counts = [f"{queue}: {len(ids[where])} {where}" for queue, ids in more.items()]
            return refused("DR-PARITY-004.differ", more, queues=brief(counts))
        depths: dict[str, Json] = {name: queue.depth for name, queue in source.business.items() if queue.depth}
        ids, findings = sum(len(comparison.local) for comparison in compared), list[Finding]()
        if unread:
            by_count, severity = "DR-CONT-014.by_count", Severity.WARNING
            findings.append(found(by_count, severity=severity, compared=copies.IDS_UP_TO, queues=brief(unread)))
        return Done("the gate holds", {"ids_compared": ids, "depths": depths}, tuple(findings))


def compare(
    observer: Observer,
    source: SiteView,
    target: SiteView,
    move: Move,
    already_delivered: Mapping[str, frozenset[str]] = copies.NONE,
) -> tuple[list[Compared], list[str], Failed | None]:
    """Compare every flow of a pair by id, name the queues that could not be, and say what speaks against a move
    whatever is removed: messages that the source never delivered, as nobody can have done them and their copies must
    stay; messages that would be lost; and copies that may be the last of their messages. Of the latter two exactly as
    many can be accepted. Raises `BrokerError`."""
    if lacking := copies.one_sided(source, target):
        one_sided = found("DR-CONT-005.one_sided", source=source.site, target=target.site, queues=brief(lacking))
        return [], [], Failed.of(one_sided)
    local, peer = (observer.brokers[view.site][view.pair].reader() for view in (source, target))
    compared, unread = copies.compare(local, peer, source, target, already_delivered)
    accepted = move.spec.accept_difference

    def apart(ids: Callable[[Compared], frozenset[str]]) -> dict[str, list[str]]:
        return {
            comparison.queue: sorted(ids(comparison))
            for comparison in compared
            if len(ids(comparison)) not in (0, accepted.get(comparison.queue))
        }

    wrong = None
    if waiting := {
        comparison.queue: sorted(comparison.undelivered) for comparison in compared if comparison.undelivered
    }:
        finding = found("DR-CONT-017.undelivered", source=move.source, messages=copies.named(waiting))
        wrong = Failed.of(finding, evidence={"undelivered": document(waiting)})
    elif missing := apart(lambda comparison: comparison.missing):
        finding = found("DR-CONT-013", source=move.source, target=move.target, messages=copies.named(missing))
        wrong = Failed.of(finding, evidence={"missing": document(missing)})
    elif unproven := apart(lambda comparison: comparison.unproven):
        options, copied = accepting({name: len(ids) for name, ids in unproven.items()}), copies.named(unproven)
        finding = found("DR-CONT-019.unproven", source=move.source, target=move.target, options=options, copies=copied)
        wrong = Failed.of(finding, evidence={"unproven": document(unproven)})
    return compared, unread, wrong


class BothWays(Direction[SiteView]):
    """What is under way between the two brokers of a pair, in either direction."""

    def left(self, view: SiteView, peer: SiteView) -> int | None:
        return total(count for both in (view, peer) for count in (both.link.to_ship, both.link.unapplied))


class AcksApplied(Direction[SiteView]):
    """All that the serving site's consumers had acknowledged at the first reading is applied at the returned one, and
    `least_s` have passed: bridges confirm late."""

    def __init__(self, ends: LinkEnds, context: StepContext, least_s: float = 0.0) -> None:
        super().__init__(*ends)
        self._context, self._ends_s = context, context.monotonic() + least_s
        self._barriers = defaultdict[str, Barrier](Barrier)

    def left(self, view: SiteView, peer: SiteView) -> int | None:
        flows = [(flow, peer.flow(flow.queue)) for flow in view.flows]
        return total(
            self._barriers[flow.queue].left(view, [flow.out_acks], peer, [other.in_acks]) if other is not None else None
            for flow, other in flows
        )

    def why(self, view: SiteView, _peer: SiteView) -> list[str]:
        late = self._context.monotonic() < self._ends_s
        return [f"bridges of {view.site} may confirm late"] if late else []


class ContinuityTools(Tools[SiteView]):
    """`recovered`, `removed` and `unproven` are ids by queue; what was recovered is None until a return of this command
    has compared it. `already_delivered` are staged ids by pair and queue that the serving site's queue refused, because
    it had them before."""

    observer: Observer
    opening_s = WAITS_MS[PeerState.CLOSED] / 1000
    not_redelivered = ", but for one of each subscription, which the plugin may delete at both sites"

    def __init__(self, observer: Observer, recipe: Recipe[SiteView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, ContinuityGate(observer, recipe.rules.drain.poll))
        self.waits = self.timeouts.of(PluginTimeouts)
        self.recovered: dict[str, set[str]] | None = None
        self.removed: dict[str, set[str]] = {}
        self.unproven: dict[str, frozenset[str]] = {}
        self.already_delivered: dict[str, dict[str, frozenset[str]]] = {}

    @property
    def number(self) -> int | None:
        """The number of recovered messages, or None where that is not known."""
        return sum(len(ids) for ids in self.recovered.values()) if self.recovered is not None else None

    def read(self, link_ends: Sequence[LinkEnds], *, timeout_s: float = READ_S) -> list[Both]:
        both = [session for ends in link_ends for session in ends]
        snapshot = self.observer.ask_all(lambda session: session.read(timeout_s=timeout_s), both)
        return list(zip(snapshot[::2], snapshot[1::2], strict=True))
