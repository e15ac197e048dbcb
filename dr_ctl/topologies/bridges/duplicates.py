"""Counts the messages that come twice after a move, and those that are in no copy: by the id stores of both sites."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from shlex import quote
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, brief
from dr_ctl.engine.plan import Spec
from dr_ctl.topologies.bridges.messages import COMPARED, PAGE, Message, Origin, listed, pages
from dr_ctl.topologies.bridges.reading import LinkEnds
from dr_ctl.topologies.bridges.view import BrokerView, Chosen, every_unit
from dr_ctl.topologies.common.idstore import WITHIN_S, NotRead, Store
from dr_ctl.topologies.common.view import Queue

PAGES: Final = 20  # of the copy: each page of a deep queue takes longer than the one before
Lacking = Mapping[str, frozenset[str]]


def ids_lacking(store: Store, other: Store, queues: Collection[str] | None = None) -> Lacking:
    """The ids that `store` has and `other` lacks, by queue: of these queues, or of all. The databases do the
    comparison; no store is written to. Raises `NotRead`."""
    lacking_ids: dict[str, set[str]] = {}
    of = "" if queues is None else " WHERE q = ?"
    asked = f"SELECT * FROM ({store.rows('main')}){of} EXCEPT SELECT * FROM ({other.rows('other')}){of}"  # noqa: S608
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as own:
            own.execute("ATTACH DATABASE ? AS other", (other.uri,))
            for names in [()] if queues is None else [(queue, queue) for queue in queues]:
                for queue, id_ in own.execute(asked, names):
                    lacking_ids.setdefault(str(queue), set()).add(str(id_))
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
    return {queue: frozenset(ids) for queue, ids in lacking_ids.items()}


def missing(ends: LinkEnds, queue: Queue, copy: Queue, origins: Sequence[str], *, timeout_s: float) -> int | None:
    """How many messages lie here, are not there, and are in no id store; without the delayed ones, which no listing
    has. None where that cannot be told: they are too many, a broker does not show where one comes from, or nothing says
    what was processed there. `origins` are the names of both sites in origins. Raises `BrokerError`."""
    (local, peer), (own, other) = ends, origins
    lying = listed(local.reader(), queue, own, timeout_s=timeout_s) if queue.depth <= COMPARED else None
    if lying is None:
        return None
    forwarded = sum(message.forwarded for message in lying)
    wanted, oldest, looked = [message for message in lying if not message.forwarded], None, 0
    for page in pages(peer.reader(), copy, other, timeout_s=timeout_s):
        if not wanted or looked == PAGES:
            break
        looked += 1
        if not all(message.named for message in page):
            return None
        present = {origin for message in page for origin in message.origins}
        wanted = [message for message in wanted if not message.origins & present]
        numbers = [message.copied[1] for message in page if message.copied is not None and message.copied[0] == own]
        oldest = min([*numbers, *([oldest] if oldest is not None else [])], default=None)
    # A delay that AMQP tells in milliseconds begins anew at the copy, which is in no listing until then.
    if wanted and (looked == PAGES or copy.scheduled):
        return None
    if not wanted:
        return forwarded
    processed = [session.processed(queue.name, wanted) for session in ends]
    done = frozenset[Origin]().union(*(origins for origins in processed if origins is not None))
    wanted = [message for message in wanted if message.name not in done]
    if None in processed:
        # Nobody can say of a message older than every copy whether it was processed there, or never came.
        newer = [message for message in wanted if oldest is not None and _number(message, own) >= oldest]
        return forwarded + len(newer) if newer or not wanted else None
    return forwarded + len(wanted)


def _number(message: Message, own: str) -> int:
    return max((number for origin, number in message.origins if origin == own), default=-1)


def lacking(ends: LinkEnds, copies: BrokerView, chosen: Chosen) -> Lacking | None:
    """The ids of the chosen units that the target's store lacks, by queue; None where the settings do not name both
    stores. Raises `NotRead`."""
    own, other = (session.ids for session in ends)
    if own is None or other is None:
        return None
    queues = [queue.name for unit in copies.among(chosen) for queue in copies.queues_of(unit)]
    return ids_lacking(own, other, queues)


def copies_done(ends: LinkEnds, copies: BrokerView, ids: Lacking, spec: Spec, *, timeout_s: float) -> Iterator[Finding]:
    """An error for each queue whose copy holds messages of these ids, without the numbers that were accepted. Raises
    `BrokerError`."""
    local, peer = ends
    for name, lost in ids.items():
        copy, most = copies.business[name], len(lost)
        # At most so many lie in the copy: all of them, where it cannot be listed whole.
        if copy.depth <= PAGES * PAGE and not copy.scheduled and copy.counted:
            own = copies.origin_of(copy.address) or peer.site
            lying = listed(peer.reader(), copy, own, timeout_s=timeout_s)
            most = sum(message.id(peer.id_header) in lost for message in lying) if lying is not None else most
        if most and most != spec.accept_difference.get(name):
            yield found(
                "DR-BRIDGE-018",
                most=most,
                name=name,
                site=local.site,
                other_site=peer.site,
                difference=quote(f"{name}={most}"),
            )


def done_at(ends: LinkEnds, copies: BrokerView, *, timeout_s: float) -> Iterator[Finding]:
    """Messages at the second broker that consumers of the first have done, and that the second's store does not know:
    by id, before anybody delivers them. Where no store is named, that there may be some. Raises `BrokerError`."""
    local, peer = ends
    lost = lacking(ends, copies, every_unit)
    if lost is None:
        yield found("DR-RETURN-010.no_store", site=local.site, other_site=peer.site)
        return
    for name, ids in lost.items():
        queue = copies.business[name]
        origin = copies.origin_of(queue.address) or peer.site
        lying = {
            message.id(peer.id_header)
            for page in pages(peer.reader(), queue, origin, timeout_s=timeout_s)
            for message in page
        }
        if done := sorted(ids & lying):
            yield found(
                "DR-RETURN-010.unannounced",
                other_site=peer.site,
                site=local.site,
                count=len(done),
                queue=name,
                ids=brief(done),
            )


def not_compared(error: NotRead) -> Finding:
    return found("DR-RECONCILE-004.not_compared", why=error)
