"""`lab`: throw-away real brokers, faults, and traffic with a ledger."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from dr_ctl.application.result import Result
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

LOOK_EVERY_S = 0.5
LEAST_CLIENTS = 2  # of each kind


QUEUES: Final = ("orders.in", "orders.out")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lab is to be like."""

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
    def alike(self) -> dict[str, Any]:
        """What is said of real brokers and of simulated ones."""
        own = ("directory", "version")
        return {member.name: getattr(self, member.name) for member in fields(self) if member.name not in own}


def two(sites: str) -> tuple[str, str]:
    """The sites' names. UsageError where there are not two."""
    match sites.split(","):
        case [one, other] if one and other:
            return one, other
    raise UsageError(f"--sites {sites}: a lab has two sites", remedy="As in --sites london,paris.")


def opened(directory: Path) -> Lab | Playground:
    """The lab or the twin that an earlier command started there. UsageError where there is none."""
    return Playground.open(directory) if Playground.is_at(directory) else Lab.open(directory)


def up(session: Session, wanted: Wanted, plugin: Path | None) -> Result:
    """Real brokers."""
    session.say(
        f"starting {2 * wanted.pairs * wanted.nodes} brokers; the first time their distribution is fetched with Maven"
    )
    options = {} if plugin is None else {"plugin": plugin}
    lab = Lab.up(wanted.directory, serving=wanted.sites[0], options=options, version=wanted.version, **wanted.alike)
    return _is_up(lab, wanted)


def twin_up(session: Session, wanted: Wanted, plugin: Path | None) -> Result:
    """Simulated ones, held by a process of their own."""
    if plugin is not None:
        raise UsageError("--plugin: simulated brokers load no plugin", remedy="Leave it out; the twin acts as it does.")
    if wanted.version:
        raise UsageError("--broker-version: simulated brokers have no other version", remedy="Leave it out.")
    session.say(f"starting {2 * wanted.pairs * wanted.nodes} simulated brokers")
    return _is_up(Playground.up(wanted.directory, **wanted.alike), wanted)


def _is_up(lab: Lab | Playground, wanted: Wanted) -> Result:
    data: dict[str, Json] = {"settings": str(lab.settings_path), "lab": document(lab.status())}
    text = f"next: dr-ctl --config {lab.settings_path} status"
    return Result(ExitCode.OK, f"{wanted.sites[0]} serves; settings: {lab.settings_path}", data=data, text=text)


def status(session: Session, directory: Path) -> Result:
    del session
    lab = opened(directory)
    standing = lab.status()
    several = len({site.pair for site in standing.sites}) > 1
    lines = [
        f"{_called(site.name, site.pair * several, site.node):<20} {'runs' if site.running else 'does not run'}"
        f"{', frozen' if site.frozen else ''}{'' if site.answers else ', management does not answer'}"
        f"{', waits for its turn' if site.active is False and site.running else ''}"
        f"{_letting_in(site, lab.queues)}{', its processor does not run' if site.processor is False else ''}"
        for site in standing.sites
    ]
    lines += [
        f"link {link.source} -> {_called(link.target, link.pair * several, link.node)}: "
        f"{link.mode or 'its proxy does not answer'}, "
        f"{'not known' if link.delay_ms is None else f'{link.delay_ms:g} ms'} each way, "
        f"{'connected' if link.connected else 'not known' if link.connected is None else 'not connected'}"
        for link in standing.links
    ]
    return Result(ExitCode.OK, f"lab {standing.name}", data=document(standing), text="\n".join(lines))


def _called(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _letting_in(site: SiteStatus, queues: Sequence[str]) -> str:
    if not site.clients_open:
        return ""
    serves = site.serves or ()
    return ", lets clients in" + (f" at {', '.join(serves)}" if set(serves) < set(queues) else "")


def load(session: Session, directory: Path, rate: float, lasting: str, protocols: Sequence[str]) -> Result:
    """Exit 0 when the ledger is clean, 11 when it is not: something was lost or delivered again."""
    try:
        duration_s = seconds(lasting)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error
    if not (rate > 0 and math.isfinite(rate)):
        raise UsageError(f"--rate {rate}: is a number above zero")
    lab = opened(directory)
    target = lab.target()
    spoken = _chosen_protocols(session, target, protocols)
    many = max(LEAST_CLIENTS, len(spoken))
    options: LoadOptions = {"producers": many, "consumers": many, "protocols": spoken, "variations": target.variations}
    with running(lab.directory), lab.load(rate, **options) as traffic:
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_EVERY_S))
            counts = traffic.counts()
            session.say(f"{counts.sent} sent, {counts.received} received, {counts.awaited} awaited")
        verdict = traffic.stop()
    code = ExitCode.OK if verdict.clean else ExitCode.LOSS_REFUSED
    return Result(code, verdict.summary, data=document(verdict))


def _chosen_protocols(session: Session, target: Target, names: Sequence[str]) -> tuple[Proto, ...]:
    """The protocols of the clients: those asked for, else all that the brokers speak and this machine has clients of.
    UsageError for one that the brokers do not speak."""
    named = {protocol.value: protocol for protocol in target.protocols}
    if unknown := [request for request in names if request not in named]:
        raise UsageError(f"--protocol {unknown[0]}: the brokers of this lab speak {', '.join(named)}")
    if names:
        wanted = tuple(named[fromkey] for fromkey in dict.fromkeys(names))
        if missing := [fault for item in wanted if (fault := missing_part(item)) is not None]:
            raise missing[0]
        return wanted
    items = []
    for protocol in target.protocols:
        if (fault := missing_part(protocol)) is None:
            items.append(protocol)
        else:
            session.say(f"no client speaks {protocol.value}: {fault}. {fault.remedy}")
    return tuple(items)
