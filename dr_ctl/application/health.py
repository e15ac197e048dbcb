"""`check`, for machines: one line and 0, 1, 2 or 3, as monitoring systems read them, in its own time. Only looks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from dr_ctl.application import lost_site, rehearsing
from dr_ctl.application.caller import Caller
from dr_ctl.application.estimates import with_age
from dr_ctl.application.installation import Opened
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.application.lost_site import lost_pairs, not_read, without_rights
from dr_ctl.application.result import Result
from dr_ctl.application.standing import owed_now
from dr_ctl.application.verdicts import Judge
from dr_ctl.core.document import key
from dr_ctl.core.errors import DrCtlError, TimedOut
from dr_ctl.core.model import ExitCode, Health, Role, some
from dr_ctl.core.notation import duration
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.parts import is_split, served_where, unserved
from dr_ctl.engine.ports import NO_HINTS, UnitSnapshot
from dr_ctl.engine.roles import stand, stand_of
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.topologies.topology import Snapshot

OVERDUE: Final = timedelta(days=1)
"""After this time a debt is no longer the end of an incident, but something forgotten."""
OLD_LOOK_S: Final = 60.0
"""A monitor that lives looks every few seconds."""
LOOKS: Final = 0.6
"""The part of the time that looks at both sites may take; history is read in the rest."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is not as it should be, and how bad that is."""

    health: Health = field(metadata=key(of="word", shape=Literal["ok", "warning", "critical", "unknown"]))
    text: str

    @property
    def word(self) -> str:
        return self.health.name.lower()


@dataclass(frozen=True, slots=True)
class SiteRole:
    role: Role


@dataclass(frozen=True, slots=True)
class CheckData:
    sites: Mapping[str, SiteRole]
    pairs: Sequence[UnitSnapshot]
    problems: Sequence[Problem]
    open_run: str | None
    newest_look_s: float | None
    rehearsed_at: datetime | None
    bounds: Bounds | None


def check(caller: Caller, within_s: float) -> Result:
    """Judge one look at both sites; what could not be asked is unknown, never well."""
    try:
        with Opened.of(caller) as opened:
            for site in opened.sites:
                opened.topology.spend_at_most(within_s * LOOKS, site)
            snapshot: Snapshot = opened.topology.observe()
            return _judged(caller, opened, snapshot)
    except DrCtlError as error:
        return unknown(error)


def unknown(error: DrCtlError) -> Result:
    """The answer where nothing could be asked."""
    text = f"UNKNOWN - {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return Result(ExitCode.UNKNOWN, text, health=Health.UNKNOWN)


def _judged(caller: Caller, opened: Opened, snapshot: Snapshot) -> Result:
    debts = owed_now(caller, snapshot).debts
    judge = Judge.of(caller, opened, snapshot, snapshot.links())
    site, run = judge.served_by, judge.open_run
    exposure = judge.if_lost(site) if site is not None else None
    bounds = exposure.now() if exposure is not None else None
    read_at = bounds.lost.read_at if bounds is not None else None
    look_s = (caller.clock.now() - read_at).total_seconds() if read_at is not None else None
    against = [*_failover(judge, exposure), *_history(judge, look_s)]
    problems = [
        *_roles(judge),
        *_links(snapshot),
        *_obstacles(snapshot),
        *_debts(debts, caller.clock.now()),
        *((Problem(Health.WARNING, f"run {run.files.name} was interrupted"),) if run and not run.lives else ()),
        *against,
    ]
    health = max((each.health for each in problems), key=lambda each: each.rank, default=Health.OK)
    served = f"both sites serve: {served_where(snapshot)}" if is_split(snapshot) else ""
    served = f"{site} serves" if site is not None else served
    well = [
        "failover ready" if exposure is not None and not against else "",
        f"newest sample {duration(round(look_s, 1))} old" if look_s is not None and look_s <= OLD_LOOK_S else "",
    ]
    rehearsed = rehearsing.last(caller.runs())
    if rehearsed is not None:
        days = (caller.clock.now() - rehearsed).days
        well.append(f"rehearsed {days} d ago" if days else "rehearsed today")
    worst = sorted(problems, key=lambda each: each.health.rank, reverse=True)
    line = f"{health.name} - {'; '.join(filter(None, [served, *(each.text for each in worst), *well]))}"
    data = CheckData(
        {site: SiteRole(role) for site, role in snapshot.roles.items()},
        snapshot.units,
        worst,
        run.files.name if run is not None else None,
        look_s,
        rehearsed,
        bounds,
    )
    code = ExitCode.OK if health is Health.OK else ExitCode.UNKNOWN
    return Result(code, line, data=data, debts=debts, health=health)


def _roles(judge: Judge) -> Iterator[Problem]:
    snapshot, parts, whole = judge.snapshot, judge.opened.topology.recipe.moves_parts, judge.open_run is None
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    unknown = [site for site, role in snapshot.roles.items() if role in (Role.UNKNOWN, Role.SICK)]
    if any(len(unit.open_at) > 1 for unit in snapshot.units):
        yield Problem(Health.CRITICAL, f"split brain: both sites let clients in: {served_where(snapshot)}")
    elif is_split(snapshot) and not parts:
        yield Problem(Health.CRITICAL, f"the pairs are served at different sites: {served_where(snapshot)}")
    elif not serving:
        yield Problem(Health.UNKNOWN if unknown else Health.CRITICAL, f"no site was seen to serve: {stand(snapshot)}")
    elif whole:
        yield from (Problem(Health.CRITICAL, each.text) for each in unserved(snapshot, parts=parts))
        yield from (Problem(Health.CRITICAL, each.text) for each in without_rights(snapshot))
    lost = [each.text for each in lost_pairs(snapshot)] if whole else []
    yield from (Problem(Health.CRITICAL, text) for text in lost)
    causes = [] if serving else [not_read(snapshot, site) for site in snapshot.roles]
    yield from (Problem(Health.UNKNOWN, each.text) for each in causes if each is not None)
    for each in snapshot.brokers:
        is_named = snapshot.roles[each.site] is Role.DOWN or any(f"{each.site}/{each.pair} is" in text for text in lost)
        if each.silent is not None and serving and not is_named:
            state = "did not answer in time" if isinstance(each.silent, TimedOut) else f"is {each.role.value}"
            yield Problem(Health.WARNING, f"{each.site}/{each.pair} {state}")


def _links(snapshot: Snapshot) -> Iterator[Problem]:
    """The links that are not attached. One to a broker that did not answer says nothing more than that."""
    silent = {(each.site, each.pair) for each in snapshot.brokers if each.silent is not None}
    away = [
        f"{link.site}/{link.pair}"
        for link in snapshot.links()
        if link.attached is False
        and not any((site, link.pair) in silent for site in snapshot.roles if site != link.site)
    ]
    if away:
        yield Problem(Health.WARNING, f"the link of {some(away)} is not attached")


def _obstacles(snapshot: Snapshot) -> Iterator[Problem]:
    """A site where no client can send serves nobody; of a site that waits it is only to be known."""
    for each in snapshot.brokers:
        for obstacle in (obstacle for obstacle in each.obstacles if obstacle.known):
            out = each.role is Role.SERVING and not obstacle.addresses
            yield Problem(Health.CRITICAL if out else Health.WARNING, f"{each.site}/{each.pair}: {obstacle.text}")


def _debts(debts: Sequence[Debt], now: datetime) -> Iterator[Problem]:
    for debt in debts:
        late = now - datetime.fromisoformat(debt.since) > OVERDUE
        text = f"{'overdue' if late else 'owed'} since {debt.since}: {debt.text}"
        yield Problem(Health.CRITICAL if late else Health.WARNING, text)


def _failover(judge: Judge, exposure: LossBound | None) -> Iterator[Problem]:
    """Whether the other site could take over, and within the objectives."""
    if exposure is None:
        return
    snapshot, other = judge.snapshot, judge.opened.other(exposure.lost)
    if nodes := snapshot.hints.get(exposure.lost, NO_HINTS).nodes:
        yield Problem(Health.WARNING, f"failover to {other} would ask for a person's word: {some(nodes)}")
    if snapshot.roles[other] is not Role.STANDBY:
        yield Problem(Health.CRITICAL, f"failover impossible: {stand_of(snapshot, other)}")
    elif (refused := exposure.too_high(Ask(FAILOVER, other))) is not None:
        yield Problem(Health.WARNING, f"failover to {other} would be refused now: {refused.text}")


def _history(judge: Judge, look_s: float | None) -> Iterator[Problem]:
    if judge.served_by is None:
        return
    if look_s is None or look_s > OLD_LOOK_S:
        age = "there is no sample" if look_s is None else f"the newest sample is {duration(round(look_s))} old"
        unread = lost_site.last_look(judge.opened.installation).silent
        yield from (Problem(Health.WARNING, each.text) for each in unread)
        if not unread:
            yield Problem(Health.WARNING, f"{age}: is `dr-ctl monitor` running?")
    document, _, _ = with_age(judge.opened.installation, judge.served_by)
    if isinstance(document, dict) and document.get("verdict") == "missed":
        yield Problem(Health.WARNING, "the objectives are missed, by the stored estimate")
