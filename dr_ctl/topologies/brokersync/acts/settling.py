"""Acts of what a person decides of copies that nothing proves. They are moved within the broker, and none is lost."""

from collections.abc import Collection, Iterable

from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.brokersync.drafts.settling import kept, named
from dr_ctl.topologies.brokersync.findings import CANNOT_BE_PUT_BACK, COPIES_UNPROVEN
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.unproven import unproven
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import aside, moves
from dr_ctl.topologies.common.consumed import Consumed, NotWhole, Word
from dr_ctl.topologies.common.view import Queue


def keep_aside(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Keep aside what nothing proves, by a person's word on these ids. Raises `BrokerError`."""
    del step
    sites = tools.observer.brokers
    moved: dict[str, Json] = {}
    for pair, waiting in sites[move.source].items():
        serving = sites[move.target][pair]
        views = serving.look(), waiting.look()
        for name, queue in views[1].business.items():
            if not (named(move, name) and queue.depth and name in views[0].copying):
                continue
            try:
                found = unproven((serving, waiting), views, name)
            except NotWhole as error:
                return Refused(f"which copies of {name} nothing proves cannot be told: {error}", moved)
            if not found:
                continue
            by_word = Consumed(found, Word(found, move.ask.reason or ""))
            calls = aside(waiting.names(), queue, by_word.ids)
            if (refused := _moved(tools, waiting, queue, calls, by_word.ids, hand)) is not None:
                return refused
            moved[name] = [*sorted(by_word.ids)]
    if not moved:
        return NotNeeded(f"{move.source} has no copies that nothing proves")
    told = [f"{len(each)} of {name}" for name, each in moved.items() if isinstance(each, list)]
    return Done(f"kept aside at {move.source}: {some(told)}", {"kept_aside": moved})


def put_back(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Raises `BrokerError`."""
    del step
    back: dict[str, Json] = {}
    findings: list[Finding] = []
    for access in tools.observer.at(move.source):
        view = access.look()
        for queue, to in kept(view, move):
            if to is None:
                text = (
                    f"{queue.depth} message(s) of {queue.name} stay: {view.site} waits, and what lies there alone "
                    "looks consumed, to the next move too"
                )
                remedy = f"`dr-ctl swapover --to {view.site}` first; then the same command."
                findings.append(CANNOT_BE_PUT_BACK(text, remedy))
                continue
            lie = ids.listed(access, queue).whole.ids
            if (refused := _moved(tools, access, queue, moves(access.names(), queue, lie, to), lie, hand)) is not None:
                return refused
            back[to] = len(lie)
            text = f"{len(lie)} message(s) of {to} are put back at {view.site}: those that were done before come twice"
            findings.append(COPIES_UNPROVEN(text, "Nothing: that was decided. What clients had is in their ids."))
    if findings and not back:
        return Refused(findings[0].text, code=ExitCode.PRECHECK_FAILED, findings=tuple(findings))
    if not back:
        return NotNeeded(f"nothing is kept aside at {move.source}")
    told = [f"{count} to {name}" for name, count in back.items()]
    return Done(f"put back at {move.source}: {some(told)}", {"put_back": back}, tuple(findings))


def _moved(
    tools: SyncTools, access: Access, queue: Queue, calls: Iterable[Call], messages: Collection[str], hand: Hand
) -> Refused | None:
    """Move these messages; gives None where they are gone from their queue."""
    outcomes = tools.change(list(calls), hand)
    left = ids.shown(access, queue).keys() & {*messages}
    if not left:
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are still there")
    return Refused(f"{len(left)} message(s) of {queue.name} at {access.site} could not be moved: {why}")
