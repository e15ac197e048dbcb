"""What `status` and `validate` say of a monitor: that it lives, that it looks no more, and when what was seen last."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dr_ctl.core.clock import stamp
from dr_ctl.core.system import system
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.cli.conftest import Shell
from tests.cli.sites import Sites, sites

__all__ = ["sites"]  # a fixture

EVERY_S = 5.0


def looked(dr_ctl: Shell, ago_s: float) -> datetime:
    """A history whose newest look is so old: London served, and its link was attached."""
    at = (system().now() - timedelta(seconds=ago_s)).replace(microsecond=0)
    rows = [
        Row(site="london", ts=at, pair="orders-1", kind="site", name="serving", took_ms=10),
        Row(site="london", ts=at, pair="orders-1", kind="mixed", name="*", added=0, depth=0, link=True),
        Row(site="paris", ts=at, pair="orders-1", kind="site", name="standby", took_ms=10),
    ]
    write(rows, dr_ctl.folder / "history")
    return at


@pytest.mark.parametrize("command", [("status",), ("validate",)])
@pytest.mark.parametrize(("ago_s", "is_told"), [(1, False), (50, False), (90, True), (3 * 86_400, True)])
@pytest.mark.usefixtures("sites")
def test_a_monitor_that_looks_no_more_is_told_with_its_last_look(
    dr_ctl: Shell, command: tuple[str, ...], ago_s: float, is_told: bool
) -> None:
    at = looked(dr_ctl, ago_s)

    ended = dr_ctl(*command, "--json")

    assert ended.document["data"]["last_look"] == stamp(at)
    told = [each["text"] for each in ended.document["findings"] if each["id"] == "DR-MON-002"]
    assert (
        told
        == [f"no monitor has looked since {stamp(at)}: what a failover would cost is known less and less"][
            : int(is_told)
        ]
    )


@pytest.mark.usefixtures("sites")
def test_where_none_has_ever_looked_that_is_null(dr_ctl: Shell) -> None:
    ended = dr_ctl("status", "--json")

    assert ended.document["data"]["last_look"] is None
    assert "DR-MON-002" not in ended.ids


def test_when_a_site_served_last_and_a_link_was_attached_last_bear_those_names(dr_ctl: Shell, sites: Sites) -> None:
    at = looked(dr_ctl, 7)
    attached = dr_ctl("status", "--json").document["data"]
    sites.lose()
    lost = dr_ctl("status", "--json").document["data"]

    assert attached["last_served"] is None
    assert [each for each in attached["links"] if "last_attached" in each] == []
    assert lost["last_served"] == stamp(at)
    assert all(each["last_attached"] in (stamp(at), None) for each in lost["links"] if each["attached"] is False)
