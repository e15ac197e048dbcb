"""What `init` writes for two Classic brokers that copy over network connectors."""

from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.core.notation import if_known
from dr_ctl.topologies.classic.reading import NETWORKS
from dr_ctl.topologies.proposing import (
    Family,
    Key,
    LinkListeners,
    Listener,
    Place,
    Probed,
    Proposal,
    Proposer,
    by_site,
    clients,
    link_listeners,
)

OWN_LISTENER: Final = '<transportConnector name="bridge" uri="tcp://0.0.0.0:61617"/>'


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by a network connector."""
    if here.probed is None or there.probed is None:
        return None
    ways = ((here, here.probed, there), (there, there.probed, here))
    linked = [place.site for place, broker, _ in ways if broker.has(NETWORKS)]
    if not linked:
        return None
    brokers = {place.site: _keys(place, broker, peer) for place, broker, peer in ways}
    shared = {place.site: _listeners(broker, peer).shared(OWN_LISTENER, "bridge") for place, broker, peer in ways}
    why = f"network connectors at {' and '.join(linked)}"
    return Proposal("classic-brokersync", why, brokers, shared=by_site(shared))


def _listeners(broker: Probed, peer: Place) -> LinkListeners:
    assert peer.probed is not None  # both answered
    return link_listeners(broker, peer.probed, "OPENWIRE")


def _keys(place: Place, broker: Probed, peer: Place) -> list[Key]:
    listeners = _listeners(broker, peer)
    own = clients(broker, listeners.names)
    named = own.value if isinstance(own.value, list) else []
    beside = [
        listener
        for listener in broker.listeners
        if listener.name not in (*listeners.names, *named) and "STOMP" in listener.protocols
    ]
    copies = Key("copies", f"{{queue}}.to-{peer.site}", "the queue here that holds the copies of {queue}", sure=False)
    bridge = listeners.key("bridge", "what the peer's network connector uses; no client may")
    agent = [_agent(place, beside[0])] if beside else []
    return [own, *bridge, copies, *agent]


def _agent(place: Place, listener: Listener) -> Key:
    secret: dict[str, Json] = {"env": f"{place.site.upper().replace('-', '_')}_SYNC_PASSWORD"}
    way: dict[str, Json] = {
        "stomp": f"stomp://{place.host}:{if_known(listener.port)}",
        "username": "sync",
        "password": secret,
        "connector": listener.name,
    }
    return Key("sync", way, "the way in of the agent `dr-ctl sync`, open behind a fence", sure=False)


PROPOSER: Final = Proposer(Family.CLASSIC, (NETWORKS,), propose)
