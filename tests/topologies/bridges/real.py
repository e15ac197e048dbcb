"""What the tests on two real brokers that diverts and bridges join do to them, and read of them."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl_lab.lab.artemis.bridges import IDS, BridgesAdmin
from dr_ctl_lab.lab.ids import IdStore
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Verdict
from tests.broker.driving import Operator

QUEUES = ("FOO", "BAR", "BAZ")
OTHERS = QUEUES[1:]


def up(directory: Path, **more: object) -> Lab:
    return Lab.up(directory, topology=BRIDGES, queues=QUEUES, **more)  # type: ignore[arg-type]


def admin(lab: Lab, site: str) -> BridgesAdmin:
    return BridgesAdmin(lab.site(site))


def stop_bridges(lab: Lab, site: str, *, of_ids: bool) -> None:
    """Stop the bridge of the ids alone, or those of the messages: what is to be shipped stays in its buffer."""
    broker = admin(lab, site)
    for bean, one in broker._beans("component=bridges,name=*", "ForwardingAddress").items():
        if (one["ForwardingAddress"] == IDS) is of_ids:
            broker._execute(bean, "stop()")


def ids(lab: Lab, site: str) -> set[tuple[str, str]]:
    """All that a site's store knows as processed."""
    store = IdStore(lab.id_store(site))
    try:
        return store.every()
    finally:
        store.close()


def shipped(lab: Lab, *sites: str) -> bool:
    """Nothing of these sites is under way, and all ids that arrived anywhere are in a store."""
    depths = {site: lab.admin(site).depths() for site in ("london", "paris")}
    held = [count for site in sites for name, count in depths[site].items() if name.startswith("mirror.")]
    return not any(held) and not any(told[IDS] for told in depths.values())


def assert_clean(verdict: Verdict) -> None:
    """Nothing lost, nothing worked on twice, and the queues were seen empty."""
    assert verdict.drained
    assert (verdict.lost, verdict.duplicates, verdict.redelivered, verdict.unexpected) == ((), (), (), ())


def now() -> str:
    """This moment as ledgers write it."""
    return stamp(SystemClock().now())


def fence_to_open(operator: Operator) -> float:
    """Seconds from the first call of the last run's fence to the last answer of its activation."""
    journal = operator.journal()
    first = next(each for each in journal if each["kind"] == "intent" and each["step"].endswith("-fence"))
    answers = [each for each in journal if each["kind"] == "result" and each["step"].endswith("-activate")]
    return (_time(answers[-1]["time"]) - _time(first["time"])).total_seconds()


def longest_gap(lab: Lab, queues: tuple[str, ...], since: str, until: str = "9") -> float:
    """The longest time in seconds in which one of these queues' clients received nothing, between two moments; of the
    latest load."""
    path = max(lab.ledgers.iterdir())
    moments: dict[str, list[float]] = {queue: [] for queue in queues}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        told = json.loads(line) if line.endswith("\n") else {"queue": None}
        if told["queue"] in moments and told["event"] == "received" and since <= told["ts"] <= until:
            moments[told["queue"]].append(told["at_s"])
    return max(after - before for each in moments.values() for before, after in pairwise(each))


def _time(told: str) -> datetime:
    return datetime.fromisoformat(told)
