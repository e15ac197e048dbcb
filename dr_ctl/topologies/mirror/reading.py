"""The way to each mirrored broker, and the readings of it: questions, in one POST, and the view that answers make.

It may be everything (a few hundred bytes a queue); less of known queues, with or without clients and the rights of
their roles, as a gate, a fence or an opening needs; and the gate's own numbers (the same few milliseconds however many
queues there are) for the tight polls of a drain.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import TimedOut
from dr_ctl.jolokia.client import READ_S, Answer, Ask, Asked, Listing, Post, Read, Reader
from dr_ctl.jolokia.http import BadValue, NoSuchBean, OperationFailed
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import MirrorBroker
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.artemis import access, beans
from dr_ctl.topologies.artemis import reading as parts
from dr_ctl.topologies.artemis.broker import GROUP, must_be_active, read_group
from dr_ctl.topologies.artemis.documents import IN_USER
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import A_QUEUE_S, EVERYTHING, Part
from dr_ctl.topologies.common.names import ANY_ADDRESS
from dr_ctl.topologies.common.view import Config, Connection, Consumer, Grants, Queue
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.view import BrokerConnection, BrokerView

_SERVER: Final = (
    "Active", "Version", "NodeID", "CurrentTimeMillis", "PendingMirrorAcks", *parts.LIMITS, *GROUP,
)  # fmt: skip
_LINK: Final = ("Name", "Started", "Connected", "Protocol", "Uri")
_EVERYTHING: Final = ("", -1, -1)
FEW: Final = 100
"""Queues that are asked for one by one; of more the whole is asked for."""
# Queues whose number alone may make a look take longer than a look may; and how long a broker has to tell the number.
MANY: Final = 1000
SMALL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Clients:
    connections: tuple[Connection, ...]
    consumers: tuple[Consumer, ...]
    prepared: tuple[str, ...]
    lock_coordinators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rights:
    grants: Mapping[str, Grants]
    usual: Grants | None


def look(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> BrokerView:
    """Ask for everything in one POST. Raises `BrokerError`: a part that is missing is never taken for empty."""
    return _checked(reader, partial(_look, reader, pair, site, config, broker, timeout_s, None, EVERYTHING))


def look_again(reader: Reader, known: BrokerView, wanted: Part, *, timeout_s: float) -> BrokerView:
    """Read less than everything; the rest stays as in `known`, an earlier look. A restarted broker, or many new queues,
    get a whole look; a few new queues are read whole. Raises `BrokerError`."""
    if Part.STATE not in wanted:
        return look_at_rights(reader, known)
    look_at = partial(_look, reader, known.pair, known.site, known.config, known.broker, timeout_s)
    return _checked(reader, partial(look_at, known, wanted))


def _checked(reader: Reader, look_at: Callable[[], BrokerView]) -> BrokerView:
    try:
        return look_at()
    except (KeyError, ValueError, TypeError) as error:
        raise BadValue(f"{reader.url}: a listing is not as expected: {type(error).__name__}: {error}") from error


def _look(
    reader: Reader,
    pair: str,
    site: str,
    config: Config,
    broker: str,
    timeout_s: float,
    known: BrokerView | None,
    wanted: Part,
) -> BrokerView:
    server, figures = beans.server(broker), parts.figures(wanted)
    post = Post()
    itself = post.ask(Read(server, _SERVER))
    topology = post.ask(Ask(server, Listing.TOPOLOGY))
    runtime = post.ask(Read(beans.RUNTIME, ("StartTime",)))
    acceptors = post.ask(Read(beans.all_acceptors(broker), parts.ACCEPTOR))
    links = post.ask(Read(beans.all_broker_connections(broker), _LINK))
    outflows = post.ask(Read(beans.outflows(broker), (*parts.QUEUE, "FirstMessageTimestamp")))
    kept = post.ask(Read(beans.documents(broker), IN_USER.attributes))
    asked_clients = _clients(post, server, known if Part.CLIENTS not in wanted else None)
    asked_rights = _rights(post, server, config, known if Part.RIGHTS not in wanted else None)
    lasting = config.lasting is not None and known is None
    users = post.ask(Ask(server, Listing.USERS, ("",))) if lasting else None
    listed = post.ask(Read(beans.all_queues(broker), figures)) if figures else None
    post.send(reader, timeout_s=timeout_s)
    fields = itself.fields()
    joined_to = read_group(reader.url, fields, fields.text("NodeID"), topology.answer(), active=fields.flag("Active"))
    now_ms = fields.number("CurrentTimeMillis")
    start = str(runtime.fields().number("StartTime"))
    queues = {queue.bean: queue for queue in known.queues} if known is not None else {}
    rows = listed.beans() if listed is not None else []
    others = [bean for bean, _ in rows if bean not in queues] if known is not None else []
    if known is not None and (known.start != start or len(others) > FEW):
        return _look(reader, pair, site, config, broker, timeout_s, None, EVERYTHING)
    if others:
        answers = reader.look([Read(bean, parts.QUEUE) for bean in others], timeout_s=timeout_s)
        # Clients remove their temporary queues at any moment: a queue that is gone by now has no figures.
        whole = [(bean, answer) for bean, answer in zip(others, answers, strict=True) if not _is_gone(answer)]
        queues |= {bean: parts.queue(bean, Fields(bean, answer.value())) for bean, answer in whole}
        rows = [(bean, row) for bean, row in rows if bean in queues]
    if figures:
        queues = {bean: _queue(queues.get(bean), bean, row, figures) for bean, row in rows}
    queues |= {bean: _aged(parts.queue(bean, row), row, now_ms) for bean, row in outflows.beans()}
    documents = parts.documents(IN_USER, kept.beans())
    clients, rights = asked_clients(), asked_rights()
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        broker=broker,
        version=fields.text("Version"),
        node=fields.text("NodeID"),
        now_ms=now_ms,
        disk_used=parts.disk_used(fields),
        obstacles=parts.limits_of_server(fields, now_ms - int(start)),
        group=joined_to,
        pending_acks=fields.number("PendingMirrorAcks"),
        start=start,
        acceptors=tuple(parts.acceptor(bean, row) for bean, row in acceptors.beans()),
        links=tuple(_link(row) for _, row in links.beans()),
        queues=tuple(sorted(queues.values(), key=lambda queue: queue.name)),
        connections=clients.connections,
        consumers=clients.consumers,
        prepared=clients.prepared,
        lock_coordinators=clients.lock_coordinators,
        documents=documents.own,
        forged=documents.others,
        grants=rights.grants,
        users=parts.users(users.answer()) if users is not None else known.users if known is not None else None,
        usual=rights.usual,
    )


def _clients(post: Post, server: str, known: BrokerView | None) -> Callable[[], _Clients]:
    """Ask who works there; gives what to call once the answers are there. Where it is `known`, nobody is asked."""
    if known is not None:
        view = known
        return lambda: _Clients(view.connections, view.consumers, view.prepared, view.lock_coordinators)
    connections = post.ask(Ask(server, Listing.CONNECTIONS, _EVERYTHING))
    consumers = post.ask(Ask(server, Listing.CONSUMERS, _EVERYTHING))
    prepared = post.ask(Ask(server, Listing.PREPARED))
    coordinators = post.ask(Ask(server, Listing.LOCK_COORDINATORS))
    return lambda: _Clients(
        tuple(parts.connection(row) for row in parts.rows(connections.answer())),
        tuple(parts.consumer(row) for row in parts.rows(consumers.answer())),
        parts.prepared(prepared.answer()),
        _coordinators(coordinators.answer()),
    )


def _rights(post: Post, server: str, config: Config, known: BrokerView | None) -> Callable[[], _Rights]:
    """Ask what roles may do, where a lasting fence is for them; as above."""
    if known is not None:
        view = known
        return lambda: _Rights(view.grants, view.usual)
    if config.lasting is None:
        return lambda: _Rights({}, None)
    grants = {match: post.ask(Ask(server, Listing.ROLES, (match,))) for match in config.lasting.matches}
    usual = post.ask(Ask(server, Listing.ROLES, (ANY_ADDRESS,)))
    return lambda: _Rights(
        {match: parts.grants(asked.value()) for match, asked in grants.items()}, parts.grants(usual.value())
    )


def look_at_rights(reader: Reader, known: BrokerView) -> BrokerView:
    """Ask what roles may do, and for nothing else."""
    post = Post()
    asked = _rights(post, beans.server(known.broker), known.config, None)
    post.send(reader, timeout_s=READ_S)
    rights = asked()
    return replace(known, grants=rights.grants, usual=rights.usual)


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker with its outflow as the only queue: role, link, and messages to ship."""
    post = Post()
    server = post.ask(Read(beans.server(view.broker), ("Active", "CurrentTimeMillis", "PendingMirrorAcks")))
    runtime = post.ask(Read(beans.RUNTIME, ("StartTime",)))
    acceptors = post.ask(Read(beans.all_acceptors(view.broker), parts.ACCEPTOR))
    links = post.ask(Read(beans.all_broker_connections(view.broker), _LINK))
    outflow = post.ask(Read(view.outflow.bean, parts.QUEUE)) if view.outflow is not None else None
    post.send(reader, timeout_s=timeout_s)
    fields = server.fields()
    must_be_active(reader.url, view.group, fields)
    return replace(
        view,
        now_ms=fields.number("CurrentTimeMillis"),
        pending_acks=fields.number("PendingMirrorAcks"),
        start=str(runtime.fields().number("StartTime")),
        acceptors=tuple(parts.acceptor(bean, row) for bean, row in acceptors.beans()),
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
    outflow, link = view.outflow, view.broker_connection
    post = Post()
    server = post.ask(Read(beans.server(view.broker), ("PendingMirrorAcks",)))
    if view.link.missing:
        return _without_link(reader, view, post, server, timeout_s)
    if outflow is None or link is None:
        raise NoSuchBean(f"{reader.url}: no link to the peer, so no outflow to look at")
    queue = post.ask(Read(outflow.bean, ("MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded")))
    connection = post.ask(Read(beans.broker_connection(view.broker, link.name), ("Started", "Connected")))
    listeners = _listeners(post, view)
    post.send(reader, timeout_s=timeout_s)
    counts, state, started = queue.fields(), connection.fields(), _started(reader, listeners)
    return Flow(
        to_ship=counts.count("MessageCount"),
        outflow_delivering=counts.count("DeliveringCount"),
        outflow_consumers=counts.number("ConsumerCount"),
        outflow_added=counts.number("MessagesAdded"),
        unapplied=server.fields().count("PendingMirrorAcks"),
        link_started=state.flag("Started"),
        link_connected=state.flag("Connected"),
        listeners_open=tuple(listener.name for listener in view.listeners if started[listener.name]),
        mirror_open=all(started[listener.name] for listener in view.link.listeners),
    )


def _without_link(reader: Reader, view: BrokerView, post: Post, server: Asked[Read], timeout_s: float) -> Flow:
    listeners = _listeners(post, view)
    post.send(reader, timeout_s=timeout_s)
    started = _started(reader, listeners)
    return Flow(
        to_ship=0,
        outflow_delivering=0,
        outflow_consumers=0,
        outflow_added=0,
        unapplied=server.fields().count("PendingMirrorAcks"),
        link_started=False,
        link_connected=False,
        listeners_open=tuple(listener.name for listener in view.listeners if started[listener.name]),
        mirror_open=all(started[listener.name] for listener in view.link.listeners),
        linked=False,
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


def _queue(known: Queue | None, bean: str, fields: Fields, attributes: tuple[str, ...]) -> Queue:
    return parts.seen_again(known, fields, attributes) if known is not None else parts.queue(bean, fields)


def _aged(queue: Queue, fields: Fields, now_ms: int) -> Queue:
    """Add the age of the oldest message. The broker tells the time of the first message that the link has not taken
    yet: while the link holds older ones, the time is no use. Acknowledgements have no time: the figure is null or 0."""
    if queue.depth == 0 or queue.delivering > 0 or not fields.has("FirstMessageTimestamp"):
        return queue
    since_ms = fields.optional_number("FirstMessageTimestamp")
    return replace(queue, oldest_ms=max(0, now_ms - since_ms)) if since_ms else queue


def _coordinators(answer: Answer) -> tuple[str, ...]:
    """The lock coordinators; versions that have none do not know the operation."""
    if isinstance(answer.error, OperationFailed) and "No operation" in str(answer.error):
        return ()
    listed = json.loads(str(answer.value()))
    return tuple(str(each["name"]) for each in listed)


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
