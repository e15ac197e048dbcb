"""The gate of queues that diverts and bridges copy, and the tools of acts at such brokers."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, brief
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.topologies.bridges.duplicates import copies_done, lacking, missing, not_compared
from dr_ctl.topologies.bridges.reading import Observer
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.calls import still
from dr_ctl.topologies.common.gate import Gate, PairReading, counters_changed
from dr_ctl.topologies.common.idstore import NotRead
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.tools import ROLES, Sender, Tools
from dr_ctl.topologies.common.view import Residue, count_text
from dr_ctl.topologies.common.waiting import Barrier


def ids_left(barrier: Barrier, view: BrokerView, peer: BrokerView) -> int | None:
    """How many of the ids that the barrier is for are not applied at the peer, or None if not known. The buffer of the
    ids never empties while other queues work; ids go one way, in their order."""
    buffer = view.ids.buffer if view.ids is not None else None
    return barrier.left(view, [buffer], peer, peer.arrived) if buffer is not None and peer.arrived else None


class BridgesGate(Gate[BrokerView]):
    """The gate of one command. `barriers` say by site and pair whether the ids from before the gate that leave it are
    applied: begun by the drain, so that the gate need not wait for those of other queues anew."""

    observer: Observer

    def __init__(self, observer: Observer, poll_s: float) -> None:
        super().__init__(observer, poll_s)
        self.barriers = defaultdict[tuple[str, str], Barrier](Barrier)

    def blockers(self, now: PairReading[BrokerView], before: PairReading[BrokerView] | None, move: Move) -> list[str]:
        local, peer = now.source, now.target
        reasons = [*_closed(local, move), *_closed(peer, move), *_shipped(local, move)]
        left = ids_left(self.barriers[local.site, local.pair], local, peer)
        if left != 0:
            reasons.append(f"{peer.site}: {count_text(left)} id(s) not applied yet")
        if before is not None:
            for was, view in ((before.source, local), (before.target, peer)):
                reasons += counters_changed(was, view, move.moves)
                units = view.among(move.moves) if was.start == view.start else ()
                unrouted = (unit for unit in units if view.unrouted.get(unit) != was.unrouted.get(unit))
                reasons += (f"{view.site}: messages for {unit} find no queue there" for unit in unrouted)
        return reasons

    def differing(self, _now: PairReading[BrokerView], _move: Move) -> list[str]:
        """Counts say nothing: a copy keeps processed messages, and so does a served queue until its clients have passed
        over them. A sent message that is not at the other site lies in a buffer, or found no queue there."""
        return []

    def same(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        """Look for each message that is left in its copy: a buffer that is empty does not say that all of it arrived. A
        bridge that its peer refuses may count what it had in hand as shipped."""
        view, peer = now.source, now.target
        ends = self.observer.brokers[view.site][view.pair], self.observer.brokers[peer.site][peer.pair]
        depths: dict[str, Json] = {}
        unread: list[str] = []
        compared = 0
        # Those included that only this site has.
        lying = (queue for unit in view.among(move.moves) for queue in view.queues_of(unit) if queue.depth)
        for queue in lying:
            depths[queue.name] = queue.depth
            copy = next((other for other in peer.queues_of(queue.address) if other.name == queue.name), None)
            origins = [origin for both in (view, peer) if (origin := both.origin_of(queue.address)) is not None]
            lacks = queue.depth if copy is None else None
            if copy is not None and len(origins) == len(ends):
                lacks = missing(ends, queue, copy, origins, timeout_s=self.timeouts.flag_s)
            flow = view.flow(queue.address)
            not_due = flow.not_due if flow is not None else 0
            unread += [queue.name] if lacks is None or queue.scheduled > not_due else []
            compared += queue.depth - queue.scheduled if lacks is not None else 0
            accepted = move.spec.accept_difference.get(queue.name, 0)
            # Fewer are delayed with each moment, so that nobody can name their number beforehand.
            lacks = (lacks or 0) + (not_due if lacks or not_due > accepted else 0)
            if lacks and lacks != accepted:
                return Failed.of(
                    found(
                        "DR-PARITY-004.one_queue", site=view.site, other_site=peer.site, count=lacks, queue=queue.name
                    )
                )
        findings, duplicates = list[Finding](), list[Finding]()
        try:
            # The ids of before the gate are applied, so that one which the target's store lacks does not come any more.
            ids = lacking(ends, peer, move.moves) or {}
            duplicates += copies_done(ends, peer, ids, move.spec, timeout_s=self.timeouts.flag_s)
        except NotRead as error:
            findings.append(not_compared(error))
        if duplicates:
            return Failed(duplicates[0].text, findings=tuple(duplicates))
        if unread:
            findings.append(found("DR-BRIDGE-016", unread=brief(unread)))
        figures: dict[str, Json] = {"ids_compared": compared, "depths": depths, "not_compared": [*unread]}
        return Done("the gate holds", figures, tuple(findings))


def _closed(view: BrokerView, move: Move) -> Iterator[str]:
    for unit in view.among(move.moves):
        if view.units[unit]:
            yield f"{view.site} lets clients of {unit} in"
        for queue in view.queues_of(unit):
            if not queue.counted:
                yield f"{view.site}: what lies in {queue.name} cannot be told"
            elif queue.delivering:
                yield f"{view.site} has {queue.delivering} message(s) of {queue.name} in delivery"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def _shipped(view: BrokerView, move: Move) -> Iterator[str]:
    for flow in view.flows:
        if not move.moves(flow.unit):
            continue
        if not flow.attached:
            yield f"{view.site}: the bridge of {flow.unit} is not connected"
        if (left := flow.to_ship_now(move.spec.accept_difference)) != 0:
            yield f"{view.site}: {count_text(left)} to ship of {flow.unit}"
    for queue in (queue for unit in view.among(move.moves) for queue in view.queues_of(unit) if queue.consumers):
        who = next((consumer.who for consumer in view.consumers if consumer.queue == queue.name), "somebody")
        yield f"{view.site} has a consumer of {queue.name}: {who}"


class BridgesTools(Tools[BrokerView]):
    """`residue` is what each pair's returned broker held when it was counted."""

    observer: Observer
    gate: BridgesGate

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, BridgesGate(observer, recipe.rules.drain.poll))
        self.residue: dict[str, Residue] = {}

    def open_at(self, view: BrokerView, move: Move) -> Sequence[str]:
        return view.open_among(move.moves)

    def open_again(self, site: str, calls: Sequence[Call], context: StepContext, _within_s: float = 0.0) -> str | None:
        """Rights come last here: until then each unit is closed, whatever its queues deliver."""
        queues = [call for call in calls if call.goal is Goal.OPEN]
        self.change(queues, context)
        if (why := self.admit(site, [call for call in calls if call.goal in ROLES], context)) is not None:
            return why
        left = still(queues, self.observer.read_at(site))
        return left.text if left is not None else None
