"""`lab`: throw-away real brokers, faults, and traffic with a ledger."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from dr_ctl.application.result import LOST, Result
from dr_ctl.cli.session import Session
from dr_ctl.core.document import document
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.core.notation import seconds
from dr_ctl_lab.lab.clients.client import Proto
from dr_ctl_lab.lab.clients.dialling import missing_part
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.loads import running
from dr_ctl_lab.lab.stage import LoadOptions
from dr_ctl_lab.lab.status import SiteStatus
from dr_ctl_lab.lab.traffic import Target
from dr_ctl_lab.playground import Playground

PROGRESS_S = 0.5
MIN_CLIENTS = 2  # of each kind


QUEUES: Final = ("orders.in", "orders.out")


@dataclass(frozen=True, slots=True)
class LabOptions:
    """The options of `lab up`."""

    directory: Path
    queues: tuple[str, ...]
    delay_ms: int
    sites: tuple[str, str]
    topology: str
    pairs: int
    nodes: int
    replicates: bool
    version: str

    @property
    def common(self) -> dict[str, Any]:
        """The options of both real and simulated brokers."""
        real_only = ("directory", "version")
        return {member.name: getattr(self, member.name) for member in fields(self) if member.name not in real_only}


def site_names(sites: str) -> tuple[str, str]:
    """The sites' names. UsageError where there are not two."""
    match sites.split(","):
        case [first, second] if first and second:
            return first, second
    raise UsageError(f"--sites {sites}: a lab has two sites", remedy="As in --sites london,paris.")


def opened(directory: Path) -> Lab | Playground:
    """Open the lab or twin of a directory. UsageError where there is none."""
    return Playground.open(directory) if Playground.is_at(directory) else Lab.open(directory)


def up(session: Session, options: LabOptions, plugin: Path | None) -> Result:
    """Start real brokers."""
    session.say(
        f"starting {2 * options.pairs * options.nodes} brokers; the first time their distribution is fetched with Maven"
    )
    kind_options = {} if plugin is None else {"plugin": plugin}
    common = {"serving": options.sites[0], **options.common}
    lab = Lab.up(options.directory, options=kind_options, version=options.version, **common)
    return _is_up(lab, options)


def twin_up(session: Session, options: LabOptions, plugin: Path | None) -> Result:
    """Start simulated brokers, in a process of their own."""
    if plugin is not None:
        raise UsageError("--plugin: simulated brokers load no plugin", remedy="Leave it out; the twin acts as it does.")
    if options.version:
        raise UsageError("--broker-version: simulated brokers have no other version", remedy="Leave it out.")
    session.say(f"starting {2 * options.pairs * options.nodes} simulated brokers")
    return _is_up(Playground.up(options.directory, **options.common), options)


def _is_up(lab: Lab | Playground, options: LabOptions) -> Result:
    data: dict[str, Json] = {"settings": str(lab.settings_path), "lab": document(lab.status())}
    text = f"next: dr-ctl --config {lab.settings_path} status"
    return Result(ExitCode.OK, f"{options.sites[0]} serves; settings: {lab.settings_path}", data=data, text=text)


def status(session: Session, directory: Path) -> Result:
    del session
    lab = opened(directory)
    lab_status = lab.status()
    several = len({site.pair for site in lab_status.sites}) > 1
    lines = [
        f"{_place_name(site.name, site.pair * several, site.node):<20} {'runs' if site.running else 'does not run'}"
        f"{', frozen' if site.frozen else ''}{'' if site.answers else ', management does not answer'}"
        f"{', waits for its turn' if site.active is False and site.running else ''}"
        f"{_clients_text(site, lab.queues)}{', its processor does not run' if site.processor is False else ''}"
        for site in lab_status.sites
    ]
    lines += [
        f"link {link.source} -> {_place_name(link.target, link.pair * several, link.node)}: "
        f"{link.mode or 'its proxy does not answer'}, "
        f"{'not known' if link.delay_ms is None else f'{link.delay_ms:g} ms'} each way, "
        f"{'connected' if link.connected else 'not known' if link.connected is None else 'not connected'}"
        for link in lab_status.links
    ]
    return Result(ExitCode.OK, f"lab {lab_status.name}", data=document(lab_status), text="\n".join(lines))


def _place_name(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _clients_text(site: SiteStatus, queues: Sequence[str]) -> str:
    if not site.clients_open:
        return ""
    serves = site.serves or ()
    return ", lets clients in" + (f" at {', '.join(serves)}" if set(serves) < set(queues) else "")


def load(session: Session, directory: Path, rate: float, duration: str, protocols: Sequence[str]) -> Result:
    """Run traffic; exit 0 without loss and duplicates, else 11."""
    try:
        duration_s = seconds(duration)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error
    if not (rate > 0 and math.isfinite(rate)):
        raise UsageError(f"--rate {rate}: is a number above zero")
    lab = opened(directory)
    target = lab.target()
    chosen = _chosen_protocols(session, target, protocols)
    count = max(MIN_CLIENTS, len(chosen))
    options: LoadOptions = {"producers": count, "consumers": count, "protocols": chosen}
    options["variations"] = target.variations
    with running(lab.directory), lab.load(rate, **options) as traffic:
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, PROGRESS_S))
            counts = traffic.counts()
            session.say(f"{counts.sent} sent, {counts.received} received, {counts.awaited} awaited")
        verdict = traffic.stop()
    code = ExitCode.OK if verdict.clean else ExitCode.LOSS_REFUSED
    return Result(code, verdict.summary, data=document(verdict), word="" if verdict.clean else LOST)


def _chosen_protocols(session: Session, target: Target, names: Sequence[str]) -> tuple[Proto, ...]:
    """The named protocols, else all that the brokers speak and this machine has clients for. UsageError for one that
    the brokers do not speak."""
    named = {protocol.value: protocol for protocol in target.protocols}
    if unknown := [name for name in names if name not in named]:
        raise UsageError(f"--protocol {unknown[0]}: the brokers of this lab speak {', '.join(named)}")
    if names:
        chosen = tuple(named[name] for name in dict.fromkeys(names))
        if missing := [fault for item in chosen if (fault := missing_part(item)) is not None]:
            raise missing[0]
        return chosen
    items = []
    for protocol in target.protocols:
        if (fault := missing_part(protocol)) is None:
            items.append(protocol)
        else:
            session.say(f"no client speaks {protocol.value}: {fault}. {fault.remedy}")
    return tuple(items)
