"""What a failover may cost, look by look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dr_ctl.application.price import FailoverPrice
from dr_ctl.core.errors import Unreachable
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import moment
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.seen import Silent
from tests.cli.conftest import Shell
from tests.rpo.fifo import at
from tests.rpo.test_bounds import STEADY, came
from tests.topologies.mirror.views import PAIR, at_both, seen

PARIS = at_both("orders.in", depth=4)[1]
REFUSED = Silent(PAIR, "london", Unreachable("refused", refused=True), ports_refuse=True)
AWAY = Silent(PAIR, "london", Unreachable("no route", refused=False))


@dataclass
class Clock:
    began: datetime
    at_s: float = 0.0

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.at_s)

    def monotonic(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


def test_a_site_that_was_down_and_is_not_seen_any_more_may_have_lived_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Shell(tmp_path, capsys).settings("http://london:8161/console/jolokia", "http://paris:8161/console/jolokia")
    clock = Clock(moment(PARIS.now_ms * 1000))
    write([replace(row, ts=clock.began + (row.ts - at(0))) for row in STEADY], tmp_path / "history")
    price = FailoverPrice(load(path), "london", clock)
    told = []
    for second, view in ((12, REFUSED), (14, REFUSED), (16, AWAY), (18, REFUSED)):
        clock.at_s = second
        price.saw(seen(view, PARIS))
        told.append(price.bounds()["lost"]["at_most"])  # type: ignore[call-overload, index]

    assert told == [7 + came(2), 7 + came(2), 7 + came(6), 7 + came(8)]
