"""How a demo judges what its commands said."""

import sys
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl_lab import demonstration
from dr_ctl_lab.demonstration import _judged, _Lost, _Teller
from dr_ctl_lab.lab.ledger import Ledger, Verdict

NOTHING: Any = {"lost": {"at_most": 0}, "duplicates": {"at_most": 0}}


def drained(*, so: bool = True) -> Verdict:
    return Ledger().verdict(drained=so)


@pytest.fixture
def tell(tmp_path: Path) -> _Teller:
    for name in ("1-swapover", "2-failback"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "report.html").touch()
    return _Teller(sys.stdout, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("estimate", "code", "told"),
    [
        (ExitCode.OK, ExitCode.OK, []),
        (ExitCode.UNKNOWN, ExitCode.OK, [demonstration.FEW_LOOKS.id]),
        (ExitCode.INTERNAL, ExitCode.INTERNAL, ["DR-DEMO-001"]),
    ],
)
def test_an_estimate_need_not_meet_the_objectives(
    tell: _Teller, estimate: ExitCode, code: ExitCode, told: list[str]
) -> None:
    lost = _Lost(NOTHING, drained(so=False), drained())

    ended = _judged(drained(), lost, tell, {"estimate": estimate}, [])

    assert (ended.code, [each.id for each in ended.findings]) == (code, told)


def test_what_was_not_received_is_lost_only_where_the_queues_were_seen_empty(tell: _Teller) -> None:
    ended = _judged(drained(), _Lost(NOTHING, drained(so=False), drained(so=False)), tell, {}, [])

    assert ended.code is ExitCode.LOSS_REFUSED
    assert "lie there, or are lost" in ended.summary
