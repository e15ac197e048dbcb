"""What `init` writes for two Artemis brokers, by what joins them."""

from dataclasses import replace
from typing import Final

from dr_ctl.topologies.artemis.reading import BRIDGES, BROKER_CONNECTIONS, DIVERTS, PLUGIN
from dr_ctl.topologies.proposing import (
    BrokerAddress,
    Family,
    Key,
    Proposal,
    Proposer,
    joined,
    moving,
    pairs,
    sites_with,
)

_CORE: Final = '<acceptor name="{}">tcp://0.0.0.0:61617?protocols=CORE</acceptor>'
_AMQP: Final = '<acceptor name="{}">tcp://0.0.0.0:5673?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>'


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
    """Recognized by diverts and bridges at both sites."""
    both = pairs(local, peer)
    if not both or any(len(sites_with(both, sign)) < len(both) for sign in (BRIDGES, DIVERTS)):
        return None
    why, comment = "diverts and bridges at both sites", "what the peer's bridges use; no client may"
    fence = Key("lasting_fence", {"roles": ["apps"]}, "the roles of the clients, never the bridges' own", sure=False)
    return joined("artemis-bridges", why, both, "CORE", _CORE, "bridge", comment, lambda *_: [fence])


MIRROR: Final = Proposer(Family.ARTEMIS, (BROKER_CONNECTIONS,), _mirror)
CONTINUITY: Final = Proposer(Family.ARTEMIS, (PLUGIN,), _continuity)
JOINED_BY_BRIDGES: Final = Proposer(Family.ARTEMIS, (BRIDGES, DIVERTS), _bridges)
