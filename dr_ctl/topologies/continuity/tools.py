"""The tools of acts at a pair of the continuity plugin: waits, the gate, and the memory of a return."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller

from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity, brief, total
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import Counts, not_accepted, selected
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.view import PeerState
from dr_ctl.topologies.common.waiting import Barrier, Direction
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.copies import Compared
from dr_ctl.topologies.continuity.reading import LinkEnds, Observer
from dr_ctl.topologies.continuity.view import WAITS_MS, SiteView


@dataclass(frozen=True, slots=True)
class PluginTimeouts:
    window_s: float = 2.2
    """The gate must hold for so long: bridges confirm up to two seconds late, and a zero in between may be none."""
    poll_s: float = 0.05
    """The flows are read again after so long."""
    read_timeout_s: float = 1.0
    """The first reading behind the fence may take so long: a reading that hangs is time without service."""
    left_over_s: float = 2.5
    """Nothing explains a difference that lasts so long after a return, which is longer than bridges confirm late."""
    taken_in_poll_s: float = 0.1
    """The flows are read again after so long while a lost site is taken in."""
    stuck_s: float = 1.5
    """The queue refused a staged message that does not move for so long: the message lies there already."""
    refused_s: float = 10.0
    """The queue had a message before that it does not take for so long, while it takes messages of others. Bridges
    confirm late, and a hesitating broker must not be taken for one that refuses."""
    watch_s: float = 3.0
    """No command may be under way for so long: bridges confirm sooner, and most try again sooner."""
    watch_intervals: int = 3
    """No command may be under way for so many intervals of the bridges either."""
    watch_poll_s: float = 0.2
    """Commands are read again after so long."""
    watch_at_most_s: float = 35.0
    """Commands that are still under way are left alone then; a bridge whose connection was dropped times out first."""


class ContinuityGate(Gate[SiteView]):
    observer: Observer

    def __init__(self, observer: Observer, poll_s: float) -> None:
        super().__init__(observer, poll_s, observer.timeouts.of(PluginTimeouts).window_s)

    def differing(self, now: PairReading[SiteView], move: Move) -> list[str]:
        target, queues = now.target, selected(now.source, self.observer.queues)
        several = (
            Counts(name, q.depth, target.depth_of(name), (q, target.by_name.get(name))) for name, q in queues.items()
        )
        return [counts.text(move.source, move.target) for counts in not_accepted(several, move)]

    def compare(self, now: PairReading[SiteView], move: Move) -> Outcome:
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
    """Compare every flow of a pair by id, name the queues that could not be, and refuse a move by what no removal
    fixes. Nobody has done messages that the source never delivered, so their copies must stay. Messages that the target
    lacks would be lost. Copies that nothing proves to be consumed may be the last of their messages. A person can
    accept an exact number of the latter two. Raises `BrokerError`."""
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
    """Counts the messages and acknowledgements under way between the two brokers of a pair, in either direction."""

    def remaining(self, view: SiteView, peer: SiteView) -> int | None:
        return total(count for both in (view, peer) for count in (both.link.to_ship, both.link.unapplied))


class AcksApplied(Direction[SiteView]):
    """Waits until the returned site has applied all that the serving site's consumers had acknowledged at the first
    reading, and until `least_s` have passed, because bridges confirm late."""

    def __init__(self, ends: LinkEnds, context: StepContext, least_s: float = 0.0) -> None:
        super().__init__(*ends)
        self._context, self._ends_s = context, context.monotonic() + least_s
        self._barriers = defaultdict[str, Barrier](Barrier)

    def remaining(self, view: SiteView, peer: SiteView) -> int | None:
        flows = [(flow, peer.flow(flow.queue)) for flow in view.flows]
        return total(
            self._barriers[flow.queue].remaining(view, [flow.out_acks], peer, [other.in_acks])
            if other is not None
            else None
            for flow, other in flows
        )

    def reasons(self, view: SiteView, _peer: SiteView) -> list[str]:
        late = self._context.monotonic() < self._ends_s
        return [f"bridges of {view.site} may confirm late"] if late else []


class ContinuityTools(Tools[SiteView]):
    """`recovered`, `removed` and `unproven` hold ids by queue; `recovered` is None until a return of this command has
    compared them. `already_delivered` holds by pair and queue the staged ids that the serving site's queue refused,
    because it had them before."""

    observer: Observer
    by_console = "activateSite of the continuity plugin, which starts its client acceptors"
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
        return sum(len(ids) for ids in self.recovered.values()) if self.recovered is not None else None

    def read(self, link_ends: Sequence[LinkEnds]) -> list[tuple[SiteView, SiteView]]:
        views = self.observer.ask_all(methodcaller("read"), [session for ends in link_ends for session in ends])
        return list(zip(views[::2], views[1::2], strict=True))
