"""Acts of `residue`, `reinstate` and `reconcile`: a returned source is closed, made the replica, and compared.

The replica repeats all events of the other site since the loss. A message that only the replica still has was never
shipped: the message is set aside until this site serves again. A message that only the other site has was consumed here
before the loss, or was lost with a store that came back empty: the message stays, and a person is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from shlex import quote

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import moves
from dr_ctl.topologies.common.acts.residue import closed_first
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.effects import holds, left_of
from dr_ctl.topologies.common.findings import LEFT_OVER
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.waiting import Wait
from dr_ctl.topologies.replica import parity
from dr_ctl.topologies.replica.access import Access, Way
from dr_ctl.topologies.replica.acts.shipping import SMALL, UNDER_WAY, Events
from dr_ctl.topologies.replica.beans import EVENTS, INTERMEDIATE
from dr_ctl.topologies.replica.calls import kept_queue
from dr_ctl.topologies.replica.checks import nothing_owed
from dr_ctl.topologies.replica.drafts.reinstate import GIVES_WAY, STRIKES
from dr_ctl.topologies.replica.findings import NOT_LISTED_WHOLE, ONLY_AT_SERVING
from dr_ctl.topologies.replica.tools import ReplicaTools


def residue(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close the returned site where it is open, and count what it did not ship."""
    findings = closed_first(tools, step, move, hand)
    if isinstance(findings, Refused):
        return findings
    views = tools.views(move.target)
    known = [each for view in views if (each := view.link.residue) is not None]
    if len(known) < len(views):
        return Refused(f"what {move.target} still holds was not read")
    count = Residue.together(known).messages
    text = f"{count} event(s) that it did not ship: messages, and what was consumed"
    hand.notice(f"{move.target} still holds {text}")
    return Done(text, {"messages": count}, tuple(findings))


def act(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if nothing_owed(tools.observer.look_once(), move):
        return NotNeeded(f"{move.target} is taken in already")
    if opened := [view.site for view in tools.observer.look_at(move.target) if view.open]:
        return Refused(f"{opened[0]} is open again: it is not taken in beside an open site")
    if (refused := _gives_way(tools, step, move, hand)) is not None:
        return refused
    wait = Wait(tools, [Events(*way) for way in _ways(tools, move)], hand, UNDER_WAY, SMALL)
    limits = step.limits
    failed = wait.until(tools.rules.drain.poll, within_s=limits.get("within"), stall_s=limits["stall"])
    if failed is not None:
        return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    if (refused := tools.make(step.part(STRIKES), hand, move.source, move.target)) is not None:
        return refused
    return Done(f"{move.target} is the replica of {move.source}, and has what happened since")


def _ways(tools: ReplicaTools, move: Move) -> list[Way]:
    sites = tools.observer.brokers
    return [(here, sites[move.target][pair]) for pair, here in sites[move.source].items()]


def _gives_way(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Refused | None:
    """Make the returned site the replica, and wait until its broker says so; gives None once it does. Raises
    `BrokerError`."""
    calls = step.part(GIVES_WAY)
    tools.change([call for call in calls if not holds(call, tools.observer.look_at(move.target))], hand)
    waited = until(
        hand,
        lambda: left_of(calls, tools.observer.look_at(move.target)),
        holds=lambda left: not left,
        within_s=tools.patience.link_attach_s,
        poll_s=tools.patience.link_poll_s,
    )
    return None if waited.held else Refused(f"has not come true: {some(waited.look)}")


def reconcile(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Set aside what is explained by the loss only, and compare both sites by count."""
    del step
    findings: list[Finding] = []
    for here, there in _ways(tools, move):
        try:
            refused = _told_apart(tools, here, there, findings, hand)
        except NotWhole as error:
            remedy = f"{error.remedy} Then the same command again."
            return Refused(str(error), tools.taken_in.as_json(), (*findings, NOT_LISTED_WHOLE(str(error), remedy)))
        if refused is not None:
            return refused
    findings += _differing(tools, move)
    accepted = move.ask.accept_difference
    wrong = {name: count for name, count in tools.taken_in.duplicates.items() if accepted.get(name) != count}
    if wrong and move.ask.operation == FAILBACK:
        named = ", ".join(f"{name}={count}" for name, count in wrong.items())
        text = f"{move.source} holds messages that {move.target} lacks, and a move leaves them behind: {named}"
        return Refused(text, tools.taken_in.as_json(), tuple(findings))
    return Done(tools.taken_in.text, tools.taken_in.as_json(), tuple(findings))


def _told_apart(
    tools: ReplicaTools, here: Access, there: Access, findings: list[Finding], hand: Hand
) -> Refused | None:
    """Raises `BrokerError`."""
    names = sorted({*here.look().business, *there.look().business})
    at = partial(_lying, tools, hand)
    only_there = {name: at(there, name) - at(here, name) for name in names}
    only_here = {name: at(here, name) - at(there, name) for name in names}
    if not any(only_there.values()) and not any(only_here.values()):
        return None
    # The replica first repeats all events that the source has written by now, as they may explain the difference.
    if (refused := _until_done(tools, here, hand)) is not None:
        return refused
    for name in names:
        kept = only_there[name] & at(there, name)
        done = (only_here[name] - at(there, name)) & at(here, name)
        if (refused := _keep(tools, there, name, kept, hand)) is not None:
            return refused
        if done:
            findings.append(_only_here(tools, here, there, name, len(done)))
    return None


def _lying(tools: ReplicaTools, hand: Hand, access: Access, name: str) -> frozenset[str]:
    """All messages that lie there. Clients work on a queue of the serving site, and the replica repeats what they do: a
    listing that shows all is waited for. Raises `NotWhole` where none did in time."""
    waited = until(
        hand,
        partial(_listed, access, name),
        holds=lambda found: not isinstance(found, NotWhole),
        within_s=tools.patience.compared_s,
        poll_s=tools.patience.link_poll_s,
        meanwhile=lambda found: hand.waiting(f"a whole listing of {name} at {access.site}", None, str(found)),
    )
    if isinstance(waited.look, NotWhole):
        raise waited.look
    return waited.look


def _listed(access: Access, name: str) -> frozenset[str] | NotWhole:
    try:
        return frozenset(ids.lying(access, access.names().named.get(name)))
    except NotWhole as error:
        return error


def _until_done(tools: ReplicaTools, here: Access, hand: Hand) -> Refused | None:
    """Wait until the replica has fetched all events that are written now, queue by queue as they pass through."""
    ends_s = hand.monotonic() + tools.patience.compared_s
    for name in (INTERMEDIATE, EVENTS):
        if (was := _queue(here, name)) is None:
            continue
        waited = until(
            hand,
            partial(_queue, here, name),
            holds=partial(_passed, was),
            within_s=ends_s - hand.monotonic(),
            poll_s=tools.patience.link_poll_s,
        )
        if not waited.held:
            return Refused(f"{here.site}: its replica has not fetched what was written before")
    return None


def _passed(was: tuple[int, int], now: tuple[int, int] | None) -> bool:
    """Say whether all events have left a queue that lay in it then; a queue that is gone holds none."""
    return now is None or now[0] >= was[0] + was[1]


def _queue(access: Access, name: str) -> tuple[int, int] | None:
    """How many events have left that queue, and how many lie in it."""
    found = (each for each in access.look().events if each.name == name)
    return next(((each.removed, each.depth) for each in found), None)


def _keep(tools: ReplicaTools, access: Access, name: str, kept: frozenset[str], hand: Hand) -> Refused | None:
    if not kept:
        return None
    view = access.look()
    queue = view.named[name]
    tools.change(list(moves(view, queue, kept, kept_queue(view.site, name))), hand)
    if left := _lying(tools, hand, access, name) & kept:
        return Refused(f"{len(left)} message(s) of {name} that only {view.site} has could not be set aside there")
    tools.taken_in.kept[name] = len(kept)
    return None


def _only_here(tools: ReplicaTools, here: Access, there: Access, name: str, count: int) -> Finding:
    """The plugin's events do not tell what became of such a message at the returned site: no evidence, no removal."""
    tools.taken_in.duplicates[name] = count
    text = (
        f"{count} message(s) of {name} lie at {here.site} and not at {there.site}, which is its replica: {there.site} "
        "had consumed them before the loss, or came back without its store"
    )
    remedy = (
        f"They come to clients at {here.site}; those that were consumed at {there.site} come twice. A move to "
        f"{there.site} leaves them behind with --accept-difference {quote(f'{name}={count}')}."
    )
    return ONLY_AT_SERVING(text, remedy)


def _differing(tools: ReplicaTools, move: Move) -> Iterator[Finding]:
    seen = tools.observer.observe()
    for pair in seen.sites[move.source]:
        here, there = seen.view(move.source, pair), seen.view(move.target, pair)
        if here is None or there is None:
            continue
        if wrong := parity.unexplained(here, there, tools.observer.queues, seen.moved.get(pair, {})):
            text = f"the sites differ: {some([each.told(move.source, move.target) for each in wrong])}"
            yield LEFT_OVER(text, "Compare these queues before moving back.")
