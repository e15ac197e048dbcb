"""A move under load while both brokers fail at random, from a seed: the ledger and the doors judge."""

from __future__ import annotations

import os

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Faults
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import serving
from tests.twin.subject import until

SAMPLE = (1, 3, 8)
ALL = range(int(os.environ.get("DR_CTL_INCIDENTS", "40")))  # a thousand: python -m bench incidents


@pytest.mark.parametrize(
    "seed", [*SAMPLE, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in ALL if seed not in SAMPLE)]
)
def test_whatever_fails_nothing_is_lost_and_never_do_both_sites_serve(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    impatient(monkeypatch, fence_s=2.0, undo_s=4.0, activate_s=2.0)
    with twin.load(100, work_ms=1) as traffic:
        traffic.wait_for(30)
        for number, site in enumerate(twin.sites):
            twin.host(site).faults = Faults.from_seed(2 * seed + number, count=2)
        lives = {site: twin.host(site).broker.start_ms for site in twin.sites}

        ended = dr_ctl("swapover", "--to", "paris", "--yes")

        for site in twin.sites:
            twin.host(site).faults.clear()
        until(lambda: all(twin.host(site).broker.alive for site in twin.sites))
        served = serving(twin)
        # One that dies when the lock is given back is closed by its boot, after the end was verified.
        unharmed = {site for site in twin.sites if twin.host(site).broker.start_ms == lives[site]}
        if not served:
            # By dr-ctl: beyond its doors a fence keeps clients' roles out.
            dr_ctl("unfence", "london", "--yes")
        if not serving(twin):
            twin.open_clients("london")
        verdict = traffic.stop(drain_s=10)

    assert len(served) <= 1
    assert ended.code != 1, ended.document
    assert "paris" in served or "paris" not in unharmed or ended.code != 0
    assert "london" in served or "london" not in unharmed or ended.code in (0, 21, 22, 23)
    assert (verdict.lost, verdict.duplicates) == ((), ())
