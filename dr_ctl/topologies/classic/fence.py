"""A fence by transport connectors, each of which stands for the clients on its port."""

from __future__ import annotations

from dr_ctl.topologies.common.fence import Fence


class Connectors(Fence):
    def strangers(self) -> list[str]:
        doors = (*self.leaves_open, *self.view.link.doors)
        ports = {door.port: door.name for door in doors if door.port is not None}
        return [
            f"client {each.client or '(no client id)'} from {each.remote} (user {each.user or 'none'}) on connector "
            f"{ports[each.port]}"
            for each in self.view.connections
            if each.port in ports
        ]
