"""The facts that `init` reads of two brokers, and the settings that each topology proposes for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.core.notation import if_known

NOT_CLIENTS: Final = re.compile(
    r"mirror|bridge|link|peer|cluster|replic|network|continuity|sync|agent|dr-?ctl|internal", re.IGNORECASE
)
_PRODUCERS: Final = re.compile(r"produc", re.IGNORECASE)
_CORE: Final = '<acceptor name="{}">tcp://0.0.0.0:61617?protocols=CORE</acceptor>'
_AMQP: Final = '<acceptor name="{}">tcp://0.0.0.0:5673?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>'
_OPENWIRE: Final = '<transportConnector name="{}" uri="tcp://0.0.0.0:61617"/>'
# The ends of the bean names, behind the broker's, of parts that join sites.
BROKER_CONNECTIONS: Final = ",component=broker-connections,name=*"
PLUGIN: Final = ',component=continuity,name="continuity.service"'
BRIDGES: Final = ",component=bridges,name=*"
DIVERTS: Final = ",component=addresses,address=*,subcomponent=diverts,divert=*"
NETWORKS: Final = ",connector=networkConnectors,networkConnectorName=*"


class Family(Enum):
    ARTEMIS = "artemis"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class Listener:
    """An acceptor or a transport connector. `from_brokers` counts the connections of other brokers."""

    name: str
    protocols: frozenset[str]
    port: int | None
    started: bool
    from_brokers: int = 0


@dataclass(frozen=True, slots=True)
class Probed:
    """A broker that answered at a management address. `signs` are the beans that were found, by the end of their names.
    If the broker has several nodes, `node` is their common id, `active` says whether this one is active, and `others`
    are the hosts of the other nodes that it lists."""

    family: Family
    broker: str
    version: str
    listeners: Sequence[Listener]
    signs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    node: str = ""
    active: bool = True
    others: tuple[str, ...] = ()

    def has(self, sign: str) -> bool:
        return bool(self.signs.get(sign))


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One management address, and the broker there: None if it refuses connections. `host` is the address's host.
    `nodes` are the addresses of the broker's other nodes; `origin` is the one its console allows, if not that host."""

    site: str
    url: str
    host: str
    probed: Probed | None
    nodes: tuple[BrokerAddress, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the settings: key, value, and the reason. `sure` is False if a person has to decide."""

    name: str
    value: Json
    why: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class SharedListener:
    """A listener of the link whose name does not say so. `separate` is a listener for the link only, as a line of the
    broker's configuration, and `key` is the key that names it in the settings."""

    name: str
    separate: str
    key: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`why` says how the topology was recognized. `brokers` has the topology's keys of a broker by site, `installation`
    those of the installation. `shared` has the listeners of the peers' links, by site, that clients may use too: a
    fence would not keep them out there."""

    topology: str
    why: str
    brokers: Mapping[str, Sequence[Key]]
    installation: Sequence[Key] = ()
    shared: Mapping[str, SharedListener] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposer:
    family: Family
    signs: Sequence[str]
    propose: Callable[[BrokerAddress, BrokerAddress], Proposal | None]


Pairs = Sequence[tuple[BrokerAddress, Probed, Probed]]


def pairs(local: BrokerAddress, peer: BrokerAddress) -> Pairs:
    """Return each site with its broker and the peer; empty if one did not answer."""
    if local.probed is None or peer.probed is None:
        return ()
    return ((local, local.probed, peer.probed), (peer, peer.probed, local.probed))


def sites_with(both: Pairs, sign: str) -> list[str]:
    return [place.site for place, broker, _ in both if broker.has(sign)]


def joined(
    topology: str,
    why: str,
    both: Pairs,
    protocol: str,
    separate: str,
    key: str,
    comment: str,
    further: Callable[[BrokerAddress, Probed, tuple[str, ...]], list[Key]] = lambda *_: [],
) -> Proposal:
    """Propose a topology for brokers whose peer's link connects to a listener with that protocol, which `key` names.
    `separate` is a listener for the link only, still without its name; `further` makes more keys, given the listeners
    that are named already."""
    brokers, shared = {}, {}
    for place, broker, peer in both:
        names, sure = link_listeners(broker, peer, protocol)
        for_clients, for_link = clients(broker, names), [Key(key, [*names], comment, sure)] if names else []
        used = (*names, *(map(str, for_clients.value) if isinstance(for_clients.value, list) else ()))
        brokers[place.site] = [for_clients, *for_link, *further(place, broker, used)]
        if unnamed := [name for name in names if not NOT_CLIENTS.search(name)]:
            shared[place.site] = SharedListener(unnamed[0], separate.format(key), key)
    return Proposal(topology, why, brokers, shared=shared)


def link_listeners(local: Probed, peer: Probed, protocol: str) -> tuple[list[str], bool]:
    """Find the listeners of the peer's link, and say whether that is sure: it is if other brokers are connected there,
    or by the name, but not by the protocol alone. A listener that is open at one site and closed at the other is for
    clients."""
    left = [listener for listener in local.listeners if listener.name not in moving(local, peer)]
    connected = [listener.name for listener in left if listener.from_brokers]
    named = [
        listener.name for listener in left if NOT_CLIENTS.search(listener.name) and listener.protocols != {"STOMP"}
    ]
    if connected or named:
        return connected or named, True
    speaking = [listener.name for listener in left if listener.protocols == {protocol}]
    return speaking if len(speaking) == 1 < len(local.listeners) else [], False


def moving(local: Probed, peer: Probed) -> frozenset[str]:
    states = {listener.name: listener.started for listener in peer.listeners}
    return frozenset(
        listener.name
        for listener in local.listeners
        if states.get(listener.name, listener.started) is not listener.started
    )


def clients(local: Probed, without: Sequence[str] = ()) -> Key:
    """Return the clients' listeners: all except the link's and those whose names show another purpose."""
    others = [listener for listener in local.listeners if listener.name not in without]
    named = tuple(listener.name for listener in others if not NOT_CLIENTS.search(listener.name))
    speaks = ", ".join(
        f"{listener.name} speaks {'/'.join(sorted(listener.protocols))}"
        for listener in others
        if listener.name in named
    )
    return Key(
        "clients", list(named or [listener.name for listener in others]), f"used by clients: {speaks}", bool(named)
    )


def stomp(place: BrokerAddress, listeners: Sequence[str]) -> Key | None:
    """Return the clients' listener for test logins and the probe."""
    if place.probed is None:
        return None
    speaking = [
        listener
        for listener in place.probed.listeners
        if "STOMP" in listener.protocols and listener.name in listeners and listener.port
    ]
    speaking.sort(key=lambda listener: len(listener.protocols))
    if not speaking:
        return None
    why = f"{speaking[0].name}: where test logins and the probe go; stomp+ssl:// where it speaks TLS"
    return Key("stomp", f"stomp://{place.host}:{if_known(speaking[0].port)}", why)


def _mirror(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Recognize the topology by broker connections; one site with them is enough."""
    both = pairs(local, peer)
    if not (linked := sites_with(both, BROKER_CONNECTIONS)):
        return None
    why = f"broker connections at {' and '.join(linked)}"
    why += "" if len(linked) == len(both) else "; the other site has none: without it no failback is possible"
    comment = "used by the peer's broker connection; clients may not use it"
    return joined("artemis-mirror", why, both, "AMQP", _AMQP, "mirror", comment)


def _continuity(local: BrokerAddress, remote: BrokerAddress) -> Proposal | None:
    """Recognize the topology by the plugin's service at both sites. The plugin opens listeners at one site only."""
    both = pairs(local, remote)
    if len(sites_with(both, PLUGIN)) < 2:  # noqa: PLR2004 - both
        return None
    comment, why = "used by the peer's plugin: its external acceptor", "the continuity plugin's service at both sites"
    proposal = joined("artemis-continuity", why, both, "CORE", _CORE, "mirror", comment)
    brokers, what = dict(proposal.brokers), "the plugin's serving-acceptors: open at one site only"
    for place, broker, peer in both:
        if serving := moving(broker, peer):
            brokers[place.site] = [Key("clients", [*sorted(serving)], what), *brokers[place.site][1:]]
    return replace(proposal, brokers=brokers)


def _bridges(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    both = pairs(local, peer)
    if not both or any(len(sites_with(both, sign)) < len(both) for sign in (BRIDGES, DIVERTS)):
        return None
    why, comment = "diverts and bridges at both sites", "used by the peer's bridges; clients may not use it"
    fence = Key("lasting_fence", {"roles": ["apps"]}, "the roles of the clients, never the bridges' own", sure=False)
    return joined("artemis-bridges", why, both, "CORE", _CORE, "bridge", comment, lambda *_: [fence])


def _brokersync(local: BrokerAddress, remote: BrokerAddress) -> Proposal | None:
    both = pairs(local, remote)
    if not (linked := sites_with(both, NETWORKS)):
        return None

    def further(place: BrokerAddress, broker: Probed, used: tuple[str, ...]) -> list[Key]:
        peer = remote if place is local else local
        why = "the queue here that holds the copies of {queue}"
        copies = Key("copies", f"{{queue}}.to-{peer.site}", why, sure=False)
        speaking = [listener for listener in broker.listeners if "STOMP" in listener.protocols]
        others = [listener for listener in speaking if listener.name not in used]
        return [copies, *(_agent(place, other) for other in others[:1])]

    why = f"network connectors at {' and '.join(linked)}"
    comment = "used by the peer's network connector; clients may not use it"
    return joined("classic-brokersync", why, both, "OPENWIRE", _OPENWIRE, "bridge", comment, further)


def _agent(place: BrokerAddress, listener: Listener) -> Key:
    secret: dict[str, Json] = {"env": f"{place.site.upper().replace('-', '_')}_SYNC_PASSWORD"}
    login: dict[str, Json] = {
        "stomp": f"stomp://{place.host}:{if_known(listener.port)}",
        "username": "sync",
        "password": secret,
        "connector": listener.name,
    }
    return Key("sync", login, "the login of the agent `dr-ctl sync`, at a listener that fences leave open", sure=False)


def _shared_store(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Recognize the topology by one broker that answers, and one that refuses, as while waiting for the store."""
    known = [place.probed for place in (local, peer) if place.probed is not None]
    if len(known) != 1:
        return None
    brokers = {}
    for place in (local, peer):
        name = place.probed.broker if place.probed is not None else place.site
        key = Key("broker", name, "its brokerName, as the lock's row has it", sure=place.probed is not None)
        brokers[place.site] = [key, clients(known[0])]
    database = "or {dsn: {env: STORE_DSN}} for a database"
    store = Key("store", {"lock": "/shared/kahadb/lock"}, database, sure=False)
    why = "one broker answers, the other refuses connections, as while waiting for a store"
    return Proposal("classic-shared-store", why, brokers, (store,))


def _fanout(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Propose this topology last, because nothing joins its brokers."""
    if not (both := pairs(local, peer)):
        return None
    brokers = {}
    for place, broker, _ in both:
        named = [listener.name for listener in broker.listeners if _PRODUCERS.search(listener.name)]
        why = "the connectors of producers, open at both sites"
        producers = Key("producers", [*(named or ("producers",))], why, bool(named))
        comment = "the connectors of consumers only: a fence closes them"
        brokers[place.site] = [replace(clients(broker, named), sure=False, why=comment), producers]
    header = Key("id_header", "UniqueMessageID", "the property by which producers name a message", sure=False)
    return Proposal("classic-fanout", "two brokers without a link", brokers, (header,))


# The order in which topologies are tried: those without a visible link come last.
PROPOSERS: Final[Mapping[str, Proposer]] = {
    "artemis-continuity": Proposer(Family.ARTEMIS, (PLUGIN,), _continuity),
    "artemis-mirror": Proposer(Family.ARTEMIS, (BROKER_CONNECTIONS,), _mirror),
    "artemis-bridges": Proposer(Family.ARTEMIS, (BRIDGES, DIVERTS), _bridges),
    "classic-brokersync": Proposer(Family.CLASSIC, (NETWORKS,), _brokersync),
    "classic-shared-store": Proposer(Family.CLASSIC, (), _shared_store),
    "classic-fanout": Proposer(Family.CLASSIC, (), _fanout),
}


def proposed(local: BrokerAddress, peer: BrokerAddress, topology: str | None = None) -> Proposal | None:
    """Return the proposal of the first topology that is recognized, or only of this `topology`."""
    families = {place.probed.family for place in (local, peer) if place.probed is not None}
    for name, proposer in PROPOSERS.items():
        is_asked = topology in (None, name) and proposer.family in families
        if is_asked and (proposal := proposer.propose(local, peer)) is not None:
            return proposal
    return None
