"""What `init` writes for two Classic brokers that share a store."""

from typing import Final

from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, clients


def propose(here: Place, there: Place) -> Proposal | None:
    """Recognized by one broker that answers, and one that refuses connections: a broker that waits for the store has no
    port open."""
    both = [here, there]
    if len([place for place in both if place.probed is not None]) != 1:
        return None
    known = next(place.probed for place in both if place.probed is not None)
    brokers = {}
    for place in both:
        name = place.probed.broker if place.probed is not None else place.site
        own = Key("broker", name, "its brokerName, as the lock's row has it", sure=place.probed is not None)
        brokers[place.site] = [own, clients(known)]
    store = Key("store", {"lock": "/shared/kahadb/lock"}, "or {dsn: {env: STORE_DSN}} for a database", sure=False)
    why = "one broker answers, the other refuses connections: as a broker does that waits for a store"
    return Proposal("classic-shared-store", why, brokers, (store,))


PROPOSER: Final = Proposer(Family.CLASSIC, (), propose)
