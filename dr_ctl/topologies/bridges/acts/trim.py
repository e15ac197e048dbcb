"""The act of `trim`: copies go whose ids the stores of both sites hold. Every other copy stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.bridges.access import Access
from dr_ctl.topologies.bridges.drafts.trim import removes
from dr_ctl.topologies.bridges.findings import COPIES_STAY
from dr_ctl.topologies.bridges.messages import Message, Origin, pages
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.common.consumed import Consumed, InBothStores
from dr_ctl.topologies.common.view import Queue

LOOK_S: Final = 30.0
PAGES: Final = 50  # of one queue and one trim: each page of a deep queue takes longer than the one before


def act(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(f"{move.source} waits with no copies while {move.target} serves")
    sites = tools.observer.brokers
    asked = {(call.unit, call.thing) for call in step.calls}
    ways = [(sites[move.target][pair], sites[move.source][pair]) for pair in sorted({pair for pair, _ in asked})]
    removed: dict[str, Json] = {}
    stay: dict[str, Json] = {}
    try:
        done = {way[1].pair: _done(*way, {name for pair, name in asked if pair == way[1].pair}) for way in ways}
    except BrokerError as error:
        return Refused(f"which copies are processed cannot be told: {error}", code=ExitCode.PRECHECK_FAILED)
    for _, waiting in ways:
        outcome = _removed(tools, waiting, done[waiting.pair], removed, stay, hand)
        if outcome is not None:
            return outcome
    total = sum(count for count in removed.values() if isinstance(count, int))
    text = f"{total} processed copies removed at {move.source}"
    findings: tuple[Finding, ...] = ()
    if kept := [f"{count} of {name}" for name, count in stay.items() if count]:
        findings = (COPIES_STAY(f"{text}; in no store of both sites, and so left there: {some(kept)}"),)
    return Done(text, {"removed": removed, "stay": stay}, findings)


def _done(serving: Access, waiting: Access, names: set[str]) -> Mapping[str, Consumed]:
    """By queue the copies that both sites have processed, by origin and number. Raises `BrokerError`."""
    here, there = serving.look(), waiting.look()
    found = {}
    for name in sorted(names):
        copy = there.business.get(name)
        own = there.origin_of(copy.address) if copy is not None else None
        if copy is None or own is None:
            raise BadValue(f"{name} is not at {there.site}, or its bridge does not say where it comes from")
        if there.units.get(copy.address) or not here.units.get(copy.address):
            raise BadValue(f"{name} is not served at {here.site} alone any more")
        _stays(waiting.reader(), copy)
        copies = _copies(waiting, copy, own)
        stores = [_held(access, name, list(copies.values())) for access in (serving, waiting)]
        found[name] = Consumed(stores[0] & stores[1], InBothStores(*stores))
    return found


def _copies(waiting: Access, copy: Queue, own: str) -> Mapping[str, Message]:
    """The copies of the other site's messages, by their names as text."""
    found: dict[str, Message] = {}
    for number, page in enumerate(pages(waiting.reader(), copy, own, timeout_s=LOOK_S)):
        found |= {_text(each.copied): each for each in page if each.copied is not None}
        if number + 1 == PAGES:
            break
    return found


def _text(name: Origin) -> str:
    return f"{name[0]}:{name[1]}"


def _held(access: Access, queue: str, messages: list[Message]) -> frozenset[str]:
    """The names of those that the store of that site holds. Raises `BrokerError`."""
    processed = access.processed(queue, messages)
    if processed is None:
        raise BadValue(
            f"the settings name no id store of {access.site}",
            remedy=f"Name it as `ids: {{sqlite: FILE, header: PROPERTY}}` of {access.pair} at {access.site}.",
        )
    return frozenset(_text(each) for each in processed)


def _stays(reader: Reader, copy: Queue) -> None:
    """Raises `BadValue` for a copy that its broker deletes once it is empty: a later message would find no queue."""
    if Fields(copy.bean, reader.look([Read(copy.bean, ("AutoDelete",))])[0].value()).flag("AutoDelete"):
        raise BadValue(f"{copy.name} is deleted by its broker once it is empty; set auto-delete to false there first")


def _removed(
    tools: BridgesTools, waiting: Access, done: Mapping[str, Consumed], removed: dict[str, Json],
    stay: dict[str, Json], hand: Hand,
) -> Outcome | None:  # fmt: skip
    """Remove them, queue by queue, and look again; gives None where all are gone. Raises `BrokerError`."""
    view = waiting.look()
    for name, consumed in done.items():
        queue = view.business[name]
        if consumed.ids:
            tools.change(list(removes(view, queue, consumed)), hand)
        queue = waiting.look().business[name]
        copies = _copies(waiting, queue, view.origin_of(queue.address) or view.site)
        left = consumed.ids & copies.keys()
        removed[name], stay[name] = len(consumed.ids) - len(left), len(copies) - len(left)
        if left:
            text = f"{len(left)} of {len(consumed.ids)} processed copies of {name} are still at {view.site}"
            return Refused(text, {"removed": removed})
    return None
