"""A fence by transport connectors, each of which stands for the clients on its port."""

from dr_ctl.topologies.classic.browsing import OWN_CLIENT
from dr_ctl.topologies.common.fence import Fence


class Connectors(Fence):
    def strangers(self) -> list[str]:
        """Clients at every connector that is none of theirs: the link's and dr-ctl's own too."""
        doors = [door for door in self.view.acceptors if door.name not in self.view.config.clients]
        ports = {door.port: door.name for door in doors if door.port is not None}
        return [
            f"client {each.client or '(no client id)'} from {each.remote} (user {each.user or 'none'}) on connector "
            f"{ports[each.port]}"
            for each in self.view.connections
            if each.port in ports and not each.client.startswith(OWN_CLIENT)
        ]
