"""The lock on the brokers, from the command line: who is kept out, who may take over, what it tells others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.runs import Runs
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.jolokia import failed
from tests.cli.conftest import Shell
from tests.cli.installation import Installation, Site
from tests.cli.moving import MOVE, begun, swapover
from tests.report.scribe import NAME

NOW = 1795251263227  # what the clocks of both brokers say
OTHER = LockDocument(
    epoch=4,
    run="20261121T020000Z-swapover-paris-beef",
    what="swapover to paris",
    holder="grace",
    host="ops-2",
    pid=4711,
    state="another",
    start_ms=NOW - 30_000,
    expires_ms=NOW + 30_000,
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of the brokers stand still."""
    monkeypatch.setattr(Broker, "now_ms", lambda self: NOW)


def hold(site: Site, document: LockDocument = OTHER) -> None:
    """Put a lock at a broker, as a run elsewhere would."""
    name = f"dr-ctl.lock.{site.name}.{document.epoch}"
    site.queue(name, address=f"dr-ctl.lock.{site.name}", internal=True, user=document.to_text())


def locks(installation: Installation) -> list[dict[str, Any]]:
    """The newest lock of each broker."""
    found = []
    for site in installation.sites:
        told = [site.document(f"dr-ctl.lock.{site.name}.{epoch}") for epoch in range(1, 9)]
        found += [each for each in told if each is not None][-1:]
    return found


def of_this_state(dr_ctl: Shell) -> LockDocument:
    return replace(OTHER, run=NAME, state=Runs(dr_ctl.state, SystemClock()).identity())


def noted(dr_ctl: Shell, run: str) -> dict[str, Any]:
    """The lock as the last lines of the journal have it."""
    lines = (dr_ctl.state / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, reversed(lines)):
        if line["kind"] in ("lock", "run"):
            told: dict[str, Any] = line["evidence"] if line["kind"] == "lock" else line["evidence"]["by"]["lock"]
            return told
    pytest.fail("no line of the journal has the lock")


class TestTaken:
    def test_it_is_released_and_kept_with_the_end_of_the_journal(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        ended = swapover(dr_ctl, "--yes")

        sealed = json.loads((dr_ctl.state / "runs" / ended.document["run"] / "result.json").read_text("utf-8"))[
            "journal"
        ]
        told = locks(installation)
        assert [(each["run"], each["released"], each["epoch"]) for each in told] == [
            (ended.document["run"], True, 1)
        ] * 2
        assert [(each["last_hash"], each["count"]) for each in told] == [(sealed["last_hash"], sealed["count"])] * 2
        assert noted(dr_ctl, ended.document["run"])["at"] == ["london/orders-1", "paris/orders-1"]

    def test_pauses_stand_in_it_before_they_are_made(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.london.queue("orders.held", paused=True)
        installation.paris.queue("orders.held")
        seen: list[Any] = []
        installation.london.before_change = lambda operation: (
            seen.append(locks(installation)[0]) if operation == "pause()" else None
        )

        run = swapover(dr_ctl, "--yes").document["run"]

        assert seen[0]["paused"] == {run: ["orders.audit", "orders.in"]}
        assert seen[0]["paused_before"] == ["orders.held"]
        assert seen[0]["released"] is False

    def test_where_it_may_not_be_created_the_run_goes_on_and_says_so(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        installation.london.instead["document"] = failed("java.lang.Exception", "not allowed", 403)
        installation.london.instead["canInvoke"] = {"value": False, "status": 200}

        checked, ended = dr_ctl("validate", "--json"), swapover(dr_ctl, "--yes")

        assert (checked.code, checked.ids.count("DR-LOCK-001")) == (0, 1)
        assert (ended.code, ended.ids.count("DR-LOCK-001"), installation.changes) == (0, 1, MOVE)
        assert [each["run"] for each in locks(installation)] == [ended.document["run"]]


class TestTakenOver:
    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_a_copy_of_the_state_is_another_one(self, dr_ctl: Shell, installation: Installation, verb: str) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")
        hold(installation.london, of_this_state(dr_ctl))
        path = dr_ctl.state / "id"
        copied = path.read_bytes()
        path.rename(dr_ctl.state / "before")
        path.write_bytes(copied)

        kept_out = dr_ctl(verb, "--yes", "--json")
        ended = dr_ctl(verb, "--yes", "--json", "--break-lock", "--reason", "that host burnt down")

        assert kept_out.code == 13
        assert ended.code == 0, ended.document
        assert noted(dr_ctl, NAME)["reason"] == "that host burnt down"


BREAK = ("--break-lock", "--reason", "forged")
FORGED = ("", OTHER.to_text(), "ERROR: no such attribute (class a.B)", '{"start": 1e999}', "[" * 100_000)


@pytest.mark.parametrize(("number", "text"), [("5", each) for each in FORGED] + [("9" * 400, FORGED[1])])
def test_a_queue_that_a_client_can_have_made_is_no_lock_and_keeps_nobody_out(
    dr_ctl: Shell, installation: Installation, number: str, text: str
) -> None:
    name = f"dr-ctl.lock.london.{number}"
    installation.london.queue(name, address=name, user=text)
    installation.london.queue("dr-ctl.debt.london.quarantine.paris", user=text)

    validated, ended = dr_ctl("validate", "--json"), swapover(dr_ctl, "--yes")

    assert name in next(each["text"] for each in validated.document["findings"] if each["id"] == "DR-LOCK-004")
    assert ended.code == 0, ended.document
    assert ended.document["debts"] == []


@pytest.mark.parametrize("start", ["1e999", "9" * 5000, "[" * 100_000])
def test_a_lock_whose_text_is_nothing_to_read_ends_no_command(
    dr_ctl: Shell, installation: Installation, start: str
) -> None:
    text = OTHER.to_text().replace(str(OTHER.start_ms), start)
    installation.london.queue("dr-ctl.lock.london.4", address="dr-ctl.lock.london", internal=True, user=text)

    status, kept_out, broken = dr_ctl("status"), swapover(dr_ctl, "--yes"), swapover(dr_ctl, "--yes", *BREAK)

    assert (status.code, kept_out.code, broken.code) == (0, 13, 0)
