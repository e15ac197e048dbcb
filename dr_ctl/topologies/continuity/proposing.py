"""What `init` writes for two brokers that the continuity plugin joins."""

from typing import Final

from dr_ctl.topologies.artemis.reading import PLUGIN
from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, by_site, clients, link_listeners, moving

OWN_LISTENER: Final = '<acceptor name="mirror">tcp://0.0.0.0:61617?protocols=CORE</acceptor>'


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by the plugin's service."""
    if here.probed is None or there.probed is None or not (here.probed.has(PLUGIN) and there.probed.has(PLUGIN)):
        return None
    brokers, shared = {}, {}
    for place, broker, peer in ((here, here.probed, there.probed), (there, there.probed, here.probed)):
        listeners = link_listeners(broker, peer, "CORE")
        own = clients(broker, listeners.names)
        if serving := moving(broker, peer):  # the plugin opens at one site what it closes at the other
            own = Key("clients", [*sorted(serving)], "the plugin's serving-acceptors: open at one site only")
        brokers[place.site] = [own, *listeners.key("mirror", "what the peer's plugin uses: its external acceptor")]
        shared[place.site] = listeners.shared(OWN_LISTENER, "mirror")
    why = "the continuity plugin's service at both sites"
    return Proposal("artemis-continuity", why, brokers, shared=by_site(shared))


PROPOSER: Final = Proposer(Family.ARTEMIS, (PLUGIN,), propose)
