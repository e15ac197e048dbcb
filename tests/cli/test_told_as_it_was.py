"""The report of a run tells how it was: a loss and debts, the outage of a lost site, a stop, a process that died. Real
commands on a twin; `tests/report/test_view.py` has the same on runs that are written by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.engine.plan import PlannedStep
from dr_ctl.topologies.common.driver import Driver
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.cli.moving import ACCEPTED, begun, failover, swapover
from tests.cli.sites import Sites, sites
from tests.report.test_html import Form
from tests.report.test_view import plain
from tests.simulated import interrupt

__all__ = ["sites"]  # a fixture


def report(dr_ctl: Shell, ended: Ended) -> Form:
    """The page of a run, as it was written at its end."""
    form = Form()
    form.feed(Path(dr_ctl.state / "runs" / ended.document["run"] / "report.html").read_text("utf-8"))
    return form


def tone(form: Form) -> str:
    (verdict,) = [attributes["class"] for tag, attributes in form.tags if attributes.get("id") == "verdict"]
    return str(verdict).removeprefix("verdict is-")


def words(form: Form) -> str:
    return plain(" ".join(form.text.split()))


def test_a_failover_with_a_loss_is_amber_and_its_outage_is_no_longer_than_was_seen(dr_ctl: Shell, sites: Sites) -> None:
    sites.lose()

    ended = failover(dr_ctl, "--yes", *ACCEPTED)

    form = report(dr_ctl, ended)
    assert (ended.code, tone(form)) == (0, "owed"), ended.document
    assert "may be lost" in words(form)
    assert "2 thing(s) are owed" in words(form)
    assert re.search(r"Clients out: at least [\d.]+ m?s London was first seen down", words(form))


def test_a_step_that_a_signal_stopped_is_interrupted_and_not_refused(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.london.holds_back(3)
    apply = Driver.apply

    def applied(driver: Driver, step: PlannedStep, *rest: Any, **more: Any) -> Any:
        if step.verb == "drain":
            interrupt()
        return apply(driver, step, *rest, **more)

    monkeypatch.setattr(Driver, "apply", applied)

    ended = swapover(dr_ctl, "--yes")

    form = report(dr_ctl, ended)
    steps = words(form).partition("Time line of the steps")[2].partition("What was under way")[0]
    assert (ended.code, ended.document["data"]["undone"]) == (130, True), ended.document
    assert tone(form) == "undone"
    assert "Stopped by a signal; undone" in words(form)
    assert "07 drain paris interrupted" in steps
    assert "refused" not in steps


@pytest.mark.parametrize(
    ("command", "note"), [("resume", "interrupted, and gone on with"), ("abort", "undone by another process")]
)
def test_a_run_whose_process_died_says_so_beside_its_verdict(
    dr_ctl: Shell, installation: Installation, command: str, note: str
) -> None:
    begun(dr_ctl, installation, "quiesce", "fence")

    ended = dr_ctl(command, "--yes", "--json")

    assert ended.code == 0
    assert re.search(rf"The run was {note} \(\w+\): nothing was written for ", words(report(dr_ctl, ended)))
