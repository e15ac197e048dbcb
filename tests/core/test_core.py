"""The words that every layer shares: exit codes, moments, deadlines, errors."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl.core.errors import BrokerError, DrCtlError, EnvironmentFault, Stopped, UsageError
from dr_ctl.core.model import ExitCode, Finding, Severity


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, "ok"),
        (1, "internal"),
        (2, "usage"),
        (3, "missing"),
        (10, "precheck_failed"),
        (11, "loss_refused"),
        (12, "serving_site_alive"),
        (13, "locked"),
        (14, "declined"),
        (20, "reverted"),
        (21, "incomplete"),
        (22, "unknown"),
        (23, "stranded"),
        (24, "drain_timeout"),
        (30, "warnings"),
        (130, "interrupted"),
        (143, "interrupted"),
    ],
)
def test_an_exit_code_has_its_word(code: int, outcome: str) -> None:
    assert ExitCode(code).outcome == outcome


def test_there_are_no_other_exit_codes() -> None:
    assert len(ExitCode) == 17


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (datetime(2026, 11, 21, 9, 15, 12, 84_900, UTC), "2026-11-21T09:15:12.084Z"),
        (datetime(2026, 11, 21, 9, 0, tzinfo=timezone(timedelta(hours=2))), "2026-11-21T07:00:00.000Z"),
    ],
)
def test_a_moment_is_written_in_utc_with_milliseconds(at: datetime, written: str) -> None:
    assert stamp(at) == written


def test_the_machines_clock_is_in_utc_and_only_grows() -> None:
    clock = SystemClock()

    first, second = clock.monotonic(), clock.monotonic()

    assert clock.now().utcoffset() == timedelta(0)
    assert second >= first


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (DrCtlError, ExitCode.INTERNAL),
        (UsageError, ExitCode.USAGE),
        (EnvironmentFault, ExitCode.INTERNAL),
        (BrokerError, ExitCode.INTERNAL),
        (Stopped, ExitCode.INTERRUPTED),
    ],
)
def test_an_error_knows_its_exit_code_and_what_to_do(kind: type[DrCtlError], code: ExitCode) -> None:
    assert kind.exit_code is code
    assert kind.remedy


def test_a_remedy_of_its_own_replaces_that_of_the_kind() -> None:
    assert UsageError("x", remedy="turn left").remedy == "turn left"
    assert UsageError("x").remedy == UsageError.remedy


def test_a_stop_names_its_signal() -> None:
    assert str(Stopped(signal.SIGTERM)) == "stopped by SIGTERM"


def test_a_finding_is_written_with_its_severity_as_a_word() -> None:
    finding = Finding("DR-X-001", Severity.WARNING, "text")

    assert finding.as_json() == {"id": "DR-X-001", "severity": "warning", "text": "text", "remedy": ""}
