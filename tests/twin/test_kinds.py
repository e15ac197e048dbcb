"""Kinds of twins: registered by one line, loaded when named; and the time of a twin, which may pass faster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.kinds import KINDS
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.site import Twin

pytestmark = pytest.mark.wire


def test_a_kind_that_is_registered_makes_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS.modules, "folders", "tests.twin.registered")

    with Twin.up(tmp_path / "twin", topology="folders") as twin:
        told = yaml.safe_load(twin.settings_path.read_text())
        doors = {each.name: each.started for each in twin.host("paris").broker.acceptors.values()}

    assert told["topology"] == "folders"
    [broker] = told["sites"]["london"]["brokers"]
    assert (sorted(broker), broker["name"]) == (["name", "password", "port"], "orders-1")
    assert doors == {"side": True, "clients": False, "mirror": True}


def test_a_twin_is_made_of_no_other() -> None:
    with pytest.raises(UsageError, match="no twin is made of pigeons") as caught:
        KINDS.named("pigeons")

    assert caught.value.remedy.startswith("There are artemis-mirror, artemis-continuity, artemis-bridges, classic-")


def test_a_kind_is_loaded_when_it_is_named() -> None:
    program = (
        "import sys; import dr_ctl_lab.twin.site; from dr_ctl_lab.twin.kinds import KINDS; before = {*sys.modules};"
        "KINDS.named('artemis-mirror'); kinds = ('twin.mirror', 'twin.continuity', 'twin.artemis');"
        "print([each for each in before if each.removeprefix('dr_ctl.').startswith(kinds)],"
        "[each for each in sys.modules if 'continuity' in each])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[] []\n"


def test_the_knobs_of_a_kind_are_those_of_its_brokers(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin") as twin:
        assert [each.site for each in twin.brokers(MirrorBroker)] == ["london", "paris"]
        assert twin.brokers(ContinuityBroker) == []


def test_time_passes_as_fast_as_a_twin_is_told(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin", clock=Clock(pace=20), delay_ms=2000) as twin:
        before_s, before_ms = twin.clock.now_s(), twin.host("paris").broker.now_ms()
        began_s = time.monotonic()
        twin.wait_mirrored(within_s=60)
        twin.kill("london")
        twin.start("london")
        twin.wait_mirrored(within_s=60)  # what is announced again takes two seconds each way
        really_s = time.monotonic() - began_s
        took_ms = twin.host("paris").broker.now_ms() - before_ms
        took_s = twin.clock.now_s() - before_s

    assert 4000 <= took_ms <= took_s * 1000 + 1
    assert took_s >= really_s * 20


def test_a_clock_shows_the_date_and_only_grows() -> None:
    clock = Clock(pace=1000)

    first, second = clock.now_s(), clock.now_s()
    before, date, after = time.time(), Clock().date_ms(), time.time()

    assert second >= first
    assert before * 1000 - 1 <= date <= after * 1000 + 1
    assert clock.outside_s(60) == pytest.approx(0.06)
