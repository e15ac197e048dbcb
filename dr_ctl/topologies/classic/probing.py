"""What a Classic broker is and has, before there are settings for it."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dr_ctl.jolokia.client import READ_S, Reader, Search
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.topologies.classic import beans, look
from dr_ctl.topologies.proposing import Door, Family, Probed

# What stands behind the name of the broker's own bean, of what joins sites.
NETWORKS: Final = ",connector=networkConnectors,networkConnectorName=*"


def probe(reader: Reader, signs: Sequence[str], *, timeout_s: float = READ_S) -> Probed | None:
    """The broker there; None where none of this family answers. Raises `BrokerError`."""
    try:
        broker = look.find_broker(reader, timeout_s=timeout_s)
    except NoSuchBean:
        return None
    answer = look.ask(reader, broker, timeout_s=timeout_s)
    found = reader.look([Search(beans.broker(broker) + sign) for sign in signs], timeout_s=timeout_s)
    networks = Counter(each.protocol for each, network in answer.connections if network)
    doors = [
        Door(each.name, each.protocols, each.port, each.started, networks[each.name])
        for each in sorted(answer.connectors, key=lambda each: each.name)
    ]
    return Probed(
        Family.CLASSIC,
        broker,
        answer.broker.text("BrokerVersion"),
        doors,
        {sign: tuple(map(str, each.value())) for sign, each in zip(signs, found, strict=True)},
    )
