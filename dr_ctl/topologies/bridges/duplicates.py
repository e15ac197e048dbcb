"""Counts the messages that come twice after a move, because the target's id store lacks ids that the source's has."""

from collections.abc import Iterator, Mapping
from shlex import quote

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.plan import Ask
from dr_ctl.topologies.bridges import stores
from dr_ctl.topologies.bridges.access import Access, Way
from dr_ctl.topologies.bridges.findings import DONE_AT_RETURNED, IDS_LACKING, IDS_MISSING
from dr_ctl.topologies.bridges.messages import PAGE, pages
from dr_ctl.topologies.bridges.missing import PAGES
from dr_ctl.topologies.bridges.view import BrokerView, Chosen, whole
from dr_ctl.topologies.common.idstore import NotRead
from dr_ctl.topologies.common.view import Queue

Lacking = Mapping[str, frozenset[str]]


def lacking(way: Way, copies: BrokerView, chosen: Chosen) -> Lacking | None:
    """The ids of the chosen units that the target's store lacks, by queue; None where the settings do not name both
    stores. Raises `NotRead`."""
    here, there = (access.ids for access in way)
    if here is None or there is None:
        return None
    queues = [queue.name for unit in copies.among(chosen) for queue in copies.queues_of(unit)]
    return stores.ids_lacking(here, there, queues)


def told(way: Way, copies: BrokerView, ids: Lacking, ask: Ask, *, timeout_s: float) -> Iterator[Finding]:
    """An error for each queue whose copy holds messages of these ids, without the numbers that were accepted. Raises
    `BrokerError`."""
    here, there = way
    queues = {queue.name: queue for unit in copies.among(ask.includes) for queue in copies.queues_of(unit)}
    for name, lost in ids.items():
        most = _lying(there, queues[name], copies.origin_of(queues[name].address), lost, timeout_s=timeout_s)
        if most and most != ask.accept_difference.get(name):
            yield IDS_LACKING(
                f"{most} message(s) of {name} may come twice: the id store of {here.site} has their ids, and that of "
                f"{there.site} lacks them",
                f"Send these ids to {there.site} once more, as the consumers at {here.site} announce them. "
                f"--accept-difference {quote(f'{name}={most}')} moves with exactly that many.",
            )


def done_at(way: Way, copies: BrokerView, *, timeout_s: float) -> Iterator[Finding]:
    """Messages at the second broker that consumers of the first have done, and that the second's store does not know:
    by id, before anybody delivers them. Where no store is named, that there may be some. Raises `BrokerError`."""
    here, there = way
    lost = lacking(way, copies, whole)
    if lost is None or there.id_settings is None:
        text = (
            f"what the consumers of {here.site} had in hand when it was lost may come as duplicates at {there.site}: "
            "the settings do not name both stores of ids, so nobody can tell what that is"
        )
        yield DONE_AT_RETURNED(text, "Name both under `ids:`; the consumers must recognise what they have done.")
        return
    queues = {queue.name: queue for unit in copies.among(whole) for queue in copies.queues_of(unit)}
    for name, ids in lost.items():
        queue = queues[name]
        origin = copies.origin_of(queue.address) or there.site
        lying = {
            each.id(there.id_settings.header)
            for page in pages(there.reader(), queue, origin, timeout_s=timeout_s)
            for each in page
        }
        if found := sorted(ids & lying):
            yield DONE_AT_RETURNED(
                f"{len(found)} message(s) of {name} come as duplicates at {there.site}: consumers of {here.site} had "
                f"done them when it was lost, and could not announce their ids: {some(found)}",
                f"The consumers at {there.site} must recognise them; see what their second processing did.",
            )


def not_compared(error: NotRead) -> Finding:
    return IDS_MISSING(f"the id stores could not be compared: {error}", error.remedy)


def _lying(there: Access, copy: Queue, origin: str | None, ids: frozenset[str], *, timeout_s: float) -> int:
    """At most how many messages of these ids lie in a copy: all of them, where the copy cannot be listed whole."""
    if not copy.depth:
        return 0
    settings = there.id_settings
    if settings is None or copy.depth > PAGES * PAGE or copy.scheduled or not copy.counted:
        return len(ids)
    listed = [each for page in pages(there.reader(), copy, origin or there.site, timeout_s=timeout_s) for each in page]
    if len(listed) != copy.depth or not all(each.named for each in listed):
        return len(ids)
    return sum(each.id(settings.header) in ids for each in listed)
