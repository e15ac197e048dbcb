"""A twin with clients: a stage like a lab of real brokers for the demo, on simulated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dr_ctl.stomp_io.address import Address
from dr_ctl.stomp_io.dialect import ARTEMIS, CLASSIC, Dialect
from dr_ctl_lab.lab.fanout import LEAST_FILE, FanOut
from dr_ctl_lab.lab.ids import SHARED, Ids, store_at
from dr_ctl_lab.lab.kinds import KINDS
from dr_ctl_lab.lab.make import Admin
from dr_ctl_lab.lab.stage import Played
from dr_ctl_lab.lab.state import SiteState
from dr_ctl_lab.lab.traffic import Target
from dr_ctl_lab.twin.site import Twin

# How clients speak STOMP to twins that no lab is like, by the family of brokers.
FAMILIES: Final[Mapping[str, Dialect]] = {"artemis": ARTEMIS, "classic": CLASSIC}


class PlayedTwin(Twin, Played):
    """A twin that a `Load` can run on, in the words of `Lab`."""

    def site(self, name: str, pair: str | None = None) -> SiteState:
        """Ports, addresses and logins of a broker, called by its own name."""
        host = self.host(name, pair)
        return SiteState(
            name=host.broker.name,
            ports={
                "http": host.broker.console_port,
                "clients": host.stomp[1],
                **{door.name: door.port for door in host.broker.acceptors.values()},
            },
            admin_password=host.admin[1],
            app_password=host.app[1],
            others={user: host.broker.users[user] for user in self.kind.roles},
        )

    def admin(self, site: str, *, timeout_s: float = 5.0) -> Admin:
        """Management of a site's broker, for setting a scene."""
        return KINDS.named(self.kind.topology).admin(self.site(site), timeout_s=timeout_s)

    def target(self, pair: str | None = None) -> Target:
        """Where the clients of a pair may be served."""
        sites = tuple((site, self.site(site, pair).stomp) for site in self.sites)
        like = KINDS.named(self.kind.topology) if self.kind.topology in KINDS else None
        stores = {site: store_at(self.directory, self.site(site, pair).name) for site in self.sites}
        ids = None if like is None or like.ids is None else Ids(stores, like.ids.address)
        dialect = FAMILIES[self.kind.topology.partition("-")[0]] if like is None else like.dialect
        fan_out = None
        if like is not None and like.fan_out is not None:
            doors = tuple((site, self.host(site, pair).broker.acceptors[like.fan_out].port) for site in self.sites)
            addresses = tuple((site, Address("127.0.0.1", port)) for site, port in doors)
            fan_out = FanOut(addresses, self.directory / LEAST_FILE)
            ids = Ids(dict.fromkeys(stores, store_at(self.directory, SHARED)), None)
        return Target(sites, self.site(self.sites[0], pair).app, self.left, ids, dialect, fan_out)
