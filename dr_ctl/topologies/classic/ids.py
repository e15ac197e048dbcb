"""Lists messages by their JMSMessageID, over the console or over STOMP, and removes and moves them. A copy has the id
of its original."""

import math
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, LoginRefused, TimedOut
from dr_ctl.core.system import boottime_s
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.jolokia.client import Listing, Query, Read
from dr_ctl.jolokia.http import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.stomp_io.address import LoginDenied, StompAccount
from dr_ctl.stomp_io.client import Connection, Frame, probe
from dr_ctl.topologies.classic.beans import COUNT, MESSAGE_ID, MOVE_MATCHING, REMOVE_MATCHING, Count, by_ids
from dr_ctl.topologies.classic.broker import OWN_CLIENT, ClassicBroker
from dr_ctl.topologies.classic.session import Session
from dr_ctl.topologies.common.calls import batches, call, request
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, IncompleteListing
from dr_ctl.topologies.common.view import Queue

LOGIN_S: Final = 5.0
SILENT_S: Final = 20.0


def connected(account: StompAccount, *, beats: str | None = None, client: str = OWN_CLIENT) -> Connection:
    """Open a session with a client id that begins with `client`. Raises `BrokerError`."""
    headers = {"client-id": f"{client}{secrets.token_hex(6)}", **({"heart-beat": beats} if beats is not None else {})}
    login_result, connection = probe(account.address, account.login, account.tls, timeout_s=LOGIN_S, headers=headers)
    if isinstance(login_result, LoginDenied):
        raise LoginRefused(f"{account.address}: the login of {account.login.user} was refused: {login_result.because}")
    if connection is None:
        raise BrokerError(getattr(login_result, "because", f"{account.address}: no answer to the login"))
    return connection


def browsed(account: StompAccount, queue: str, *, client: str = OWN_CLIENT) -> Iterator[Frame]:
    """Browse a queue, at most as many messages as the broker's `maxBrowsePageSize` permits. Raises `BrokerError`."""
    connection = connected(account, client=client)
    try:
        yield from browse(connection, queue, "browse")
    finally:
        connection.close()


def browse(connection: Connection, queue: str, name: str) -> Iterator[Frame]:
    """Browse a queue in a session with several browses, each with its own `name`."""
    connection.stomp.subscribe(f"/queue/{queue}", name, "auto", {"browser": "true"})
    heard = boottime_s()
    while boottime_s() - heard < SILENT_S:
        for frame in connection.receive(1.0):
            if frame.headers.get("subscription") != name:
                continue
            heard = boottime_s()
            if frame.headers.get("browser") == "end":
                connection.stomp.unsubscribe(name)
                return
            if frame.cmd == "MESSAGE":
                yield frame
        # The broker sends the end once TCP has acknowledged all frames before it, which a silent receiver delays for
        # 40 ms. A heart-beat carries that acknowledgement now.
        connection.beat(every_s=0.0, silent_s=math.inf)
    raise TimedOut(f"{connection.address}: a browse of {queue} did not come to its end")


BATCH: Final = 100  # ids in one call: 19 000 messages a second were removed
MAX_IDS: Final = 100_000
BROWSE_S: Final = 30.0  # 20 000 messages take 6 s
TRIES: Final = 6
QUEUE: Final = "queue://"


def plan_removal(view: ClassicBroker, queue: Queue, when: str, id_name: str = MESSAGE_ID) -> Call:
    """Plan a removal; the run finds the messages. `id_name` is the property with the id of a message."""
    asked = request(queue.bean, REMOVE_MATCHING, (f"{id_name} IN (…)",))
    return call(view, Goal.REMOVE, queue.name, asked, f"remove them from {queue.name} by their ids", when, MAX_IDS)


def removal_calls(view: ClassicBroker, queue: Queue, consumed: Consumed, id_name: str = MESSAGE_ID) -> Iterator[Call]:
    for batch in batches(consumed.ids, BATCH):
        asked = request(queue.bean, REMOVE_MATCHING, (by_ids(batch, id_name),))
        text = f"remove {len(batch)} message(s) of {queue.name}: {consumed.by.text}"
        yield call(view, Goal.REMOVE, queue.name, asked, text)


def move_calls(view: ClassicBroker, queue: Queue, ids: Collection[str], name: str) -> Iterator[Call]:
    for batch in batches(ids, BATCH):
        asked = request(queue.bean, MOVE_MATCHING, (by_ids(batch), name))
        yield call(view, Goal.MOVE, queue.name, asked, f"move {len(batch)} message(s) of {queue.name} to {name}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A listing that shows every message of a queue, also those in delivery. `arrived_by` has each message's original
    destination: for a copy, the queue by which it arrived."""

    complete: CompleteListing
    arrived_by: Mapping[str, str | None]


def listed(session: Session[Any], queue: Queue | None, *, tries: int = 1, grows: bool = False) -> Listed:
    """List a queue; an absent queue has no messages. While clients work, several tries find a moment in which the
    listing is complete. A queue that only `grows` has no client and no transaction, so a message that arrives meanwhile
    hides no earlier one.

    A broker ends a listing silently at the limit of its policy (400 by default), and leaves out messages that are under
    way to a consumer, or acknowledged in an open transaction. These would look consumed, so a listing with fewer
    messages than were there before and arrived meanwhile is refused. Raises `BrokerError`."""
    if queue is None:
        return Listed(CompleteListing("", frozenset(), before=0, after=0), {})
    for _ in range(tries - 1):
        with suppress(IncompleteListing):
            return complete(session.site, queue.name, *_asked(session, queue), grows=grows)
    return complete(session.site, queue.name, *_asked(session, queue), grows=grows)


def shown(session: Session[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """List a queue once, maybe incompletely. Raises `BrokerError`."""
    return _asked(session, queue)[0] if queue is not None else {}


def whole(name: str, ids: frozenset[str], before: Count, after: Count, *, grows: bool = False) -> CompleteListing:
    """Check a listing by the counts before and after it; `grows` as in `listed`. Raises `IncompleteListing`."""
    only_grew = grows and before.depth <= len(ids) <= after.depth
    came = len(ids) - before.depth if only_grew else after.came - before.came
    return CompleteListing(name, ids, before.depth, after.depth, came=came)


def complete(
    site: str, name: str, origins: Mapping[str, str | None], before: Count, after: Count, *, grows: bool = False
) -> Listed:
    try:
        return Listed(whole(name, frozenset(origins), before, after, grows=grows), origins)
    except IncompleteListing as error:
        raise IncompleteListing(
            f"{site}: {error}: its broker's policy limits what a listing shows, a client works there, or an open "
            "transaction holds some",
            remedy=f"Raise maxBrowsePageSize of the policy entry for {name} at {site} above that number; end what is "
            "open there.",
        ) from error


def rows_of(session: Session[Any], queue: Queue, figures: tuple[str, ...]) -> tuple[list[Any], Fields, Fields]:
    """List a queue, and read these figures of it before and after."""
    size = Read(queue.bean, figures)
    before, rows, after = session.reader().read([size, Query(queue.bean, Listing.BROWSE_ALL), size], timeout_s=BROWSE_S)
    messages = rows.value()
    if not isinstance(messages, list):
        raise BadValue(f"{session.site}: a listing of {queue.name} gave no messages")
    return messages, Fields(queue.name, before.value()), Fields(queue.name, after.value())


def _asked(session: Session[Any], queue: Queue) -> tuple[dict[str, str | None], Count, Count]:
    messages, before, after = rows_of(session, queue, COUNT)
    return {_id(session, row): _origin(row) for row in messages}, Count.of(before), Count.of(after)


def _origin(row: Mapping[str, Any]) -> str | None:
    destination = row.get("OriginalDestination")
    return destination.removeprefix(QUEUE) if isinstance(destination, str) else None


def _id(session: Session[Any], row: Any) -> str:
    message_id = row.get("JMSMessageID") if isinstance(row, dict) else None
    if not isinstance(message_id, str):
        raise BadValue(f"{session.site}: a message without a JMSMessageID")
    return message_id
