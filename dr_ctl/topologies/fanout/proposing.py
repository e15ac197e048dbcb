"""What `init` writes for two Classic brokers that producers write to side by side."""

import re
from dataclasses import replace
from typing import Final

from dr_ctl.topologies.proposing import Family, Key, Place, Proposal, Proposer, clients

PRODUCERS: Final = re.compile(r"produc", re.IGNORECASE)


def propose(here: Place, there: Place) -> Proposal | None:
    """Two brokers that know nothing of each other: so it is proposed where no other topology was recognized."""
    if here.probed is None or there.probed is None:
        return None
    brokers = {}
    for place, broker in ((here, here.probed), (there, there.probed)):
        named = [listener.name for listener in broker.listeners if PRODUCERS.search(listener.name)]
        why = "the connectors of producers, open at both sites"
        producers = Key("producers", [*(named or ("producers",))], why, bool(named))
        consumers = replace(
            clients(broker, named), sure=False, why="the connectors of consumers alone: a fence closes them"
        )
        brokers[place.site] = [consumers, producers]
    header = Key("id_header", "UniqueMessageID", "the property by which producers name a message", sure=False)
    return Proposal("classic-fanout", "two brokers that nothing joins", brokers, (header,))


PROPOSER: Final = Proposer(Family.CLASSIC, (), propose)
