"""The tools of the handlers for the continuity plugin: waits, the gate, and the results of a reinstatement."""

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
from dr_ctl.topologies.continuity.copies import Comparison
from dr_ctl.topologies.continuity.reading import LinkEnds, Observer
from dr_ctl.topologies.continuity.view import WAITS_MS, SiteView


@dataclass(frozen=True, slots=True)
class PluginTimeouts:
    window_s: float = 2.2
    """The gate's window: bridges confirm up to two seconds late, so a single zero proves nothing."""
    poll_s: float = 0.05
    """The time between readings of the flows."""
    read_timeout_s: float = 1.0
    """The time limit for the first reading behind the fence: a reading that hangs prolongs the outage."""
    left_over_s: float = 2.5
    """A difference that lasts this long after a reinstatement is real: bridges confirm sooner."""
    reinstate_poll_s: float = 0.1
    """The time between readings of the flows in a reinstatement."""
    stuck_s: float = 1.5
    """A staged message that stays this long was refused by its queue, which has it already."""
    refused_s: float = 10.0
    """A message that a queue does not accept for this long, while it accepts others, was in the queue before. Bridges
    confirm late, and a slow broker must not count as one that refuses."""
    watch_s: float = 3.0
    """No command may be under way for this time: bridges confirm sooner, and most retry sooner."""
    watch_intervals: int = 3
    """No command may be under way for this number of the bridges' intervals either."""
    watch_poll_s: float = 0.2
    """The time between readings of the commands."""
    watch_at_most_s: float = 35.0
    """The longest watch of commands; a bridge whose connection was dropped times out before."""


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
        compared, unread, failed = compare(self.observer, source, target, move)
        if failed is not None:
            return failed
        if unaccepted := [queue for queue in unread if queue not in move.spec.accept_difference]:
            return Failed.of(found("DR-CONT-014.not_named", queues=brief(unaccepted)))
        extra = {row.queue: extra_ids for row in compared if (extra_ids := row.surplus | row.consumed)}
        if extra:
            place = f"too many at {move.target}"
            counts = [f"{queue}: {len(messages)} {place}" for queue, messages in extra.items()]
            differing = {queue: {place: messages} for queue, messages in extra.items()}
            return refused("DR-PARITY-004.differ", differing, queues=brief(counts))
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
) -> tuple[list[Comparison], list[str], Failed | None]:
    """Compare each flow of a pair by id, name the queues that were not compared, and refuse a move for differences that
    no removal fixes: messages that the source never delivered, so their copies must stay; messages that the target
    lacks, which would be lost; and copies without evidence, of which each may be the last of its message. A person can
    accept an exact number of the latter two. Raises `BrokerError`."""
    if one_sided := copies.one_sided_queues(source, target):
        finding = found("DR-CONT-005.one_sided", source=source.site, target=target.site, queues=brief(one_sided))
        return [], [], Failed.of(finding)
    local, peer = (observer.brokers[view.site][view.pair].reader() for view in (source, target))
    compared, unread = copies.compare(local, peer, source, target, already_delivered)
    accepted = move.spec.accept_difference

    def ids_by_queue(ids: Callable[[Comparison], frozenset[str]]) -> dict[str, list[str]]:
        return {
            comparison.queue: sorted(ids(comparison))
            for comparison in compared
            if len(ids(comparison)) not in (0, accepted.get(comparison.queue))
        }

    failed = None
    if undelivered := {
        comparison.queue: sorted(comparison.undelivered) for comparison in compared if comparison.undelivered
    }:
        finding = found("DR-CONT-017.undelivered", source=move.source, messages=copies.ids_text(undelivered))
        failed = Failed.of(finding, evidence={"undelivered": document(undelivered)})
    elif missing := ids_by_queue(lambda comparison: comparison.missing):
        finding = found("DR-CONT-013", source=move.source, target=move.target, messages=copies.ids_text(missing))
        failed = Failed.of(finding, evidence={"missing": document(missing)})
    elif unproven := ids_by_queue(lambda comparison: comparison.unproven):
        options, copied = accepting({name: len(ids) for name, ids in unproven.items()}), copies.ids_text(unproven)
        finding = found("DR-CONT-019.unproven", source=move.source, target=move.target, options=options, copies=copied)
        failed = Failed.of(finding, evidence={"unproven": document(unproven)})
    return compared, unread, failed


class BothDirections(Direction[SiteView]):
    """Counts the messages and acknowledgements under way between the two brokers of a pair, in either direction."""

    def remaining(self, view: SiteView, peer: SiteView) -> int | None:
        return total(count for both in (view, peer) for count in (both.link.to_ship, both.link.unapplied))


class AcksApplied(Direction[SiteView]):
    """Waits until the returned site has applied the acknowledgements that the serving site had at the first reading,
    and for at least `least_s`, because bridges confirm late."""

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
    """`recovered`, `removed` and `unproven` are ids by queue; `recovered` is None until a reinstatement has compared
    them. `already_delivered` has by pair and queue the staged ids that the serving site's queue refused, because it had
    them before."""

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
    def recovered_count(self) -> int | None:
        return sum(len(ids) for ids in self.recovered.values()) if self.recovered is not None else None

    def read(self, link_ends: Sequence[LinkEnds]) -> list[tuple[SiteView, SiteView]]:
        views = self.observer.ask_all(methodcaller("read"), [session for ends in link_ends for session in ends])
        return list(zip(views[::2], views[1::2], strict=True))
