"""What `init` writes for two brokers that diverts and core bridges join."""

from typing import Final

from dr_ctl.topologies.artemis.reading import BRIDGES, DIVERTS
from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, by_site, clients, link_listeners

OWN_LISTENER: Final = '<acceptor name="bridge">tcp://0.0.0.0:61617?protocols=CORE</acceptor>'
SIGNS: Final = (BRIDGES, DIVERTS)


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by diverts and bridges at both sites."""
    if here.probed is None or there.probed is None:
        return None
    if not all(broker.has(sign) for broker in (here.probed, there.probed) for sign in SIGNS):
        return None
    brokers, shared = {}, {}
    for place, broker, peer in ((here, here.probed, there.probed), (there, there.probed, here.probed)):
        listeners = link_listeners(broker, peer, "CORE")
        bridge = listeners.key("bridge", "what the peer's bridges use; no client may")
        fence = Key(
            "lasting_fence", {"roles": ["apps"]}, "the roles of the clients, never the bridges' own", sure=False
        )
        brokers[place.site] = [clients(broker, listeners.names), *bridge, fence]
        shared[place.site] = listeners.shared(OWN_LISTENER, "bridge")
    return Proposal("artemis-bridges", "diverts and bridges at both sites", brokers, shared=by_site(shared))


PROPOSER: Final = Proposer(Family.ARTEMIS, SIGNS, propose)
