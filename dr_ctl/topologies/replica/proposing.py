"""What `init` writes for two Classic brokers with the replication plugin."""

from __future__ import annotations

from typing import Final

from dr_ctl.topologies.classic.probing import REPLICATION
from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, clients
from dr_ctl.topologies.replica import beans


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by the plugin's bean. A replica may have no console: then its own lines are those of the source."""
    known = next((each for each in (here.probed, there.probed) if each is not None and each.has(REPLICATION)), None)
    if known is None:
        return None
    port = next((door.port for door in known.doors if door.name == beans.DOOR), None)
    brokers = {}
    for place in (here, there):
        broker = place.probed or known
        door = Key(
            "replication", f"tcp://{place.host}:{port}", "the plugin's own connector: a replica has no other open"
        )
        brokers[place.site] = [clients(broker, (beans.DOOR,)), *([door] if port is not None else [])]
    return Proposal("classic-replica", "the replication plugin", brokers)


PROPOSER: Final = Proposer(Family.CLASSIC, (REPLICATION,), propose)
