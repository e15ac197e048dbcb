"""What `init` writes for two Classic brokers, by what joins them, or does not."""

import re
from dataclasses import replace
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.core.notation import if_known
from dr_ctl.topologies import proposing
from dr_ctl.topologies.classic.reading import NETWORKS

_OWN_LISTENER: Final = '<transportConnector name="{}" uri="tcp://0.0.0.0:61617"/>'
_PRODUCERS: Final = re.compile(r"produc", re.IGNORECASE)


def _brokersync(local: proposing.BrokerAddress, remote: proposing.BrokerAddress) -> proposing.Proposal | None:
    """Recognized by a network connector."""
    both = proposing.pairs(local, remote)
    if not (linked := proposing.sites_with(both, NETWORKS)):
        return None

    def more(place: proposing.BrokerAddress, broker: proposing.Probed, taken: tuple[str, ...]) -> list[proposing.Key]:
        peer = remote if place is local else local
        why = "the queue here that holds the copies of {queue}"
        copies = proposing.Key("copies", f"{{queue}}.to-{peer.site}", why, sure=False)
        speaking = [listener for listener in broker.listeners if "STOMP" in listener.protocols]
        others = [listener for listener in speaking if listener.name not in taken]
        return [copies, *(_agent(place, other) for other in others[:1])]

    why = f"network connectors at {' and '.join(linked)}"
    comment = "what the peer's network connector uses; no client may"
    return proposing.joined("classic-brokersync", why, both, "OPENWIRE", _OWN_LISTENER, "bridge", comment, more)


def _agent(place: proposing.BrokerAddress, listener: proposing.Listener) -> proposing.Key:
    secret: dict[str, Json] = {"env": f"{place.site.upper().replace('-', '_')}_SYNC_PASSWORD"}
    way: dict[str, Json] = {
        "stomp": f"stomp://{place.host}:{if_known(listener.port)}",
        "username": "sync",
        "password": secret,
        "connector": listener.name,
    }
    return proposing.Key("sync", way, "the way in of the agent `dr-ctl sync`, open behind a fence", sure=False)


def _shared_store(local: proposing.BrokerAddress, peer: proposing.BrokerAddress) -> proposing.Proposal | None:
    """Recognized by one broker that answers, and one that refuses, as a broker does that waits for the store."""
    known = [place.probed for place in (local, peer) if place.probed is not None]
    if len(known) != 1:
        return None
    brokers = {}
    for place in (local, peer):
        name = place.probed.broker if place.probed is not None else place.site
        own = proposing.Key("broker", name, "its brokerName, as the lock's row has it", sure=place.probed is not None)
        brokers[place.site] = [own, proposing.clients(known[0])]
    database = "or {dsn: {env: STORE_DSN}} for a database"
    store = proposing.Key("store", {"lock": "/shared/kahadb/lock"}, database, sure=False)
    why = "one broker answers, the other refuses connections: as a broker does that waits for a store"
    return proposing.Proposal("classic-shared-store", why, brokers, (store,))


def _fanout(local: proposing.BrokerAddress, peer: proposing.BrokerAddress) -> proposing.Proposal | None:
    """Two brokers that know nothing of each other: so it is proposed where no other topology was recognized."""
    if not (both := proposing.pairs(local, peer)):
        return None
    brokers = {}
    for place, broker, _ in both:
        named = [listener.name for listener in broker.listeners if _PRODUCERS.search(listener.name)]
        why = "the connectors of producers, open at both sites"
        producers = proposing.Key("producers", [*(named or ("producers",))], why, bool(named))
        comment = "the connectors of consumers alone: a fence closes them"
        brokers[place.site] = [replace(proposing.clients(broker, named), sure=False, why=comment), producers]
    header = proposing.Key("id_header", "UniqueMessageID", "the property by which producers name a message", sure=False)
    return proposing.Proposal("classic-fanout", "two brokers that nothing joins", brokers, (header,))


BROKERSYNC: Final = proposing.Proposer(proposing.Family.CLASSIC, (NETWORKS,), _brokersync)
SHARED_STORE: Final = proposing.Proposer(proposing.Family.CLASSIC, (), _shared_store)
FANOUT: Final = proposing.Proposer(proposing.Family.CLASSIC, (), _fanout)
