"""What `validate` checks beside the brokers: roles, lock, runs, settings and history."""

from collections.abc import Iterator, Mapping

from dr_ctl.application import estimates, lock, offline
from dr_ctl.application.installation import Opened
from dr_ctl.application.recovery_options import open_run_findings
from dr_ctl.application.status import not_one, silent_of
from dr_ctl.application.verdicts import Judge
from dr_ctl.core.model import Finding, Role
from dr_ctl.engine.parts import is_split, served_where
from dr_ctl.engine.ports import Check
from dr_ctl.engine.roles import stand
from dr_ctl.topologies.topology import Snapshot


def installed(
    opened: Opened, snapshot: Snapshot, judge: Judge, forbidden: Mapping[tuple[str, str], Finding]
) -> Iterator[Check]:
    """Checks beside the brokers' own figures."""
    yield from _answers(snapshot)
    yield from _as_a_whole(opened, snapshot, judge)
    yield from _can_be_made(snapshot, forbidden)
    yield from offline.checked(opened.installation)


def _answers(snapshot: Snapshot) -> Iterator[Check]:
    for broker in snapshot.brokers:
        where = f"{broker.site}/{broker.pair}"
        if broker.silent is None:
            yield Check("the broker answers", where, broker.role.value)
        else:
            yield Check("the broker answers", where, None, silent_of(broker))


def _as_a_whole(opened: Opened, snapshot: Snapshot, judge: Judge) -> Iterator[Check]:
    name = opened.installation.settings.name
    roles = stand(snapshot)
    known = all(role in (Role.SERVING, Role.STANDBY, Role.DOWN) for role in snapshot.roles.values())
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    yield Check("the roles of both sites are known", name, roles if known else None)
    moved = opened.topology.recipe.moves_parts and is_split(snapshot)
    who = f"each queue at one site: {served_where(snapshot)}" if moved else roles
    yield Check("one site serves", name, who if len(serving) == 1 or known else None, list(not_one(judge)))
    run = judge.open_run
    yield Check("no run is open", name, run.files.name if run else "none", open_run_findings(run))
    yield Check("no run holds the lock", name, judge.held or "nobody does", lock.holders(snapshot))
    owed = [debt.text for debt in snapshot.debts]
    yield Check("nothing is owed", name, "; ".join(owed) or "no debt")
    site = serving[0] if len(serving) == 1 else None
    if site is not None:
        document, line, findings = estimates.with_age(opened.installation, site)
        yield Check("an estimate is stored, and fresh", name, line if document is not None else None, findings)


def _can_be_made(snapshot: Snapshot, forbidden: Mapping[tuple[str, str], Finding]) -> Iterator[Check]:
    for site in snapshot.roles:
        yield Check("a fence can be made", site, snapshot.fence_strength(site))
    for broker in snapshot.brokers:
        where = f"{broker.site}/{broker.pair}"
        against = [forbidden[broker.site, broker.pair]] if (broker.site, broker.pair) in forbidden else []
        answered = broker.silent is None
        yield Check("a lock can be created", where, ("no" if against else "yes") if answered else None, against)
