"""What `init` writes for two brokers that the continuity plugin joins."""

from typing import Final

from dr_ctl.topologies.artemis.look import PLUGIN
from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, by_site, clients, link_doors, moving

OWN_DOOR: Final = '<acceptor name="mirror">tcp://0.0.0.0:61617?protocols=CORE</acceptor>'


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by the plugin's service."""
    if here.probed is None or there.probed is None or not (here.probed.has(PLUGIN) and there.probed.has(PLUGIN)):
        return None
    brokers, shared = {}, {}
    for place, broker, peer in ((here, here.probed, there.probed), (there, there.probed, here.probed)):
        doors = link_doors(broker, peer, "CORE")
        own = clients(broker, doors.names)
        if serving := moving(broker, peer):  # the plugin opens at one site what it closes at the other
            own = Key("clients", [*sorted(serving)], "the plugin's serving-acceptors: open at one site only")
        brokers[place.site] = [own, *doors.key("mirror", "what the peer's plugin uses: its external acceptor")]
        shared[place.site] = doors.shared(OWN_DOOR, "mirror")
    why = "the continuity plugin's service at both sites"
    return Proposal("artemis-continuity", why, brokers, shared=by_site(shared))


PROPOSER: Final = Proposer(Family.ARTEMIS, (PLUGIN,), propose)
