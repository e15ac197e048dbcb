"""Makes the calls of a step, each with a text and a request, and checks by a reading which of them had their effect. It
also names dr-ctl's own documents and queues on a broker, and stores debts as such documents. Pure."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dr_ctl.core.errors import UNREADABLE
from dr_ctl.core.model import Json, brief
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.engine.ports import Failed

OWN: Final = "dr-ctl."
ANY_ADDRESS: Final = f"{OWN}any"  # an address that does not exist: a role's rights there are its default rights
_DIGITS: Final = 15  # digits of a document's number: dr-ctl never wrote a longer one
OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
CLUSTER_PREFIX: Final = "$.artemis.internal.sf."
NOTIFICATION_PREFIX: Final = "notif."
"""The prefix of a broker's queues from which other brokers of its cluster get its notifications."""
# The names of documents. Queues for messages that dr-ctl keeps aside have other names.
DOCUMENT: Final = re.compile(r"dr-ctl\.(lock|debt|receipt)\.")
QUARANTINE_PREFIX: Final = f"{OWN}quarantine."
REHEARSAL: Final = "rehearsal.dr-ctl."
"""The prefix of a rehearsal's queue. The peer has to get that queue, and filters of mirrors leave out `dr-ctl.`"""
OURS: Final = (OWN, REHEARSAL)
MQTT_RETAINED: Final = "$sys.mqtt.retain."
"""The prefix of queues with retained messages of MQTT: no broker calls them internal, and nobody consumes from them."""
# Brokers keep these names for themselves. A broker says which queues are internal only since version 2.34.
BROKERS: Final = (
    "activemq.management", "activemq.notifications", NOTIFICATION_PREFIX, "$.artemis.", "$sys.mqtt.sessions",
    OUTFLOW_PREFIX,
)  # fmt: skip


def quarantine_queue(site: str, queue: str) -> str:
    return f"{QUARANTINE_PREFIX}{site}.{queue}"


def numbered(documents: Mapping[str, str], kind: str) -> list[tuple[int, str]]:
    """Return the documents of one kind, by number. The site in a name is ignored: other settings may name it
    differently."""
    name = re.compile(rf"dr-ctl\.{re.escape(kind)}\.[^.]+\.(\d{{1,{_DIGITS}}})")
    matches = [(name.fullmatch(document), text) for document, text in documents.items()]
    return sorted((int(match[1]), text) for match, text in matches if match is not None)


if TYPE_CHECKING:
    from dr_ctl.topologies.common.view import Acceptor, Broker, Queue

Request = Mapping[str, Json]
C = TypeVar("C", str, int)
START: Final = "start()"
STOP: Final = "stop()"
PAUSE: Final = "pause()"
RESUME: Final = "resume()"


def request(bean: str, operation: str, arguments: tuple[Json, ...] = ()) -> Request:
    """Make a request with the operation's whole signature, because brokers overload names between versions."""
    return {"bean": bean, "operation": operation, "arguments": [*arguments]}


def items(made: Request, key: str) -> list[Json]:
    """The list that a request holds under a key. Raises TypeError for a request without one."""
    value = made.get(key)
    if not isinstance(value, list):
        raise TypeError(f"{key} of a request is no list: {value!r}")
    return value


# Each call of this phase acts on many queues: its resource is the prefix of their names, and a `*`.
BY_PREFIX: Final = "together"


def batches(names: Iterable[C], size: int) -> Iterator[list[C]]:
    listed = sorted(names)
    return (listed[start : start + size] for start in range(0, len(listed), size))


@dataclass(frozen=True, slots=True)
class Requests(ABC):
    """Makes the requests to the broker of this name. Only the broker's family and the sender read a request."""

    broker: str

    @abstractmethod
    def queue_pattern(self, prefix: str) -> str: ...

    def pause(self, queue: Queue, *, lasting: bool = False) -> Request:  # noqa: ARG002 - no pause is lasting here
        """Pause a queue; a restart of the broker keeps a `lasting` pause, where it can."""
        return request(queue.bean, PAUSE)

    def resume(self, queue: Queue) -> Request:
        return request(queue.bean, RESUME)

    def by_prefix(self, goal: Goal, prefix: str) -> Request:
        """Make the request for all queues with this prefix, including those that are created after the reading."""
        return request(self.queue_pattern(prefix), PAUSE if goal is Goal.PAUSE else RESUME)

    @abstractmethod
    def write(self, name: str, text: str | None) -> Request:
        """Store a document; `text` is None while it is not known yet."""

    @abstractmethod
    def remove(self, name: str) -> Request: ...

    @abstractmethod
    def probe(self, name: str) -> Request | None:
        """Create a queue that messages pass through, and that no peer gets; return None where sending creates it."""

    @abstractmethod
    def canary(self, name: str) -> Request | None:
        """Create a queue as clients have them, which the peer gets; return None where sending creates it."""

    def remove_queue(self, name: str) -> Request:
        return self.remove(name)


def call(
    view: Broker, goal: Goal, resource: str, request: Request, summary: str, when: str | None = None, at_most: int = 1
) -> Call:
    return Call(view.site, view.pair, goal, resource, request, f"{summary} at {view.site}", when, at_most)


def switch_listener(view: Broker, goal: Goal, listener: Acceptor, when: str | None = None) -> Call:
    asked = request(listener.bean, START if goal is Goal.OPEN else STOP)
    of_link = " of the link" if listener in view.link.listeners else ""
    return call(view, goal, listener.name, asked, f"{goal.value} acceptor {listener.name}{of_link}", when)


def switch_part(view: Broker, goal: Goal, part: Any, summary: str, when: str | None = None, at_most: int = 1) -> Call:
    """Start or stop a part of the link: a connector, a bridge, or a listener that a reinstatement opens separately."""
    asked = request(part.bean, START if goal is Goal.LINK_UP else STOP)
    return call(view, goal, part.name, asked, f"{summary} {part.name}", when, at_most)


def pause(view: Broker, queue: Queue, when: str | None = None, *, lasting: bool = False) -> Call:
    asked = view.requests.pause(queue, lasting=lasting)
    return call(view, Goal.PAUSE, queue.name, asked, f"pause {queue.name}", when)


def resume(view: Broker, queue: Queue, when: str | None = None) -> Call:
    return call(view, Goal.RESUME, queue.name, view.requests.resume(queue), f"resume {queue.name}", when)


def by_prefix(view: Broker, goal: Goal, prefix: str, count: int, when: str | None = None) -> Call:
    text = f"{goal.value} the {count} queues whose names begin with {prefix}"
    made = call(view, goal, f"{prefix}*", view.requests.by_prefix(goal, prefix), text, when)
    return replace(made, phase=BY_PREFIX)


def queues_of(call: Call, view: Broker) -> list[str]:
    if call.phase != BY_PREFIX:
        return [call.resource]
    return [name for name in view.business if name.startswith(call.resource[:-1])]


def remove_document(view: Broker, name: str, summary: str, when: str | None = None) -> Call:
    return call(view, Goal.DELETE, name, view.requests.remove(name), summary, when)


def missing_effects(calls: Sequence[Call], views: Sequence[Broker]) -> list[str]:
    return [call.summary for call in calls if not holds(call, views)]


def holds(call: Call, views: Iterable[Broker]) -> bool:
    """Say whether a call's effect was seen at its broker; raises KeyError for a call whose effect has no reading."""
    return next(view for view in views if (view.site, view.pair) == (call.site, call.unit)).holds(call)


def still(calls: Sequence[Call], views: Sequence[Broker]) -> Failed | None:
    missing = missing_effects(calls, views)
    return Failed(f"effect not seen: {brief(missing)}") if missing else None


_NAME: Final = re.compile(rf"dr-ctl\.debt\.([^.]+)\.({'|'.join(kind.value for kind in DebtKind)})\.([^.]+)")


def debt_name(kind: DebtKind, lost_site: str, kept_at: str) -> str:
    return f"dr-ctl.debt.{kept_at}.{kind.value}.{lost_site}"


def is_debt(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def debts_of(documents: Mapping[str, str]) -> list[Debt]:
    """Read the debts from a broker's documents. A document that cannot be read is a debt too."""
    debts = []
    for name, text in sorted(documents.items()):
        named = _NAME.fullmatch(name)
        if named is None:
            continue
        kept_at, kind, lost_site = named.groups()
        try:
            document = json.loads(text)
            debts.append(Debt(DebtKind(kind), lost_site, kept_at, str(document["since"]), bool(document["lasting"])))
        except UNREADABLE:
            debts.append(Debt(DebtKind(kind), lost_site, kept_at, "not known"))
    return debts


def record_debt(
    view: Broker, kind: DebtKind, lost_site: str, when: str | None = None, *, lasting: bool = False
) -> Call:
    """Store a debt at a broker; a debt that the reading shows there keeps its text."""
    name, since = debt_name(kind, lost_site, view.site), view.clock
    text = view.documents.get(name) or json.dumps({"since": since, "lasting": lasting})
    summary = f"record the {kind.value} debt of {lost_site}"
    return call(view, Goal.CREATE, name, view.requests.write(name, text), summary, when)


def clear_debt(view: Broker, kind: DebtKind, lost_site: str, when: str | None = None) -> Call:
    summary = f"clear the {kind.value} debt of {lost_site}"
    return remove_document(view, debt_name(kind, lost_site, view.site), summary, when)
