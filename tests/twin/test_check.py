"""`check`, as a monitoring system calls it: one line, four codes, and never well where something was not seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from dr_ctl.application import health
from dr_ctl.cli.app import run
from dr_ctl.core.clock import growing_s
from dr_ctl.core.model import Health
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, MIRROR
from tests import looks
from tests.conftest import Command
from tests.patience import time_now
from tests.twin.test_bridges import IN

CHECK = ("check", "--within", "30s")
"""Where every site answers: a machine on which all tests run is slow at times."""


@pytest.fixture
def topology() -> str:
    return MIRROR


def looked(twin: PlayedTwin, ago_s: float = 0.0) -> None:
    looks.looked(twin.settings_path.parent, ago_s)


def the_monitor_is_gone(twin: PlayedTwin) -> None:
    looked(twin, ago_s=300)


def nobody_records(twin: PlayedTwin) -> None:
    del twin


def the_link_is_away(twin: PlayedTwin) -> None:
    looked(twin)
    twin.cut()


def the_other_is_down(twin: PlayedTwin) -> None:
    looked(twin)
    twin.kill("paris")


def nobody_serves(twin: PlayedTwin) -> None:
    twin.close_clients("london")


def both_serve(twin: PlayedTwin) -> None:
    twin.open_clients("paris")


def no_answer(twin: PlayedTwin) -> None:
    for site in twin.sites:
        twin.freeze(site)


def settings_that_cannot_be_read(twin: PlayedTwin) -> None:
    twin.settings_path.write_text("version: 1\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("so", "told", "says"),
    [
        (nobody_records, Health.WARNING, "is `dr-ctl monitor` running?"),
        (
            the_monitor_is_gone,
            Health.WARNING,
            "WARNING - london serves; the newest look is 5 min ",
        ),
        (the_link_is_away, Health.WARNING, "is not attached"),
        (
            the_other_is_down,
            Health.CRITICAL,
            "CRITICAL - london serves; failover impossible: paris is down; newest look ",
        ),
        (nobody_serves, Health.CRITICAL, "no site was seen to serve: london is standby, paris is standby"),
        (both_serve, Health.CRITICAL, "CRITICAL - both sites let clients in: orders-1 at both"),
        (no_answer, Health.UNKNOWN, "london did not answer within 1.2 s, paris did not answer within 1.2 s"),
        (settings_that_cannot_be_read, Health.UNKNOWN, "UNKNOWN - "),
    ],
)
def test_what_is_not_well_is_told_in_one_line_and_by_its_code(
    twin: PlayedTwin, dr_ctl: Command, so: Callable[[PlayedTwin], None], told: Health, says: str
) -> None:
    so(twin)
    silent = so is no_answer
    began = growing_s()

    ended = dr_ctl("check", "--within", "2s") if silent else dr_ctl(*CHECK)

    assert (ended.code, ended.document["exit_code"]) == (told, told), ended.document
    assert ended.document["outcome"] == told.name.lower()
    assert ended.document["summary"].startswith(f"{told.name} - ")
    assert says in ended.document["summary"]
    assert "\n" not in ended.document["summary"]
    assert growing_s() - began < 5 or not silent


@pytest.mark.parametrize("topology", [BRIDGES])
def test_a_queue_that_nobody_serves_is_critical(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert dr_ctl("fence", "london", "--queues", IN, "--yes").code == 0

    ended = dr_ctl(*CHECK)

    assert ended.code == Health.CRITICAL
    assert f"{IN} is open to clients at no site" in ended.document["summary"]


def test_open_doors_behind_which_clients_may_do_nothing_are_critical(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert dr_ctl("fence", "london", "--yes").code == 0
    twin.open_clients("london")

    check, status = dr_ctl(*CHECK), dr_ctl("status")

    text = "clients may connect to london/orders-1, and their roles may neither send nor consume there"
    assert (check.code, text in check.document["summary"]) == (Health.CRITICAL, True), check.document
    (remedy,) = (each["remedy"] for each in status.document["findings"] if each["text"] == text)
    assert "`dr-ctl unfence london`" in remedy
    assert dr_ctl("unfence", "london", "--yes").code == 0
    assert text not in dr_ctl(*CHECK).document["summary"]


def test_all_is_well_where_one_site_serves_the_other_waits_and_a_monitor_looks(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    looked(twin)

    ended = dr_ctl(*CHECK)

    assert (ended.code, ended.document["outcome"]) == (0, "ok"), ended.document
    assert ended.document["summary"].startswith("OK - london serves; failover ready; newest look "), ended.document


def test_a_debt_is_a_warning_and_a_forgotten_one_is_critical(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin.kill("london")
    assert (
        dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes").code
        == 0
    )
    twin.start("london")

    owed = dr_ctl(*CHECK).document["data"]["problems"]
    monkeypatch.setattr(health, "OVERDUE", timedelta(0))
    late = dr_ctl(*CHECK).document["data"]["problems"]

    assert {each["health"] for each in owed if each["text"].startswith("owed since")} == {"warning"}, owed
    assert {each["health"] for each in late if each["text"].startswith("overdue since")} == {"critical"}, late


def test_a_person_reads_one_line(
    twin: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))

    code = run([*CHECK], time_now())

    told = capsys.readouterr().out
    assert (code, told.count("\n"), told.startswith("WARNING - ")) == (Health.WARNING, 1, True), told


def test_a_limit_that_cannot_be_read_is_not_critical(dr_ctl: Command) -> None:
    assert dr_ctl("check", "--within", "soon").code == Health.UNKNOWN
