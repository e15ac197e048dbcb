"""A fence beside which producers go on, as a client is known by its connector's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.topologies.classic.browsing import OWN_CLIENT
from dr_ctl.topologies.common.fence import Fence
from dr_ctl.topologies.common.view import Connection

if TYPE_CHECKING:
    from dr_ctl.topologies.fanout.view import BrokerView


class BesideProducers(Fence):
    view: BrokerView

    def strangers(self) -> list[str]:
        """Clients at connectors that a fence leaves open, and consumers among the producers."""
        others = {*(door.name for door in self.leaves_open), self.view.own.connector}
        clients = [
            f"{_named(each)} on connector {each.protocol}"
            for each in self.view.connections
            if each.protocol in others and not each.client.startswith(OWN_CLIENT)
        ]
        where = {each.client: each.protocol for each in self.view.producers}
        taking = [each for each in self.view.consumers if each.queue in self.view.business and each.client in where]
        return clients + [f"consumer of {each.queue}: {each.told} on connector {where[each.client]}" for each in taking]


def _named(client: Connection) -> str:
    return f"client {client.client or '(no client id)'} from {client.remote} (user {client.user or 'none'})"
