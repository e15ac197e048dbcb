"""The way to each mirrored broker, and the readings of it: questions, in one POST, and the view that answers make.

It may be everything (a few hundred bytes a queue); less of known queues, with or without clients and the rights of
their roles, as a gate, a fence or an opening needs; and the gate's own numbers (the same few milliseconds however many
queues there are) for the tight polls of a drain.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from dr_ctl.core.errors import TimedOut
from dr_ctl.jolokia.client import READ_S, Answer, Ask, Asked, Listing, Post, Read, Reader
from dr_ctl.jolokia.http import NoSuchBean, OperationFailed
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import MirrorBroker
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.artemis import access, beans
from dr_ctl.topologies.artemis import reading as parts
from dr_ctl.topologies.artemis.broker import Coordinator, must_be_active
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import A_QUEUE_S, EVERYTHING, Part
from dr_ctl.topologies.common.names import ANY_ADDRESS
from dr_ctl.topologies.common.view import Config, Queue
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.view import BrokerConnection, BrokerView

_DIALECT: Final = parts.Dialect(("Active", "CurrentTimeMillis", "PendingMirrorAcks"))
_OUTFLOW: Final = ("MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded")
_LINK: Final = ("Name", "Started", "Connected", "Protocol", "Uri")
FEW: Final = 100
"""Queues that are asked for one by one; of more the whole is asked for."""
# Queues whose number alone may make a look take longer than a look may; and how long a broker has to tell the number.
MANY: Final = 1000
SMALL_S: Final = 2.0


def look(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> BrokerView:
    """Ask for everything in one POST. Raises `BrokerError`."""
    post = Post()
    asked = _Asked(post, broker, config, EVERYTHING)
    post.send(reader, timeout_s=timeout_s)
    with parts.as_expected(reader.url):
        values = {"grants": {}, "usual": None, "users": None, **asked.values(reader)}
        queues = {bean: parts.queue(bean, row) for bean, row in asked.rows()}
        return BrokerView(pair=pair, site=site, config=config, broker=broker, **values, queues=asked.sorted(queues))


def look_again(reader: Reader, known: BrokerView, wanted: Part, *, timeout_s: float) -> BrokerView:
    """Read less than everything; the rest stays as in `known`, an earlier reading. A restarted broker, or many new
    queues, get a whole one; a few new queues are read whole. Raises `BrokerError`."""
    post = Post()
    if Part.STATE not in wanted:
        rights = _Rights(post, known.broker, known.config)
        post.send(reader, timeout_s=timeout_s)
        return replace(known, **rights.values())
    asked = _Asked(post, known.broker, known.config, wanted, with_locks=bool(known.coordinators))
    post.send(reader, timeout_s=timeout_s)
    with parts.as_expected(reader.url):
        values, rows = asked.values(reader), asked.rows()
        queues = {queue.bean: queue for queue in known.queues}
        others = [bean for bean, _ in rows if bean not in queues]
        if known.start != values["start"] or len(others) > FEW:
            at = {"pair": known.pair, "site": known.site, "config": known.config, "broker": known.broker}
            return look(reader, **at, timeout_s=timeout_s)  # type: ignore[arg-type]
        if others:
            answers = reader.look([Read(bean, parts.QUEUE) for bean in others], timeout_s=timeout_s)
            # Clients remove their temporary queues at any moment: a queue that is gone by now has no figures.
            whole = [(bean, answer) for bean, answer in zip(others, answers, strict=True) if not _is_gone(answer)]
            queues |= {bean: parts.queue(bean, Fields(bean, answer.value())) for bean, answer in whole}
        if asked.figures:
            queues = {bean: parts.seen_again(queues[bean], row, asked.figures) for bean, row in rows if bean in queues}
        return replace(known, **values, queues=asked.sorted(queues))


class _Asked:
    """What a mirrored broker is asked for these parts, in one post."""

    def __init__(self, post: Post, broker: str, config: Config, wanted: Part, *, with_locks: bool = False) -> None:
        server, lasting = beans.server(broker), config.lasting is not None
        self.figures = parts.figures(wanted)
        self._basis = parts.Basis(post, broker, _DIALECT, clients=Part.CLIENTS in wanted)
        self._links = post.ask(Read(beans.broker_connection(broker), _LINK))
        self._outflows = post.ask(Read(beans.outflows(broker), (*parts.QUEUE, "FirstMessageTimestamp")))
        self._rights = _Rights(post, broker, config) if lasting and Part.RIGHTS in wanted else None
        with_locks |= Part.CLIENTS in wanted
        self._coordinators = post.ask(Ask(server, Listing.LOCK_COORDINATORS)) if with_locks else None
        self._users = post.ask(Ask(server, Listing.USERS, ("",))) if lasting and Part.QUEUES in wanted else None
        self._listed = post.ask(Read(beans.queue(broker), self.figures)) if self.figures else None

    def values(self, reader: Reader) -> dict[str, Any]:
        """All but the queues, by the names of a view."""
        values = self._basis.values(reader) | (self._rights.values() if self._rights is not None else {})
        values["pending_acks"] = self._basis.server.number("PendingMirrorAcks")
        values["links"] = tuple(_link(row) for _, row in self._links.beans())
        if self._coordinators is not None:
            values["coordinators"] = _coordinators(self._coordinators.answer())
        if self._users is not None:
            values["users"] = parts.users(self._users.answer())
        return values

    def rows(self) -> list[tuple[str, Fields]]:
        return self._listed.beans() if self._listed is not None else []

    def sorted(self, queues: Mapping[str, Queue]) -> tuple[Queue, ...]:
        """These queues, and the outflows as they are now."""
        now_ms = self._basis.now_ms
        outflows = {bean: _aged(parts.queue(bean, row), row, now_ms) for bean, row in self._outflows.beans()}
        return tuple(sorted({**queues, **outflows}.values(), key=lambda queue: queue.name))


class _Rights:
    """What roles may do, where a lasting fence is for them."""

    def __init__(self, post: Post, broker: str, config: Config) -> None:
        server, matches = beans.server(broker), config.lasting.matches if config.lasting is not None else ()
        self._grants = {match: post.ask(Ask(server, Listing.ROLES, (match,))) for match in matches}
        self._usual = post.ask(Ask(server, Listing.ROLES, (ANY_ADDRESS,)))

    def values(self) -> dict[str, Any]:
        grants = {match: parts.grants(asked.value()) for match, asked in self._grants.items()}
        return {"grants": grants, "usual": parts.grants(self._usual.value())}


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker with its outflow as the only queue: role, link, and messages to ship."""
    post = Post()
    basis = parts.Basis(post, view.broker, _DIALECT, whole=False)
    links = post.ask(Read(beans.broker_connection(view.broker), _LINK))
    outflow = post.ask(Read(view.outflow.bean, parts.QUEUE)) if view.outflow is not None else None
    post.send(reader, timeout_s=timeout_s)
    must_be_active(reader.url, view.group, basis.server)
    return replace(
        view,
        **basis.moving(reader),
        pending_acks=basis.server.number("PendingMirrorAcks"),
        links=tuple(_link(row) for _, row in links.beans()),
        queues=(parts.queue(outflow.request.bean, outflow.fields()),) if outflow is not None else (),
    )


@dataclass(frozen=True, slots=True)
class Flow:
    """The gate's own numbers of one broker: messages to ship, state of the link, acknowledgements not applied. With no
    link `linked` is False: nothing is to ship, and nobody waits for it."""

    to_ship: int
    outflow_delivering: int
    outflow_consumers: int
    outflow_added: int
    unapplied: int
    link_started: bool
    link_connected: bool
    listeners_open: tuple[str, ...]
    mirror_open: bool
    linked: bool = True

    @property
    def attached(self) -> bool:
        return not self.linked or (self.link_connected and self.outflow_consumers > 0)

    @property
    def empty(self) -> bool:
        return self.to_ship == 0 and self.outflow_delivering == 0 and self.unapplied == 0


def look_at_flow(reader: Reader, view: BrokerView, *, timeout_s: float) -> Flow:
    """Ask for the gate's numbers in one POST; what `view` told of names and acceptors says where to look."""
    outflow, link, linked = view.outflow, view.broker_connection, not view.link.missing
    if linked and (outflow is None or link is None):
        raise NoSuchBean(f"{reader.url}: no link to the peer, so no outflow to look at")
    post = Post()
    server = post.ask(Read(beans.server(view.broker), ("PendingMirrorAcks",)))
    queue = post.ask(Read(outflow.bean, _OUTFLOW)) if linked and outflow is not None else None
    bean = beans.broker_connection(view.broker, link.name) if linked and link is not None else ""
    connection = post.ask(Read(bean, ("Started", "Connected"))) if bean else None
    listeners = _listeners(post, view)
    post.send(reader, timeout_s=timeout_s)
    started = _started(reader, listeners)
    counts, state = (asked.fields() if asked is not None else None for asked in (queue, connection))
    return Flow(
        to_ship=counts.count("MessageCount") if counts is not None else 0,
        outflow_delivering=counts.count("DeliveringCount") if counts is not None else 0,
        outflow_consumers=counts.number("ConsumerCount") if counts is not None else 0,
        outflow_added=counts.number("MessagesAdded") if counts is not None else 0,
        unapplied=server.fields().count("PendingMirrorAcks"),
        link_started=state is not None and state.flag("Started"),
        link_connected=state is not None and state.flag("Connected"),
        listeners_open=tuple(listener.name for listener in view.listeners if started[listener.name]),
        mirror_open=all(started[listener.name] for listener in view.link.listeners),
        linked=linked,
    )


def scheduled(reader: Reader, queues: Sequence[Queue]) -> list[int]:
    """How many messages of each wait for their time."""
    answers = reader.look([Read(queue.bean, ("ScheduledCount",)) for queue in queues], timeout_s=READ_S)
    return [
        Fields(queue.bean, each.value()).number("ScheduledCount") for queue, each in zip(queues, answers, strict=True)
    ]


def queue_count(reader: Reader, broker: str, *, timeout_s: float) -> int:
    """How many queues it says it has: a small question, however many there are."""
    answers = reader.look([Read(beans.server(broker), ("QueueCount",))], timeout_s=timeout_s)
    return Fields(broker, answers[0].value()).count("QueueCount")


def unapplied(reader: Reader, view: BrokerView, *, timeout_s: float) -> int:
    """How many acknowledgements of the peer wait to be applied; the broker says so whether it has a link or not."""
    answers = reader.look([Read(beans.server(view.broker), ("PendingMirrorAcks",))], timeout_s=timeout_s)
    return Fields(view.broker, answers[0].value()).count("PendingMirrorAcks")


def open_listeners(reader: Reader, view: BrokerView, *, timeout_s: float) -> tuple[str, ...]:
    """The client acceptors that are started; raises `NoSuchBean` where one is gone."""
    post = Post()
    listeners = _listeners(post, view)
    post.send(reader, timeout_s=timeout_s)
    started = _started(reader, listeners)
    return tuple(listener.name for listener in view.listeners if started[listener.name])


def _listeners(post: Post, view: BrokerView) -> dict[str, Asked[Read]]:
    """Each by its name: a pattern makes the broker go through the names of all its queues too."""
    return {
        listener.name: post.ask(Read(listener.bean, ("Started",)))
        for listener in (*view.listeners, *view.link.listeners)
    }


def _started(reader: Reader, listeners: Mapping[str, Asked[Read]]) -> dict[str, bool]:
    if lost := [name for name, listener in listeners.items() if _is_gone(listener.answer())]:
        raise NoSuchBean(f"{reader.url}: acceptor {', '.join(lost)} is not there any more")
    return {name: listener.fields().flag("Started") for name, listener in listeners.items()}


def _link(fields: Fields) -> BrokerConnection:
    return BrokerConnection(
        fields.text("Name"),
        fields.flag("Started"),
        fields.flag("Connected"),
        fields.text("Protocol"),
        fields.any_text("Uri"),
    )


def _is_gone(answer: Answer) -> bool:
    return isinstance(answer.error, NoSuchBean)


def _aged(queue: Queue, fields: Fields, now_ms: int) -> Queue:
    """Add the age of the oldest message. The broker tells the time of the first message that the link has not taken
    yet: while the link holds older ones, the time is no use. Acknowledgements have no time: the figure is null or 0."""
    if queue.depth == 0 or queue.delivering > 0 or not fields.has("FirstMessageTimestamp"):
        return queue
    since_ms = fields.optional_number("FirstMessageTimestamp")
    return replace(queue, oldest_ms=max(0, now_ms - since_ms)) if since_ms else queue


def _coordinators(answer: Answer) -> tuple[Coordinator, ...]:
    """The lock coordinators; versions that have none do not know the operation."""
    if isinstance(answer.error, OperationFailed) and "No operation" in str(answer.error):
        return ()
    listed = json.loads(str(answer.value()))
    return tuple(Coordinator(str(row["name"]), str(row["lockId"]), str(row["status"])) for row in listed)


class Access(access.Access[BrokerView]):
    settings_of = MirrorBroker
    settings: MirrorBroker
    apart = ~Part(0)

    def _config(self) -> Config:
        return replace(super()._config(), link=self.settings.link, lasting=self.settings.lasting_fence)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        ask = partial(look, self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker)
        try:
            return ask(timeout_s=timeout_s)
        except TimedOut:
            # A broker is not sick for having more queues than it tells of in that time on a busy machine.
            if self._last is not None or timeout_s < READ_S:
                raise
            count = queue_count(self.reader(), broker, timeout_s=SMALL_S)
            if count < MANY:
                raise
            return ask(timeout_s=timeout_s + count * A_QUEUE_S)

    def _some(self, known: BrokerView, wanted: Part, timeout_s: float) -> BrokerView:
        if wanted is Part.OUTFLOW:
            return glance(self.reader(), known, timeout_s=timeout_s)
        return look_again(self.reader(), known, wanted, timeout_s=timeout_s)

    def flow(self, *, timeout_s: float) -> Flow:
        return look_at_flow(self.reader(), self.names(), timeout_s=timeout_s)

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        return open_listeners(self.reader(), self.names(), timeout_s=timeout_s)

    def unapplied(self, *, timeout_s: float) -> int:
        return unapplied(self.reader(), self.names(), timeout_s=timeout_s)


Way = tuple[Access, Access]


Observer = observer.Observer[BrokerView, Access]


def _unlike(source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]) -> bool:
    return bool(parity.unexplained(source, target, queues, moved))


READS: Final = observer.Reads(Access.each, unlike=_unlike)
