"""How a lab is: its brokers, the proxies of its links, and what does not answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dr_ctl.core.errors import BrokerError, EnvironmentFault
from dr_ctl_lab.lab import wire
from dr_ctl_lab.lab.kinds import KINDS

if TYPE_CHECKING:
    from dr_ctl_lab.lab.state import LabState, LinkState, SiteState


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """How one broker of a site is. `clients_open` is None where it does not say, `serves` too: which queues of the
    lab clients are served from here. `processor`: whether it runs, or None where the kind of lab has none."""

    name: str
    pair: str
    running: bool
    frozen: bool
    answers: bool
    clients_open: bool | None
    serves: tuple[str, ...] | None
    processor: bool | None


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How a link is: the mode of its proxy, and whether the broker at its source ships over it."""

    source: str
    target: str
    pair: str
    mode: str | None
    delay_ms: float | None
    connected: bool | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The whole lab as seen now."""

    name: str
    sites: tuple[SiteStatus, ...]
    links: tuple[LinkStatus, ...]


def read(state: LabState) -> LabStatus:
    """See how everything is; parts without an answer within two seconds are said not to answer."""
    with ThreadPoolExecutor(max_workers=4) as side_by_side:
        sites = side_by_side.map(lambda site: _site_status(state, site), state.sites)
        links = side_by_side.map(lambda link: _link_status(state, link), state.links)
        return LabStatus(state.name, tuple(sites), tuple(links))


def _site_status(state: LabState, site: SiteState) -> SiteStatus:
    running = site.process is not None and site.process.alive()
    frozen = site.process is not None and site.process.frozen()
    processor = None if site.processor is None else site.processor.alive()
    clients_open, serves = None, None
    if running:
        try:
            admin = KINDS.named(state.topology).admin(site, timeout_s=2)
            clients_open, serves = admin.clients_open(), tuple(admin.served(state.queues))
        except BrokerError:
            clients_open = serves = None
    return SiteStatus(site.name, site.pair, running, frozen, clients_open is not None, clients_open, serves, processor)


def _link_status(state: LabState, link: LinkState) -> LinkStatus:
    try:
        told: wire.WireState | None = wire.ask(link.control, timeout_s=2)
    except EnvironmentFault:
        told = None
    try:
        source = state.site(link.source, link.pair)
        connected: bool | None = KINDS.named(state.topology).admin(source, timeout_s=2).link_attached(link.target)
    except BrokerError:
        connected = None
    mode, delay_ms = (told.mode, told.delay_ms) if told else (None, None)
    return LinkStatus(link.source, link.target, link.pair, mode, delay_ms, connected)
