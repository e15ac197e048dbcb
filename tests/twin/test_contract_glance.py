"""A small look says of outflows and roles what a whole one says."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.patience import Patience
from dr_ctl.rpo.history.row import GLANCED, Row
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl.topologies.topology import glance_of
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, MIRROR

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def told(rows: Any) -> list[Row]:
    """Without the age of the oldest, which a look at everything tells beside."""
    of_outflows = [replace(row, oldest_ms=None) for row in rows if row.kind in GLANCED]
    return sorted(of_outflows, key=lambda row: (row.site, row.kind, row.name))


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY, BRIDGES, BROKERSYNC])
def test_a_small_look_says_of_outflows_and_roles_what_a_whole_one_says(twin: PlayedTwin) -> None:
    installation = load(twin.settings_path)
    with closing(registry.opened(installation, SystemClock(), Patience(), installation.file.parent)) as opened:
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
