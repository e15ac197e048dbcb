"""What `init` sees of two brokers before there are settings, and what each topology proposes to write there. Pure."""

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
# What stands behind the name of the broker's own bean, of what joins sites.
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
    """A broker that answered at a management address. `signs` are the beans that were found, by the sign. Of one with
    several nodes, `node` is what they have in common, `active` says whether this one is, and `others` are the hosts of
    those that it lists beside itself."""

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
    """One management address, and the broker there: None where it refuses connections. `host` is how clients would
    reach it, as far as that address tells. `nodes` are the places of the broker's other nodes; `origin` is what the
    console lets in, if not that host."""

    site: str
    url: str
    host: str
    probed: Probed | None
    nodes: tuple[BrokerAddress, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the settings: key, value, and why that value. `sure` is False where only a person knows."""

    name: str
    value: Json
    why: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class SharedListener:
    """A listener of the link whose name does not say so. `own` is a listener for the link alone, as the broker's
    configuration has it, and `key` what names it in the settings."""

    name: str
    own: str
    key: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`why` says by what the topology was recognized; `brokers` are the keys of a broker beside those that all have, by
    site; `installation` those beside the sites. `shared` are the listeners of the peers' links, by site, that clients
    may use too: no fence would keep them out there."""

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
    """Each site with its broker and the peer of that; empty where one did not answer."""
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
    own: str,
    key: str,
    comment: str,
    more: Callable[[BrokerAddress, Probed, tuple[str, ...]], list[Key]] = lambda *_: [],
) -> Proposal:
    """Propose it for brokers whose peer's link comes in by a listener that speaks that protocol, as `key` names it.
    `own` is a listener for it alone, but for its name; `more` keys are told which listeners are taken."""
    brokers, shared = {}, {}
    for place, broker, peer in both:
        names, sure = link_listeners(broker, peer, protocol)
        ways_in, of_link = clients(broker, names), [Key(key, [*names], comment, sure)] if names else []
        taken = (*names, *(map(str, ways_in.value) if isinstance(ways_in.value, list) else ()))
        brokers[place.site] = [ways_in, *of_link, *more(place, broker, taken)]
        # The name of a listener for brokers alone says that.
        if unnamed := [name for name in names if not NOT_CLIENTS.search(name)]:
            shared[place.site] = SharedListener(unnamed[0], own.format(key), key)
    return Proposal(topology, why, brokers, shared=shared)


def link_listeners(local: Probed, peer: Probed, protocol: str) -> tuple[list[str], bool]:
    """Find the listeners of the peer's link, and say whether that is sure: other brokers are connected there, or the
    name says so, or, as is not sure, it is the only listener that speaks nothing but this protocol. A listener that is
    open at one site and closed at the other is for clients."""
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
    """The listeners that clients use: all but the link's, and those whose names say that they are for something
    else."""
    others = [listener for listener in local.listeners if listener.name not in without]
    named = tuple(listener.name for listener in others if not NOT_CLIENTS.search(listener.name))
    speaks = ", ".join(
        f"{listener.name} speaks {'/'.join(sorted(listener.protocols))}"
        for listener in others
        if listener.name in named
    )
    return Key(
        "clients", list(named or [listener.name for listener in others]), f"what clients use: {speaks}", bool(named)
    )


def stomp(place: BrokerAddress, listeners: Sequence[str]) -> Key | None:
    """A clients' listener where test logins and the probe go."""
    if place.probed is None:
        return None
    speaking = [
        listener
        for listener in place.probed.listeners
        if "STOMP" in listener.protocols and listener.name in listeners and listener.port
    ]
    # A listener that speaks nothing else is meant for it.
    speaking.sort(key=lambda listener: len(listener.protocols))
    if not speaking:
        return None
    why = f"{speaking[0].name}: where test logins and the probe go; stomp+ssl:// where it speaks TLS"
    return Key("stomp", f"stomp://{place.host}:{if_known(speaking[0].port)}", why)


def _mirror(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Recognized by broker connections; at one site is enough, and told."""
    both = pairs(local, peer)
    if not (linked := sites_with(both, BROKER_CONNECTIONS)):
        return None
    why = f"broker connections at {' and '.join(linked)}"
    why += "" if len(linked) == len(both) else "; the other site has none: without it no failback is possible"
    comment = "what the peer's broker connection uses; no client may"
    return joined("artemis-mirror", why, both, "AMQP", _AMQP, "mirror", comment)


def _continuity(local: BrokerAddress, remote: BrokerAddress) -> Proposal | None:
    """Recognized by the plugin's service at both sites. The plugin opens at one what it closes at the other."""
    both = pairs(local, remote)
    if len(sites_with(both, PLUGIN)) < 2:  # noqa: PLR2004 - both
        return None
    comment, why = "what the peer's plugin uses: its external acceptor", "the continuity plugin's service at both sites"
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
    why, comment = "diverts and bridges at both sites", "what the peer's bridges use; no client may"
    fence = Key("lasting_fence", {"roles": ["apps"]}, "the roles of the clients, never the bridges' own", sure=False)
    return joined("artemis-bridges", why, both, "CORE", _CORE, "bridge", comment, lambda *_: [fence])


def _brokersync(local: BrokerAddress, remote: BrokerAddress) -> Proposal | None:
    both = pairs(local, remote)
    if not (linked := sites_with(both, NETWORKS)):
        return None

    def more(place: BrokerAddress, broker: Probed, taken: tuple[str, ...]) -> list[Key]:
        peer = remote if place is local else local
        why = "the queue here that holds the copies of {queue}"
        copies = Key("copies", f"{{queue}}.to-{peer.site}", why, sure=False)
        speaking = [listener for listener in broker.listeners if "STOMP" in listener.protocols]
        others = [listener for listener in speaking if listener.name not in taken]
        return [copies, *(_agent(place, other) for other in others[:1])]

    why = f"network connectors at {' and '.join(linked)}"
    comment = "what the peer's network connector uses; no client may"
    return joined("classic-brokersync", why, both, "OPENWIRE", _OPENWIRE, "bridge", comment, more)


def _agent(place: BrokerAddress, listener: Listener) -> Key:
    secret: dict[str, Json] = {"env": f"{place.site.upper().replace('-', '_')}_SYNC_PASSWORD"}
    way: dict[str, Json] = {
        "stomp": f"stomp://{place.host}:{if_known(listener.port)}",
        "username": "sync",
        "password": secret,
        "connector": listener.name,
    }
    return Key("sync", way, "the way in of the agent `dr-ctl sync`, open behind a fence", sure=False)


def _shared_store(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Recognized by one broker that answers, and one that refuses, as a broker does that waits for the store."""
    known = [place.probed for place in (local, peer) if place.probed is not None]
    if len(known) != 1:
        return None
    brokers = {}
    for place in (local, peer):
        name = place.probed.broker if place.probed is not None else place.site
        own = Key("broker", name, "its brokerName, as the lock's row has it", sure=place.probed is not None)
        brokers[place.site] = [own, clients(known[0])]
    database = "or {dsn: {env: STORE_DSN}} for a database"
    store = Key("store", {"lock": "/shared/kahadb/lock"}, database, sure=False)
    why = "one broker answers, the other refuses connections: as a broker does that waits for a store"
    return Proposal("classic-shared-store", why, brokers, (store,))


def _fanout(local: BrokerAddress, peer: BrokerAddress) -> Proposal | None:
    """Two brokers that know nothing of each other: so it is proposed where no other topology was recognized."""
    if not (both := pairs(local, peer)):
        return None
    brokers = {}
    for place, broker, _ in both:
        named = [listener.name for listener in broker.listeners if _PRODUCERS.search(listener.name)]
        why = "the connectors of producers, open at both sites"
        producers = Key("producers", [*(named or ("producers",))], why, bool(named))
        comment = "the connectors of consumers alone: a fence closes them"
        brokers[place.site] = [replace(clients(broker, named), sure=False, why=comment), producers]
    header = Key("id_header", "UniqueMessageID", "the property by which producers name a message", sure=False)
    return Proposal("classic-fanout", "two brokers that nothing joins", brokers, (header,))


# In this order two brokers are looked at before there are settings: what joins nothing visible comes last.
PROPOSERS: Final[Mapping[str, Proposer]] = {
    "artemis-continuity": Proposer(Family.ARTEMIS, (PLUGIN,), _continuity),
    "artemis-mirror": Proposer(Family.ARTEMIS, (BROKER_CONNECTIONS,), _mirror),
    "artemis-bridges": Proposer(Family.ARTEMIS, (BRIDGES, DIVERTS), _bridges),
    "classic-brokersync": Proposer(Family.CLASSIC, (NETWORKS,), _brokersync),
    "classic-shared-store": Proposer(Family.CLASSIC, (), _shared_store),
    "classic-fanout": Proposer(Family.CLASSIC, (), _fanout),
}


def proposed(local: BrokerAddress, peer: BrokerAddress, topology: str | None = None) -> Proposal | None:
    """Return what the first topology that recognizes itself proposes, or that one alone."""
    families = {place.probed.family for place in (local, peer) if place.probed is not None}
    for name, proposer in PROPOSERS.items():
        is_asked = topology in (None, name) and proposer.family in families
        if is_asked and (proposal := proposer.propose(local, peer)) is not None:
            return proposal
    return None
