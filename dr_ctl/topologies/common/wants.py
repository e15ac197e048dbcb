"""A want is a function named for a state that a step wants of a broker, such as `link_admitted`; it returns the calls
that are missing to that state by a reading. A plan has the calls that its snapshot shows to be missing, and conditional
calls (`when`), which a later reading may need. A run sends the calls that its own reading shows to be missing,
whichever node of a broker is active by then. An undo wants the state from before the run. `Wants` pair each want with
the site where it applies. To draft a step is to plan its summary, calls and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from dr_ctl.core.model import Role
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.engine.ports import Move, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import clear_debt, debt_name, record_debt, resume, switch_listener
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot, before, reopened
from dr_ctl.topologies.common.view import PeerState

SiteOf = Callable[[Move], str]
SOURCE: Final[SiteOf] = attrgetter("source")
TARGET: Final[SiteOf] = attrgetter("target")
_OPPOSITES: Final = (
    (Goal.OPEN, Goal.CLOSE), (Goal.PAUSE, Goal.RESUME), (Goal.CREATE, Goal.DELETE), (Goal.LINK_UP, Goal.LINK_DOWN),
    (Goal.GRANT, Goal.REVOKE),
)  # fmt: skip
_OPPOSITE: Final = {**dict(_OPPOSITES), **{goal: opposite for opposite, goal in _OPPOSITES}}


@dataclass(frozen=True, slots=True)
class AtBroker:
    """A step at one broker: its present `view`, the state in which it `was` before the run, and its earlier `calls`."""

    rules: Rules
    move: Move
    view: Any
    was: Mapping[str, Any]
    calls: Sequence[Call] = ()

    @classmethod
    def of(cls, rules: Rules, move: Move, view: Any, calls: Sequence[Call] = ()) -> AtBroker:
        own_calls = [call for call in calls if (call.site, call.unit) == (view.site, view.pair)]
        return cls(rules, move, view, before(move, view), own_calls)

    @property
    def other_site(self) -> str:
        return self.move.target if self.view.site == self.move.source else self.move.source

    def changed_by_step(self, *goals: Goal) -> set[str]:
        """Return the listeners, queues or roles that earlier calls of this step change to one of these goals. An undo
        is planned from the step's calls, before a reading shows their effect."""
        return {call.resource for call in self.calls if call.goal in goals}

    def needed(self, wanted: Iterable[Call]) -> list[Call]:
        """Return the calls whose effect is not seen, or is reversed by an earlier call of this step."""
        made = {(call.goal, call.resource) for call in self.calls}
        return [
            call for call in wanted if (_OPPOSITE.get(call.goal), call.resource) in made or not self.view.holds(call)
        ]


Want = Callable[[AtBroker], Iterable[Call]]
Wants = Sequence[tuple[Want, SiteOf]]
Limits = Callable[[Rules, RunbookStep, Move], Mapping[str, float]]


def planned(rules: Rules, snapshot: Snapshot[Any], move: Move, wants: Wants) -> tuple[Call, ...]:
    """Return the calls that lead to these states, in this order, with the conditional calls."""
    calls: list[Call] = []
    for want, site in wants:
        for view in snapshot.views(site(move)):
            calls += want(AtBroker.of(rules, move, view, calls))
    return tuple(calls)


def draft_of(
    site: SiteOf, summary: str, *wants: tuple[Want, SiteOf], limits: Limits | None = None
) -> Callable[[Rules, RunbookStep, Snapshot[Any], Move], StepPlan]:
    """Draft a step that wants these states. `summary` may hold `{source}`, `{target}`, and `{serving_prefix}`: "still
    serving: " while the source serves its clients, else nothing."""

    def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
        serving = "still serving: " if snapshot.roles[move.source] is Role.SERVING else ""
        return StepPlan(
            site(move),
            summary.format(source=move.source, target=move.target, serving_prefix=serving),
            planned(rules, snapshot, move, wants),
            limits=limits(rules, step, move) if limits is not None else None,
        )

    return draft


def clients_as_before(at: AtBroker) -> Iterator[Call]:
    """Want the clients' listeners, and the rights of their roles, as before."""
    was, fence, changed_names = at.was["listeners"], at.view.fence, at.changed_by_step(Goal.OPEN, Goal.CLOSE)
    changed = [
        listener
        for listener in at.view.listeners
        if listener.started is not bool(was.get(listener.name)) or changed_names & {listener.name, ALL}
    ]
    if to_close := [listener for listener in changed if not was.get(listener.name)]:
        yield from fence.closing(to_close, "it is open")
    if at.was["shut_out"] and (at.changed_by_step(Goal.GRANT) or not fence.roles_revoked):
        yield from fence.revoking("they are let in")
    if not at.was["shut_out"] and (at.changed_by_step(Goal.REVOKE) or fence.roles_revoked):
        yield from fence.granting("they are kept out")
    if to_open := [listener for listener in changed if was.get(listener.name)]:
        yield from fence.opening(to_open, PeerState.NOT_DRAINED, "it is closed")


def listeners_open_as_before(at: AtBroker) -> Iterator[Call]:
    was = at.was["listeners"]
    if closed := [listener for listener in at.view.listeners if was.get(listener.name) and not listener.started]:
        yield from at.view.fence.opening(closed, PeerState.NOT_DRAINED)


def link_access_as_before(at: AtBroker) -> list[Call]:
    was, goal = at.was["mirror"], Goal.REVOKE if at.was.get("barred") else Goal.GRANT
    opens, closes = (Goal.OPEN, "it is closed"), (Goal.CLOSE, "it is open")
    switches = [(listener, opens if was.get(listener.name) else closes) for listener in at.view.link.listeners]
    calls = (switch_listener(at.view, switch, listener, when) for listener, (switch, when) in switches)
    return at.needed([*at.view.link.rights_calls(goal), *calls])


def links_as_before(at: AtBroker) -> Iterator[Call]:
    starts = (call for call in at.calls if call.goal is Goal.LINK_UP and at.was["link"].get(call.resource))
    return (replace(call, when="it is stopped", at_most=1) for call in starts)


def pauses_as_before(at: AtBroker) -> list[Call]:
    return delivery_resumed(at, "it is paused")


def debts_as_before(at: AtBroker) -> list[Call]:
    lost_site, was = at.other_site, at.was["debts"]
    return at.needed(
        record_debt(at.view, kind, lost_site, "it is not recorded there")
        if debt_name(kind, lost_site, at.view.site) in was
        else clear_debt(at.view, kind, lost_site, "it is recorded there")
        for kind in DebtKind
    )


def debt_recorded(kind: DebtKind) -> Want:
    """Want a debt of the source recorded at the other site's brokers. The debt is lasting if the link's closed
    listeners stay closed when the broker is restarted."""

    def recorded(at: AtBroker) -> list[Call]:
        listeners, lost_site = at.view.link.listeners, at.move.source
        lasting = bool(listeners) and not any(listener.opens_at_boot for listener in listeners)
        is_recorded = debt_name(kind, lost_site, at.view.site) in at.view.documents
        return [] if is_recorded else [record_debt(at.view, kind, lost_site, lasting=lasting)]

    return recorded


def debts_cleared(*kinds: DebtKind) -> Want:
    return lambda at: at.needed(clear_debt(at.view, kind, at.other_site) for kind in kinds)


DEBTS_CLEARED: Final[Wants] = tuple((debts_cleared(*DebtKind), site) for site in (SOURCE, TARGET))


def link_admitted(at: AtBroker) -> list[Call]:
    link = at.view.link
    opens = [switch_listener(at.view, Goal.OPEN, listener) for listener in link.listeners if not listener.started]
    return [*(link.rights_calls(Goal.GRANT) if link.rights_revoked else ()), *opens]


LINKS_ADMITTED: Final[Wants] = ((link_admitted, SOURCE), (link_admitted, TARGET))


def delivery_resumed(at: AtBroker, when: str | None = None) -> list[Call]:
    was = {*at.was["paused"]}
    return at.needed(resume(at.view, queue, when) for name, queue in at.view.business.items() if name not in was)


def clients_kept_out(at: AtBroker) -> list[Call]:
    opened = (listener for listener in at.view.listeners if listener.started)
    return [*at.view.fence.closing(opened), *at.view.fence.revoking()]


def shut_behind_fence(at: AtBroker) -> list[Call]:
    """Want a target closed whose listeners have opened behind its lasting fence."""
    opened = [listener for listener in at.view.listeners if listener.started and reopened(at.move, at.view)]
    return [*at.view.fence.closing(opened)] if opened else []


RETURNED_SHUT: Final[Wants] = ((clients_kept_out, TARGET),)
RETURN_AS_BEFORE: Final = (link_access_as_before, pauses_as_before, debts_as_before)
