"""How debts are paid: by a fence of the returned site, by a hook, by the monitor; and a move that is escalated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr_ctl.application.auto_reinstate import reinstatable
from dr_ctl.engine.debts import DebtKind
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.mirror.view import BrokerView
from tests.cli.conftest import Shell
from tests.cli.moving import failover, owed
from tests.cli.sites import Sites, sites
from tests.topologies.mirror.views import broker, seen

__all__ = ["sites"]  # a fixture


@pytest.fixture
def survived(dr_ctl: Shell, sites: Sites) -> Sites:
    """London was lost, and Paris serves."""
    sites.lose()
    assert failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0
    return sites


def owing(site: str, *, epoch: int, serving: bool = True, about: str | None = None) -> BrokerView:
    about = about or ("london" if site == "paris" else None)
    kept = {document(DebtKind.FENCE, about, site): "{}"} if about else {}
    view = broker(site, serving=serving)
    return replace(view, documents={**kept, f"dr-ctl.lock.{site}.{epoch}": "{}"})


@pytest.mark.parametrize(
    ("london", "paris", "sites_to_pay"),
    [
        (owing("london", epoch=3, serving=False), owing("paris", epoch=4), ("london",)),
        (owing("london", epoch=4, serving=True), owing("paris", epoch=4), ("london",)),
        (owing("london", epoch=5, serving=False), owing("paris", epoch=4), ()),
        (owing("london", epoch=3, serving=False), owing("paris", epoch=4, serving=False), ()),
        (owing("london", epoch=5, about="paris"), owing("paris", epoch=6), ()),
    ],
    ids=["closed", "open", "an older epoch", "nobody serves", "lost in turn"],
)
def test_only_what_a_person_need_not_decide_is_reinstatable(
    london: BrokerView, paris: BrokerView, sites_to_pay: tuple[str, ...]
) -> None:
    assert reinstatable(seen(london, paris)) == sites_to_pay


def test_sites_that_were_renamed_while_something_is_owed_get_their_names_back(dr_ctl: Shell, survived: Sites) -> None:
    path = dr_ctl.folder / "dr-ctl.yaml"
    told = path.read_text(encoding="utf-8")
    path.write_text(told.replace("  london:", "  oxford:").replace("  paris:", "  lyon:"), encoding="utf-8")
    survived.come_back()
    changes = list(survived.changes)

    status, refused = dr_ctl("status", "--json"), dr_ctl("reinstate", "oxford", "--yes", "--json")
    dr_ctl("monitor", "--for", "50ms", "--auto-reinstate", "--quiet")

    assert (status.code, "DR-STATE-002" in status.ids) == (0, True)
    assert (refused.code, refused.ids[0], survived.changes) == (10, "DR-STATE-002", changes)
    assert dr_ctl("fence", "oxford", "--dry-run").code == 0
    path.write_text(told, encoding="utf-8")
    assert dr_ctl("reinstate", "london", "--yes").code == 0
    assert owed(dr_ctl("status", "--json")) == []
