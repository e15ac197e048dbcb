"""Watching: a small look says of outflows what a whole one says, a late broker keeps nobody waiting, and what was seen
is on disk when the monitor is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.model import Role
from dr_ctl.core.patience import Patience
from dr_ctl.jolokia.client import READ_S
from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.history.files import TAILS
from dr_ctl.rpo.history.row import GLANCED, Row
from dr_ctl.rpo.history.writer import Writer
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl.topologies.common.watching import LATE_S
from dr_ctl.topologies.topology import Topology, glance_of
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, MIRROR
from tests.twin.subject import until

pytestmark = pytest.mark.wire

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
GLANCING = pytest.mark.parametrize("topology", [MIRROR, CONTINUITY, BRIDGES, BROKERSYNC])


@pytest.fixture
def opened(twin: PlayedTwin) -> Iterator[Topology[Any]]:
    installation = load(twin.settings_path)
    with closing(registry.opened(installation, SystemClock(), Patience(), installation.file.parent)) as opened:
        yield opened


def told(rows: Any) -> list[Row]:
    """Without the age of the oldest, which a look at everything tells beside."""
    of_outflows = [replace(row, oldest_ms=None) for row in rows if row.kind in GLANCED]
    return sorted(of_outflows, key=lambda row: (row.site, row.kind, row.name))


@GLANCING
def test_a_small_look_says_of_outflows_and_roles_what_a_whole_one_says(twin: PlayedTwin, opened: Topology[Any]) -> None:
    opened.look()
    with twin.load(200) as traffic:
        traffic.wait_for(50)
        twin.cut("london", "hang")
        traffic.wait_for(150)
        traffic.stop()

    whole, small = opened.look(), glance_of(opened)

    assert small is not None
    assert small.seen.roles == whole.roles
    assert told(small.seen.rows(AT)) == told(whole.rows(AT))
    assert sum(row.depth or 0 for row in told(whole.rows(AT)) if row.site == "london") > 0


@pytest.mark.deep
def test_a_site_that_says_nothing_keeps_nobody_from_the_outflow_of_the_other(
    twin: PlayedTwin, opened: Topology[Any]
) -> None:
    glance_of(opened, whole=True)
    twin.freeze("paris")

    roles, took, ago = [], [], []
    until_s = time.monotonic() + READ_S + 3 * LATE_S
    while time.monotonic() < until_s:
        began = time.monotonic()
        glance = glance_of(opened, whole=len(took) % 7 == 3)
        assert glance is not None
        took.append(time.monotonic() - began)
        ago.append(glance.ago_s)
        assert [row.kind for row in glance.seen.rows(AT) if row.site == "london" and row.kind == "mixed"] == ["mixed"]
        roles.append(glance.seen.roles["paris"])
        time.sleep(0.05)

    assert max(took) < LATE_S + 0.5
    assert sum(each > LATE_S / 2 for each in took) <= 3  # once for each question that is asked anew
    assert roles[0] is Role.UNKNOWN  # nobody has answered yet
    assert roles[-1] is Role.SICK  # it takes connections, and says nothing
    assert LATE_S / 2 < max(ago) <= LATE_S + 0.1


@pytest.mark.deep
def test_what_a_monitor_saw_a_second_before_it_was_killed_bounds_a_failover(twin: PlayedTwin) -> None:
    history = twin.settings_path.parent / "history"
    words = [sys.executable, "-m", "dr_ctl", "--config", str(twin.settings_path), "monitor", "--quiet"]
    said = (twin.settings_path.parent / "monitor.log").open("wb")
    with (
        twin.load(200) as traffic,
        said,
        subprocess.Popen(words, stdout=said, stderr=said, env={**os.environ, "PATH": ""}) as monitor,
    ):
        until(lambda: any(history.glob(f"date=*/site=london/{TAILS}")), within_s=30)
        twin.cut("london", "hang")
        traffic.wait_for(traffic.counts().sent + 600)
        monitor.kill()
        monitor.wait()
        killed = datetime.now(UTC)
        twin.kill("london")
        found = bounds(history, site="london", now=datetime.now(UTC), pairs=twin.pairs)
        traffic.stop()

    assert not list(history.glob("date=*/site=london/2*.parquet"))  # nothing was due for the minute's file
    assert found.lost.read_at is not None
    assert killed - found.lost.read_at < timedelta(seconds=1.25)
    assert found.lost.at_most is not None

    Writer(history)

    assert not list(history.glob(f"date=*/site=*/{TAILS}"))
    again = bounds(history, site="london", now=datetime.now(UTC), pairs=twin.pairs)
    assert again.lost.read_at == found.lost.read_at
