"""How debts are paid: by a fence of the returned site, by a hook, by the monitor; and a move that is escalated."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dr_ctl.application.auto_reinstate import reinstatable
from dr_ctl.engine.debts import DebtKind
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.mirror.view import BrokerView
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.cli.moving import OWED, TAKEN_IN, begun, failover, owed
from tests.cli.sites import Sites, sites
from tests.report.scribe import NAME
from tests.topologies.mirror.views import broker, seen

__all__ = ["sites"]  # a fixture


@pytest.fixture
def survived(dr_ctl: Shell, sites: Sites) -> Sites:
    """London was lost, and Paris serves."""
    sites.lose()
    assert failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0
    return sites


class TestFence:
    @pytest.mark.parametrize("opened", [False, True])
    def test_a_site_that_is_back_pays_it(self, dr_ctl: Shell, survived: Sites, opened: bool) -> None:
        survived.come_back(opened=opened)

        ended = dr_ctl("fence", "london", "--yes", "--json")

        assert ended.code == 0, ended.document
        assert owed(ended) == OWED[1:]
        assert not survived.london.open
        assert survived.paris.open

    def hooked(self, folder: Path, text: str) -> None:
        script = folder / "fence.sh"
        script.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        path = folder / "dr-ctl.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        told["hooks"] = {"fence-host": {"run": ["./fence.sh"]}, "tell": {"run": ["./is-not-there"]}}
        path.write_text(yaml.safe_dump(told), encoding="utf-8")

    def test_of_a_site_that_is_away_a_hook_pays_it(self, dr_ctl: Shell, survived: Sites) -> None:
        self.hooked(dr_ctl.folder, 'echo "$DR_CTL_OPERATION $DR_CTL_SOURCE" > told')

        ended = dr_ctl("fence", "london", "--yes", "--json")

        assert ended.code == 0, ended.document
        assert owed(ended) == OWED[1:]
        assert (dr_ctl.folder / "told").read_text(encoding="utf-8") == "fence london\n"

    def test_a_hook_that_fails_pays_nothing(self, dr_ctl: Shell, survived: Sites) -> None:
        self.hooked(dr_ctl.folder, "exit 1")

        ended = dr_ctl("fence", "london", "--yes", "--json")

        assert (ended.code, owed(ended)) == (20, OWED), ended.document

    def test_without_a_hook_a_site_that_is_away_cannot_be_fenced(self, dr_ctl: Shell, survived: Sites) -> None:
        ended = dr_ctl("fence", "london", "--yes", "--json")

        assert (ended.code, ended.ids[0]) == (10, "DR-FENCE-003")

    def test_a_site_that_answers_is_fenced_at_its_doors_and_not_by_the_hook(
        self, dr_ctl: Shell, survived: Sites
    ) -> None:
        survived.come_back()
        self.hooked(dr_ctl.folder, "exit 1")

        assert dr_ctl("fence", "london", "--yes", "--json").code == 0


class TestMonitor:
    def monitor(self, dr_ctl: Shell, *words: str) -> Ended:
        return dr_ctl("monitor", "--for", "50ms", *words, "--quiet")

    def test_it_pays_all_of_it_by_a_run_like_any_other(self, dr_ctl: Shell, survived: Sites) -> None:
        survived.come_back(opened=True)

        ended = self.monitor(dr_ctl, "--auto-reinstate")

        status = dr_ctl("status", "--json")
        assert ended.code == 0
        assert "1 run(s) to reinstate a lost site" in ended.out
        assert (owed(status), status.document["summary"]) == ([], "paris serves")
        assert survived.changes == ["stop()", *TAKEN_IN]
        assert dr_ctl("runs", "verify", "--json").code == 0

    def test_it_changes_nothing_unless_it_is_told_to(self, dr_ctl: Shell, survived: Sites) -> None:
        survived.come_back(opened=True)

        self.monitor(dr_ctl)

        assert survived.changes == []

    def test_a_site_that_is_away_is_waited_for(self, dr_ctl: Shell, survived: Sites) -> None:
        changes = list(survived.changes)

        assert "0 run(s) to reinstate a lost site" in self.monitor(dr_ctl, "--auto-reinstate").out
        assert survived.changes == changes

    def test_another_run_has_the_lock(self, dr_ctl: Shell, survived: Sites) -> None:
        survived.come_back()
        runs = dr_ctl.state / "runs"
        open_run = runs / "20991231T000000Z-swapover-paris-ffff"
        open_run.mkdir()
        first = next(path for path in sorted(runs.iterdir()) if (path / "journal.jsonl").exists())
        (open_run / "journal.jsonl").write_bytes((first / "journal.jsonl").read_bytes())

        self.monitor(dr_ctl, "--auto-reinstate")

        assert survived.changes == []


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


class TestEscalated:
    @pytest.fixture
    def stuck(self, dr_ctl: Shell, installation: Installation) -> Installation:
        """A swapover that was interrupted behind its fence, with three messages and four acknowledgements to ship."""
        begun(dr_ctl, installation, "quiesce", "fence")
        installation.london.holds_back(3)
        installation.london.take("orders.in", 4)
        return installation

    def test_its_price_is_what_was_read_and_is_refused_at_first(self, dr_ctl: Shell, stuck: Installation) -> None:
        ended = dr_ctl("escalate", "--yes", "--json")

        assert (ended.code, ended.document["outcome"]) == (11, "loss_refused"), ended.document
        bounds = ended.document["data"]["bounds"]
        assert (bounds["lost"]["at_most"], bounds["duplicates"]["at_most"]) == (7, 7)
        assert [each["name"] for each in bounds["queues"]] == ["orders.audit", "orders.in"]
        assert [each["lost"] for each in bounds["queues"]] == [0, 2]  # no more than lies there
        assert stuck.changes == []

    def test_with_the_loss_accepted_the_other_site_serves(self, dr_ctl: Shell, stuck: Installation) -> None:
        ended = dr_ctl("escalate", "--yes", "--json", "--accept-loss", "7", "--accept-duplicates", "7")

        assert ended.code == 0, ended.document
        assert stuck.paris.open
        assert not stuck.paris.broker.acceptors["mirror"].started, "its residue is kept out"
        assert not stuck.london.open
        assert owed(ended) == OWED[1:], "its doors are closed, so no fence is owed"
        [old] = [each for each in dr_ctl("runs", "list", "--json").document["data"]["runs"] if each["run"] == NAME]
        assert old["outcome"] == "unknown"

    def test_what_its_run_had_paused_is_lifted_when_the_service_moves_back(
        self, dr_ctl: Shell, installation: Installation, twice: Callable[[str], None]
    ) -> None:
        installation.london.after_change = twice
        assert dr_ctl("swapover", "--to", "paris", "--yes", "--json").code == 130
        installation.london.after_change = lambda operation: None
        dr_ctl("escalate", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        assert installation.london.settable["paused"]

        ended = dr_ctl("failback", "--to", "london", "--yes", "--json")

        assert ended.code == 0, ended.document
        assert [told["paused"] for told in installation.settable] == [set(), set()]

    def test_a_source_that_serves_is_not_left(self, dr_ctl: Shell, installation: Installation) -> None:
        begun(dr_ctl, installation, "quiesce")

        assert (
            dr_ctl("escalate", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code
            == 12
        )
        assert installation.changes == []

    def test_without_an_open_run_there_is_nothing_to_escalate(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("escalate", "--yes", "--json")

        assert (ended.code, ended.ids) == (10, ["DR-RUN-004"])

    def test_one_past_its_point_of_no_return_is_resumed_instead(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        begun(dr_ctl, installation, "quiesce", "fence", "drain", "activate")

        ended = dr_ctl("escalate", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.ids) == (10, ["DR-RUN-006"])


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
