"""`lab`: throw-away real brokers, faults, and traffic with a ledger."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.settings.durations import seconds
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.status import SiteStatus

LOOK_EVERY_S = 0.5


def up(
    session: Session,
    directory: Path,
    queues: list[str] | None,
    delay_ms: int,
    sites: str,
    *,
    topology: str,
    plugin: Path | None,
    pairs: int,
) -> Result:
    names = tuple(sites.split(","))
    if len(names) != 2:  # noqa: PLR2004
        raise UsageError(f"--sites {sites}: a lab has two sites", remedy="As in --sites london,paris.")
    session.say(f"starting {2 * pairs} brokers; the first time their distribution is fetched with Maven")
    both = (names[0], names[1])
    lab = Lab.up(
        directory,
        sites=both,
        serving=both[0],
        queues=queues or ("orders.in", "orders.out"),
        delay_ms=delay_ms,
        topology=topology,
        options={} if plugin is None else {"plugin": plugin},
        pairs=pairs,
    )
    data: dict[str, Json] = {"settings": str(lab.settings_path), "lab": lab.status().as_json()}
    text = f"next: dr-ctl --config {lab.settings_path} status"
    return Result(ExitCode.OK, f"{names[0]} serves; settings: {lab.settings_path}", data=data, text=text)


def status(session: Session, directory: Path) -> Result:
    del session
    lab = Lab.open(directory)
    told = lab.status()
    several = len({site.pair for site in told.sites}) > 1
    lines = [
        f"{f'{site.name}/{site.pair}' if several else site.name:<20} {'runs' if site.running else 'does not run'}"
        f"{', frozen' if site.frozen else ''}{'' if site.answers else ', management does not answer'}"
        f"{_letting_in(site, lab.queues)}{', its processor does not run' if site.processor is False else ''}"
        for site in told.sites
    ]
    lines += [
        f"link {link.source} -> {link.target}{f' ({link.pair})' if several else ''}: "
        f"{link.mode or 'its proxy does not answer'}, "
        f"{'not known' if link.delay_ms is None else f'{link.delay_ms:g} ms'} each way, "
        f"{'connected' if link.connected else 'not known' if link.connected is None else 'not connected'}"
        for link in told.links
    ]
    return Result(ExitCode.OK, f"lab {told.name}", data=told.as_json(), text="\n".join(lines))


def _letting_in(site: SiteStatus, queues: Sequence[str]) -> str:
    if not site.clients_open:
        return ""
    serves = site.serves or ()
    return ", lets clients in" + (f" at {', '.join(serves)}" if set(serves) < set(queues) else "")


def load(session: Session, directory: Path, rate: float, lasting: str) -> Result:
    """Exit 0 when the ledger is clean, 11 when it is not: something was lost or came twice."""
    try:
        duration_s = seconds(lasting)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error
    if not (rate > 0 and math.isfinite(rate)):
        raise UsageError(f"--rate {rate}: is a number above zero")
    with Lab.open(directory).load(rate) as traffic:
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_EVERY_S))
            counts = traffic.counts()
            session.say(f"{counts.sent} sent, {counts.received} received, {counts.awaited} awaited")
        verdict = traffic.stop()
    code = ExitCode.OK if verdict.clean else ExitCode.LOSS_REFUSED
    return Result(code, verdict.told, data=verdict.as_json())
