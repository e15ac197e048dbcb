"""The status of a lab: its brokers and the proxies of its links."""

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
    """The status of a broker, or of one of its nodes; only an `active` one serves. `clients_open` and `serves` (the
    queues that it serves) are None where it does not answer. `processor`: whether it runs; None where there is none."""

    name: str
    pair: str
    node: str
    running: bool
    frozen: bool
    answers: bool
    active: bool | None
    clients_open: bool | None
    serves: tuple[str, ...] | None
    processor: bool | None


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The status of a link to one node of the target: the mode of its proxy, and whether the source ships over it."""

    source: str
    target: str
    pair: str
    node: str
    mode: str | None
    delay_ms: float | None
    connected: bool | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    name: str
    sites: tuple[SiteStatus, ...]
    links: tuple[LinkStatus, ...]


def read(state: LabState) -> LabStatus:
    """Read the status. A part without an answer within two seconds counts as not answering."""
    with ThreadPoolExecutor(max_workers=4) as side_by_side:
        sites = side_by_side.map(lambda site: _site_status(state, site), state.sites)
        links = side_by_side.map(lambda link: _link_status(state, link), state.links)
        return LabStatus(state.name, tuple(sites), tuple(links))


def _site_status(state: LabState, site: SiteState) -> SiteStatus:
    running = site.process is not None and site.process.alive()
    frozen = site.process is not None and site.process.frozen()
    processor = None if site.processor is None else site.processor.alive()
    active, clients_open, serves = None, None, None
    if running:
        try:
            admin = KINDS.named(state.topology).admin(site, timeout_s=2)
            active = admin.active()
            if active:
                clients_open, serves = admin.clients_open(), tuple(admin.served(state.queues))
        except BrokerError:
            active = clients_open = serves = None
    answers = active is not None
    return SiteStatus(
        site.name, site.pair, site.node, running, frozen, answers, active, clients_open, serves, processor
    )


def _link_status(state: LabState, link: LinkState) -> LinkStatus:
    try:
        text: wire.WireState | None = wire.request(link.control, timeout_s=2)
    except EnvironmentFault:
        text = None
    connected: bool | None = None
    for source in state.brokers(link.source, link.pair):
        try:
            connected = KINDS.named(state.topology).admin(source, timeout_s=2).link_attached(link.target)
        except BrokerError:
            continue
    mode, delay_ms = (text.mode, text.delay_ms) if text else (None, None)
    return LinkStatus(link.source, link.target, link.pair, link.node, mode, delay_ms, connected)
