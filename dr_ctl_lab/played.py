"""A twin with traffic: it has the interface of a lab of real brokers."""

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

# STOMP of twins without a lab of the same topology, by family.
FAMILIES: Final[Mapping[str, Dialect]] = {"artemis": ARTEMIS, "classic": CLASSIC}


def unknown_remaining(queues: Sequence[str]) -> int | None:
    """Return None: the number of remaining messages is not known."""
    del queues
    return None


class PlayedTwin(Twin, Loadable):
    """A twin with the interface of `Lab`, for a `Load`."""

    def site(self, name: str, pair: str | None = None, node: str | None = None) -> SiteState:
        """Ports, addresses and logins of a broker's node; by default of the active one."""
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
        """Management of a site's broker."""
        return KINDS.named(self.kind.topology).admin(self.site(site), timeout_s=timeout_s)

    def status(self) -> LabStatus:
        """The status, from the twin itself."""
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

    def target_without_count(self, pair: str | None = None) -> Target:
        """As `target`, but without a count of remaining messages, so that it can be sent to another process."""
        return replace(self.target(pair), remaining=unknown_remaining)

    def target(self, pair: str | None = None) -> Target:
        """The addresses for clients of a pair, for a `Load`."""
        hosts = [host for site in self.sites for host in self.nodes(site, pair).hosts]
        sites = tuple((host.broker.site, Address(*host.stomp)) for host in hosts)
        lab_kind = KINDS.named(self.kind.topology) if self.kind.topology in KINDS else None
        stores = {site: store_at(self.directory, self.site(site, pair).name) for site in self.sites}
        ids = None if lab_kind is None or lab_kind.ids is None else Ids(stores, lab_kind.ids.address)
        dialect = FAMILIES[self.kind.topology.partition("-")[0]] if lab_kind is None else lab_kind.dialect
        fan_out = None
        if lab_kind is not None and lab_kind.fan_out is not None:
            listeners = tuple(
                (site, self.host(site, pair).broker.acceptors[lab_kind.fan_out].port) for site in self.sites
            )
            addresses = tuple((site, Address("127.0.0.1", port)) for site, port in listeners)
            fan_out = FanOut(addresses, self.directory / REQUIRED_FILE)
            ids = Ids(dict.fromkeys(stores, store_at(self.directory, SHARED)), None)
        return Target(sites, self.site(self.sites[0], pair).app, self.left, ids, dialect, fan_out)
