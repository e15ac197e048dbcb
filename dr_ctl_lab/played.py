"""A twin with clients: a stage like a lab of real brokers for the demo, on simulated ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.stomp_io.address import Address
from dr_ctl_lab.lab.dialect import ARTEMIS, CLASSIC, Dialect
from dr_ctl_lab.lab.fanout import REQUIRED_FILE, FanOut
from dr_ctl_lab.lab.ids import SHARED, Ids, store_at
from dr_ctl_lab.lab.kinds import KINDS
from dr_ctl_lab.lab.spec import Admin
from dr_ctl_lab.lab.stage import Loadable
from dr_ctl_lab.lab.state import SiteState
from dr_ctl_lab.lab.status import LabStatus, LinkStatus, SiteStatus
from dr_ctl_lab.lab.traffic import Target
from dr_ctl_lab.twin.host import Host
from dr_ctl_lab.twin.site import Twin

# How clients speak STOMP to twins that no lab is like, by the family of brokers.
FAMILIES: Final[Mapping[str, Dialect]] = {"artemis": ARTEMIS, "classic": CLASSIC}


def nothing_is_known(queues: Sequence[str]) -> int | None:
    """How many messages are left, where nobody can tell."""
    del queues
    return None


class PlayedTwin(Twin, Loadable):
    """A twin that a `Load` can run on, in the words of `Lab`."""

    def site(self, name: str, pair: str | None = None, node: str | None = None) -> SiteState:
        """Ports, addresses and logins of a broker's node, called by its own name; of the active one by default."""
        host = self.host(name, pair, node)
        return SiteState(
            name=host.name,
            ports={
                "http": host.console_port,
                "clients": host.stomp[1],
                **{listener.name: listener.port for listener in host.acceptors.values()},
            },
            admin_password=host.admin[1],
            app_password=host.app[1],
            others={user: host.broker.users[user] for user in self.kind.roles},
        )

    def admin(self, site: str, *, timeout_s: float = 5.0) -> Admin:
        """Management of a site's broker, for setting a scene."""
        return KINDS.named(self.kind.topology).admin(self.site(site), timeout_s=timeout_s)

    def status(self) -> LabStatus:
        """Say how everything is, as the twin itself knows it."""
        with self.locked():
            return LabStatus(
                self.directory.name,
                tuple(
                    self._site_status(host)
                    for pair in self.pairs
                    for site in self.sites
                    for host in self.nodes(site, pair).hosts
                ),
                tuple(self._link_status(site, pair) for pair in self.pairs for site in self.sites),
            )

    def _site_status(self, host: Host) -> SiteStatus:
        broker, runs, active = host.broker, host.running, host.is_active
        serves = tuple(name for name in self.queues if active and broker.serves_queue(name))
        answers = runs and not host.frozen
        node = host.node if host.nodes.is_group else ""
        return SiteStatus(
            broker.site, broker.pair, node, runs, host.frozen, answers, active, bool(serves), serves, None
        )

    def _link_status(self, site: str, pair: str) -> LinkStatus:
        direction = self.direction(site, pair)
        connected = direction.source.alive and direction.source.attached
        return LinkStatus(site, self.other(site), pair, "", direction.mode.value, direction.delay_s * 1000, connected)

    def at_clients(self, pair: str | None = None) -> Target:
        """As `target`, in a form that another process can hold: what is left of the messages is not told."""
        return replace(self.target(pair), remaining=nothing_is_known)

    def target(self, pair: str | None = None) -> Target:
        """Where the clients of a pair may be served."""
        hosts = [host for site in self.sites for host in self.nodes(site, pair).hosts]
        sites = tuple((host.broker.site, Address(*host.stomp)) for host in hosts)
        like = KINDS.named(self.kind.topology) if self.kind.topology in KINDS else None
        stores = {site: store_at(self.directory, self.site(site, pair).name) for site in self.sites}
        ids = None if like is None or like.ids is None else Ids(stores, like.ids.address)
        dialect = FAMILIES[self.kind.topology.partition("-")[0]] if like is None else like.dialect
        fan_out = None
        if like is not None and like.fan_out is not None:
            listeners = tuple((site, self.host(site, pair).broker.acceptors[like.fan_out].port) for site in self.sites)
            addresses = tuple((site, Address("127.0.0.1", port)) for site, port in listeners)
            fan_out = FanOut(addresses, self.directory / REQUIRED_FILE)
            ids = Ids(dict.fromkeys(stores, store_at(self.directory, SHARED)), None)
        return Target(sites, self.site(self.sites[0], pair).app, self.left, ids, dialect, fan_out)
