"""What an Artemis broker is and has, before there are settings for it."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.jolokia.client import READ_S, Read, Reader, Search
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.post import Post
from dr_ctl.topologies.artemis import beans, look
from dr_ctl.topologies.proposing import Door, Family, Probed

# What stands behind the name of the broker's own bean, of what joins sites.
BROKER_CONNECTIONS: Final = ",component=broker-connections,name=*"
PLUGIN: Final = ',component=continuity,name="continuity.service"'
BRIDGES: Final = ",component=bridges,name=*"
DIVERTS: Final = ",component=addresses,address=*,subcomponent=diverts,divert=*"


def probe(reader: Reader, signs: Sequence[str], *, timeout_s: float = READ_S) -> Probed | None:
    """The broker there; None where none of this family answers. Raises `BrokerError`."""
    try:
        broker = look.find_broker(reader, timeout_s=timeout_s)
    except NoSuchBean:
        return None
    post = Post()
    version = post.ask(Read(beans.server(broker), ("Version",)))
    acceptors = post.ask(Read(beans.all_acceptors(broker), look.ACCEPTOR))
    asked = {sign: post.ask(Search(beans.server(broker) + sign)) for sign in signs}
    post.send(reader, timeout_s=timeout_s)
    doors = [look.acceptor(bean, row) for bean, row in look.found(acceptors.answer())]
    return Probed(
        Family.ARTEMIS,
        broker,
        version.fields().text("Version"),
        [
            Door(each.name, each.protocols, each.port, each.started)
            for each in sorted(doors, key=lambda each: each.name)
            if each.port is not None  # nobody comes in from outside by a door within the process
        ],
        {sign: tuple(map(str, each.value())) for sign, each in asked.items()},
    )
