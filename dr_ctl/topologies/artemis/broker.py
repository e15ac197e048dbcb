"""An Artemis broker as one reading has shown it, whatever joins it to its peer, and the other nodes that it shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import (
    MQTT_RETAINED,
    NOTIFICATION_PREFIX,
    PAUSE,
    Request,
    Requests,
    call,
    items,
    request,
)
from dr_ctl.topologies.common.checks import NamedCheck
from dr_ctl.topologies.common.view import Acceptor, Broker, Connection, Consumer, Fence, Grants, PeerState, Queue
from dr_ctl.topologies.topology import Node

CREATE: Final = "createQueue(java.lang.String)"
# With the second argument, creating an existing queue and removing an absent one are no errors.
CREATE_QUEUE: Final = "createQueue(java.lang.String,boolean)"
UPDATE: Final = "updateQueue(java.lang.String)"
DELETE: Final = "destroyQueue(java.lang.String)"
DESTROY_QUEUE: Final = "destroyQueue(java.lang.String,boolean)"
_TEXT: Final = "java.lang.String"
CREATE_FILTERED: Final = f"createQueue({_TEXT},{_TEXT},{_TEXT},{_TEXT},boolean,int,boolean,boolean)"
UPDATE_FILTERED: Final = (
    f"updateQueue({_TEXT},{_TEXT},{_TEXT},java.lang.Integer,java.lang.Boolean,java.lang.Boolean,java.lang.Boolean,"
    f"java.lang.Integer,java.lang.Boolean,java.lang.Integer,java.lang.Long,{_TEXT})"
)
# Some versions' management shows no queue of the broker's own.
SHOWS_INTERNAL: Final = (2, 32)
_QUEUE: Final[dict[str, str | bool | int]] = {"routing-type": "ANYCAST", "durable": True, "internal": True}
PAUSE_LASTING: Final = "pause(boolean)"
MOVE: Final = "moveMessage(long,java.lang.String)"
REVOKE: Final = f"addSecuritySettings({','.join([_TEXT] * 11)})"
# Some versions have two more rights, for management by roles, and revoke them if a call leaves them out.
REVOKE_WITH_VIEWS: Final = f"addSecuritySettings({','.join([_TEXT] * 13)})"
LET_IN: Final = f"removeSecuritySettings({_TEXT})"
RELOAD: Final = "reloadConfigurationFile()"
# Brokers have lock coordinators to start and stop since 2.56.
START_LOCK: Final = f"startLockCoordinator({_TEXT})"
STOP_LOCK: Final = f"stopLockCoordinator({_TEXT})"


@dataclass(frozen=True, slots=True)
class ArtemisRequests(Requests):
    """The requests to a broker. dr-ctl's documents are queues, created by one call with the whole configuration; the
    queue's user is the document's text, and `attributes` are read of it. These queues are internal ones, unless the
    broker's management hides internal queues."""

    attributes: ClassVar[tuple[str, ...]] = ("Name", "User", "InternalQueue")

    shows_internal: bool = True

    def of_server(self, operation: str, *arguments: Json) -> Request:
        return request(beans.server(self.broker), operation, arguments)

    def queue_pattern(self, prefix: str) -> str:
        return beans.queues_by_prefix(self.broker, prefix)

    def pause(self, queue: Queue, *, lasting: bool = False) -> Request:
        return request(queue.bean, PAUSE_LASTING, (True,)) if lasting else request(queue.bean, PAUSE)

    def create(self, name: str, text: str, *, kind: str | None = None) -> Request:
        """Store a document. A document of a numbered `kind` must not exist yet, and shares the kind's address."""
        if kind is not None:
            return self.of_server(CREATE, self._numbered(name, text, kind))
        return self.of_server(CREATE_QUEUE, self._configured(name, text), True)

    def update(self, name: str, text: str, *, kind: str) -> Request:
        # Send all fields: a field left out would be set to its default.
        return self.of_server(UPDATE, self._numbered(name, text, kind))

    def write(self, name: str, text: str | None) -> Request:
        made = self.create(name, text or "")
        return made if text is not None else {**made, "arguments": [name]}

    def remove(self, name: str) -> Request:
        return self.of_server(DESTROY_QUEUE, name, True)

    def probe(self, name: str) -> Request:
        # Neither an internal queue nor its messages reach the peer, whatever the link's address filter says.
        queue = {**_QUEUE, "name": name, "address": name, "durable": False}
        return self.of_server(CREATE_QUEUE, json.dumps(queue), True)

    def canary(self, name: str) -> Request:
        queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "auto-delete": False}
        return self.of_server(CREATE_QUEUE, json.dumps(queue), True)

    def _numbered(self, name: str, text: str, kind: str) -> str:
        """Return a numbered document's queue. A kind shares an address, because removing a queue leaves its address."""
        unusable = {"max-consumers": 0, "purge-on-no-consumers": False, "exclusive": False}
        return self._configured(name, text, {"address": kind, "auto-create-address": True, **unusable})

    def _configured(self, name: str, text: str, extra: Mapping[str, Json] = MappingProxyType({})) -> str:
        """Return the configuration of a document's queue: durable, and never mirrored. A broker that starts splits
        `user=TEXT;` from its journal, so the JSON of the text is without these signs."""
        user = text.replace("=", r"\u003d").replace(";", r"\u003b")
        queue = {"name": name, "address": name, **_QUEUE, "auto-delete": False, "user": user, **extra}
        return json.dumps(queue if self.shows_internal else {**queue, "internal": False})

    def text(self, fields: Fields) -> str:
        return fields.any_text("User")

    def is_own(self, _bean: str, fields: Fields) -> bool:
        """Say whether only management can have made this queue, as far as this version shows it."""
        return not fields.has("InternalQueue") or fields.flag("InternalQueue")


STILL_KEPT_OUT: Final = "the broker still keeps them out"
OTHER_RIGHTS_IN_FILE: Final = "its own file gives them others"
# No user has a role with this prefix. A fence keeps a copy of rights that somebody set by hand under such names.
COPY_PREFIX: Final = "dr-ctl.kept-out."
EVERY: Final = "#"
# The order is that of the operation's arguments.
_RIGHTS: Final = (
    "send", "consume", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue",
    "manage", "browse", "createAddress", "deleteAddress",
)  # fmt: skip
_VIEWS: Final = ("view", "edit")


class ListenersAndRoles(Fence):
    """A fence by listeners and, if the settings name them, by the rights of the clients' roles. Such rights outlast a
    restart: a broker keeps them in its journal, where they override broker.xml. Removing a setting restores a match
    that broker.xml lacks; a match in the file, such as `#`, needs a reload of the file. A match has one entry: a fence
    replaces rights that somebody set through management, so the fence's entry keeps a copy of them."""

    view: ArtemisBroker

    def __init__(self, view: ArtemisBroker) -> None:
        super().__init__(view)
        contenders = [coordinator for coordinator in view.coordinators if coordinator.contends]
        self.contending = [coordinator.name for coordinator in contenders]
        self.awaits = [coordinator.name for coordinator in contenders if not coordinator.holds]
        self.passive = [coordinator.name for coordinator in view.coordinators if not coordinator.contends]

    @property
    def matches(self) -> Sequence[str]:
        return self.view.config.lasting.matches if self.view.config.lasting is not None else ()

    def releasing_locks(self, when: str | None = None) -> list[Call]:
        """Stop lock coordinators: stopping only an acceptor would hand the lock to another broker."""
        names = self.contending if when is None else [coordinator.name for coordinator in self.view.coordinators]
        return [self._of_lock(Goal.STOP, name, when) for name in names if self.view.drives_locks]

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        return (*self.releasing_locks(when), *super().closing(listeners, when))

    def opening(self, listeners: Iterable[Acceptor], peer: PeerState, when: str | None = None) -> tuple[Call, ...]:
        """Start the coordinators first: an acceptor with a lock opens only once the lock is held."""
        opens = super().opening(listeners, peer, when)
        names = [coordinator.name for coordinator in self.view.coordinators if opens and self.view.drives_locks]
        return (*(self._of_lock(Goal.START, name, when) for name in names), *opens)

    def _of_lock(self, goal: Goal, name: str, when: str | None) -> Call:
        operation = START_LOCK if goal is Goal.START else STOP_LOCK
        asked = self.view.requests.of_server(operation, name)
        return call(self.view, goal, name, asked, f"{goal.value} lock coordinator {name}", when)

    @property
    def needs_reload(self) -> bool:
        """Say whether the roles stay out after a match is removed, until broker.xml is read again."""
        return self.view.usual is not None and not self.view.lets_in_by(self.view.usual)

    def revoking(self, when: str | None = None, matches: Sequence[str] | None = None) -> list[Call]:
        """Revoke the rights of the clients' roles only; without `when`, only where they have some now."""
        lasting, matches = self.view.config.lasting, self.matches if matches is None else matches
        if lasting is None:
            return []
        calls = []
        for match in [match for match in matches if when is not None or self.view.lets_in(match)]:
            keeps_copy = self._has_own_rights(match)
            rights = {
                f"{COPY_PREFIX}{role}" if role in lasting.roles else role: may
                for role, may in self.view.grants.get(match, {}).items()
                if role not in lasting.roles or keeps_copy
            }
            summary = f"keep role {', '.join(lasting.roles)} out of {match}"
            calls.append(call(self.view, Goal.REVOKE, match, self._set_rights(match, rights), summary, when))
        return calls

    def granting(self, when: str | None = None, matches: Sequence[str] | None = None) -> list[Call]:
        """Give the clients' roles their rights back; without `when`, only where they are revoked now."""
        lasting, matches = self.view.config.lasting, self.matches if matches is None else matches
        if lasting is None:
            return []
        view, roles, of_server = self.view, ", ".join(lasting.roles), self.view.requests.of_server
        matches = [match for match in matches if when is not None or not view.lets_in(match)]
        lets_in = ((match, of_server(LET_IN, match)) for match in matches)
        calls = [
            call(view, Goal.GRANT, match, asked, f"let role {roles} in to {match}", when) for match, asked in lets_in
        ]
        if calls:
            calls.append(call(view, Goal.GRANT, ALL, of_server(RELOAD), "read broker.xml again", STILL_KEPT_OUT))
        for match in filter(self._has_own_rights, matches):
            asked, summary = self._set_rights(match, self._rights_before(match)), "the rights from before the fence"
            calls.append(
                call(view, Goal.RESTORE, match, asked, f"give the roles at {match} {summary}", OTHER_RIGHTS_IN_FILE)
            )
        return calls

    def holds(self, call: Call) -> bool | None:
        if call.goal in (Goal.START, Goal.STOP):
            return (call.resource in self.contending) is (call.goal is Goal.START)
        if call.goal is not Goal.RESTORE:
            return super().holds(call)
        wanted = self._set_rights(call.resource, self.view.grants.get(call.resource, {}))
        return _roles_by_right(wanted) == _roles_by_right(call.request)

    def _rights_before(self, match: str) -> Grants:
        """Return each role's rights there without the fence, which keeps the clients' rights under other names."""
        grants = self.view.grants.get(match, {})
        own = {role.removeprefix(COPY_PREFIX): may for role, may in grants.items() if role.startswith(COPY_PREFIX)}
        return own | {role: may for role, may in grants.items() if not role.startswith(COPY_PREFIX)}

    def _has_own_rights(self, match: str) -> bool:
        """Say whether somebody set the rights of a match, so that only a copy can restore them. Else, and for the match
        of all addresses, removing the setting restores the rights of broker.xml."""
        usual = self.view.usual
        narrower = usual is not None and match != EVERY and _granted(self._rights_before(match)) != _granted(usual)
        noted = any(role.startswith(COPY_PREFIX) for role in self.view.grants.get(match, {}))
        return noted or (narrower and self.view.lets_in(match))

    def _set_rights(self, match: str, rights: Grants) -> Request:
        views = any(word in _VIEWS for may in rights.values() for word in may)
        every = (*_RIGHTS, *(_VIEWS if views else ()))
        listed = [",".join(role for role, may in rights.items() if word in may) for word in every]
        return self.view.requests.of_server(REVOKE_WITH_VIEWS if views else REVOKE, match, *listed)


def _granted(grants: Grants) -> dict[str, frozenset[str]]:
    return {role: frozenset(may) for role, may in grants.items() if may}


def _roles_by_right(asked: Request) -> list[frozenset[str]]:
    """Return the roles of each right in a request that sets rights, without trailing rights that have no role, because
    versions differ in the number of rights."""
    roles = [frozenset(filter(None, str(argument).split(","))) for argument in items(asked, "arguments")[1:]]
    while roles and not roles[-1]:
        roles.pop()
    return roles


SESSIONS: Final = "$sys.mqtt.sessions"


_SINGLE_NODE_POLICIES: Final = ("Primary Only", "Live Only")
CORE: Final = "CORE"


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one broker. `policy` is the broker's name for its HA policy, None if it shows none. `at` is the
    address to which its nodes and its cluster connect, as host and port. `nodes` are the addresses of its other nodes,
    `cluster` those of the other brokers of its cluster."""

    policy: str | None = None
    shares_store: bool = False
    at: str | None = None
    nodes: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    @property
    def has_nodes(self) -> bool:
        """Say whether there is another node, or the policy permits one."""
        return bool(self.nodes) or (self.policy is not None and self.policy not in _SINGLE_NODE_POLICIES)

    @property
    def replicates(self) -> bool:
        return self.has_nodes and not self.shares_store

    @property
    def port(self) -> int | None:
        port = (self.at or "").rpartition(":")[2]
        return int(port) if port.isdecimal() else None


SINGLE_NODE: Final = Group()


@dataclass(frozen=True, slots=True)
class Coordinator:
    """A lock coordinator: its acceptors are open while it holds its lock."""

    name: str
    lock: str
    status: str

    @property
    def contends(self) -> bool:
        """Say whether it holds the lock, or may get it at any moment."""
        return self.status != "Stopped"

    @property
    def holds(self) -> bool:
        return self.status == "Locked"


def link_user_findings(view: ArtemisBroker, kept_out: Sequence[str], link: str) -> Iterator[Finding]:
    """Report users of the peer's link that have a fenced role (`kept_out`), or that this is unknown."""
    roles = ", ".join(kept_out)
    if view.users is None:
        yield found("DR-FENCE-005", broker=view, link=link, roles=roles)
    elif same := sorted(user for user in view.link_users if view.users.get(user, frozenset()) & {*kept_out}):
        yield found("DR-FENCE-006", broker=view, users=", ".join(same), link=link, roles=roles)


def boot_findings(view: ArtemisBroker) -> Iterator[Finding]:
    """Find listeners of clients that a start opens, or, where another node takes over, that it leaves closed."""
    opens, stays = ([item.name for item in view.listeners if item.opens_at_boot is so] for so in (True, False))
    has_nodes, lasting = bool(view.nodes or view.unnamed), view.config.lasting is not None
    if stays and has_nodes:
        yield found("DR-DOOR-007.stays_closed", broker=view, listeners=", ".join(stays))
    if opens and not (has_nodes and lasting):
        key = "DR-DOOR-007.takeover" if has_nodes else "DR-DOOR-007.lasting" if lasting else "DR-DOOR-007"
        yield found(key, broker=view, boots=", ".join(opens))


def _boots(view: ArtemisBroker) -> str:
    return brief([f"{item.name} boots {'open' if item.opens_at_boot else 'closed'}" for item in view.listeners])


def fenced_roles(view: ArtemisBroker) -> str:
    return "no lasting fence is set" if view.config.lasting is None else f"roles {', '.join(view.config.lasting.roles)}"


def _lock_states(view: ArtemisBroker) -> str:
    return brief([f"{coordinator.name} {coordinator.status}" for coordinator in view.coordinators]) or "none"


BY_LISTENERS: Final[Sequence[NamedCheck[Any]]] = (
    NamedCheck("DR-DOOR-007", _boots),
    NamedCheck("DR-DOOR-008", _lock_states),
)


def is_since(version: str, least: tuple[int, ...]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= least


def peer_connectors(bridges: Iterable[Sequence[str]]) -> Sequence[str]:
    """Return the connectors by which bridges connect to their peer."""
    named = [connectors for connectors in bridges if connectors]
    several = [connectors for connectors in named if len(connectors) > 1] or named[:1]
    return [f"connector {name}" for name in dict.fromkeys(chain.from_iterable(several))]


def without_bridges(remote: Iterable[Connection], peer: Broker | None) -> list[Connection]:
    """Return the connections with a session that belong to no bridge. Bridges speak CORE with one user, and have one
    connection each. Further connections of that user may be of the peer's earlier start, which a broker lists for up to
    a minute."""
    in_use = [connection for connection in remote if connection.has_session]
    users = Counter(connection.user for connection in in_use if connection.protocol == CORE)
    bridges = sum(peer.link.links_started.values()) if peer is not None else None
    # The bridges' user is the one with about as many connections as there are bridges, or else with the most.
    user = min(users, key=lambda user: -users[user] if bridges is None else abs(users[user] - bridges), default=None)
    return [connection for connection in in_use if connection.protocol != CORE or connection.user != user]


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    requests_of: ClassVar[type[ArtemisRequests]] = ArtemisRequests

    group: Group = field(default=SINGLE_NODE, kw_only=True)
    coordinators: tuple[Coordinator, ...] = field(default=(), kw_only=True)
    # An address remembers so many message ids, over a restart too, and drops what comes with one of them again.
    id_cache: int | None = field(default=None, kw_only=True)
    keeps_ids: bool = field(default=True, kw_only=True)

    @property
    def inner_ports(self) -> frozenset[int]:
        """Return the port of the broker's own connector, those of the acceptors that the settings name, and those at
        which brokers of its site consume its notifications. If none of them is an acceptor's (address translation),
        connections without a session count as those of a replicating node."""
        joined = self.group.has_nodes or self.group.cluster
        named = {acceptor.port for acceptor in self.acceptors if acceptor.name in self.config.cluster}
        ports = {self.group.port if joined else None, *named, *(consumer.port for consumer in self._listening)}
        if self.replicates and not ports & {acceptor.port for acceptor in self.acceptors if acceptor.port is not None}:
            ports |= {
                connection.port
                for connection in self.connections
                if connection.protocol == CORE and not connection.has_session
            }
        return frozenset(port for port in ports if port is not None)

    @property
    def replicates(self) -> bool:
        return self.group.replicates

    @property
    def drives_locks(self) -> bool:
        """Say whether this version can stop and start lock coordinators."""
        return self.is_since(2, 56)

    def is_since(self, *version: int) -> bool:
        return is_since(self.version, version)

    @property
    def is_clustered(self) -> bool:
        return bool(self.group.cluster or self._listening)

    @property
    def _listening(self) -> Sequence[Consumer]:
        """Return the consumers through which other brokers of the site get this broker's notifications."""
        return [
            consumer
            for consumer in self.consumers
            if consumer.queue.startswith(NOTIFICATION_PREFIX) and consumer.queue not in self.business
        ]

    @property
    def outside_connections(self) -> Sequence[Connection]:
        """Return the connections from outside the site. Those within it are CORE connections at the inner ports,
        without a session (replication, discovery of nodes) or with a consumer of notifications."""
        inner_ports, business = self.inner_ports, self.business
        listening = {consumer.remote for consumer in self._listening}
        working = {consumer.remote for consumer in self.consumers if consumer.queue in business}

        def is_within(connection: Connection) -> bool:
            joins = connection.remote in listening - working or not connection.has_session
            return connection.protocol == CORE and connection.port in inner_ports and joins

        return [connection for connection in self.connections if not is_within(connection)]

    @property
    def link_users(self) -> set[str]:
        """Return the users that are connected at the listeners of the peer's link."""
        ports = {listener.port for listener in self.link.listeners} - {None}
        several = [connection.user.split(",") for connection in self.connections if connection.port in ports]
        return {user.strip() for named in several for user in named}

    @property
    def unnamed(self) -> Sequence[Node]:
        """Return the unnamed nodes. A listing has no names, so the first nodes in it count as the named ones."""
        group, named = self.group, max(0, len(self.nodes) - 1)
        if group.nodes:
            return [Node(self.site, self.pair, at, "by its listing of the cluster") for at in group.nodes[named:]]
        shown_by = f"by its HA policy, {if_known(group.policy)}"
        return [Node(self.site, self.pair, "", shown_by)] if group.has_nodes and not named else []

    @property
    def fence(self) -> ListenersAndRoles:
        return ListenersAndRoles(self)

    @property
    def stays(self) -> Sequence[str]:
        """Describe the messages and sessions of MQTT, which no link replicates."""
        retained = {queue.name.removeprefix(MQTT_RETAINED): queue.depth for queue in self.queues if queue.retained}
        topics = sorted(name for name, depth in retained.items() if depth > 0)
        sessions = self.by_name[SESSIONS].depth if SESSIONS in self.by_name else 0
        count = sum(retained[topic] for topic in topics)
        kept = [f"{count} retained message(s) of MQTT ({brief(topics)})"] if topics else []
        return [*kept, f"the session state of {sessions} client(s) of MQTT"] if sessions > 0 else kept

    @property
    def requests(self) -> ArtemisRequests:
        return self.requests_of(self.broker, self.is_since(*SHOWS_INTERNAL))


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
