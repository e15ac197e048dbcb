"""What `init` writes for two brokers that an AMQP mirror joins."""

from typing import Final

from dr_ctl.topologies.artemis.reading import BROKER_CONNECTIONS
from dr_ctl.topologies.proposing import Family, Place, Proposal, Proposer, by_site, clients, link_listeners

OWN_LISTENER: Final = (
    '<acceptor name="mirror">tcp://0.0.0.0:5673?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>'
)


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by broker connections; brokers that nothing joins are taken for such a pair, and told."""
    if here.probed is None or there.probed is None:
        return None
    ways = ((here, here.probed, there.probed), (there, there.probed, here.probed))
    linked = [place.site for place, broker, _ in ways if broker.has(BROKER_CONNECTIONS)]
    if not linked:
        return None
    why = f"broker connections at {' and '.join(linked)}"
    why += "" if len(linked) == len(ways) else "; the other site has none: without it no failback is possible"
    brokers, shared = {}, {}
    for place, broker, peer in ways:
        listeners = link_listeners(broker, peer, "AMQP")
        mirror = listeners.key("mirror", "what the peer's broker connection uses; no client may")
        brokers[place.site] = [clients(broker, listeners.names), *mirror]
        shared[place.site] = listeners.shared(OWN_LISTENER, "mirror")
    return Proposal("artemis-mirror", why, brokers, shared=by_site(shared))


PROPOSER: Final = Proposer(Family.ARTEMIS, (BROKER_CONNECTIONS,), propose)
