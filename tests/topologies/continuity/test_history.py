"""The estimate of a history recorded on real brokers with the plugin: every queue has flows of its own."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.agents.monitor import Monitor, recording
from dr_ctl.core.clock import SystemClock
from dr_ctl.core.patience import Patience
from dr_ctl.settings.loader import load
from dr_ctl.topologies.registry import opened
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, changed_settings, until
from tests.topologies.continuity.plugin import FAST, SLOW, bridges, needs_plugin

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.deep, needs_plugin]

SHIPPING = (".out.mirror.bridge", ".out.acks.bridge")
STILL_S = 3.0
FIGURES = {
    "loss_risk": "loss",
    "duplicate_risk": "duplicates",
    "recovery_point_s": "age_s",
    "recovery_time_s": "drain_s",
}


def test_the_estimate_bounds_what_was_under_way(plugin_lab: Lab, tmp_path: Path) -> None:
    """What ships stands still for three seconds. All that two backlogged queues get meanwhile would be lost, and all
    that their consumer acknowledges would come twice: these lie far ahead of it in the queue, and had been shipped."""
    settings = changed_settings(plugin_lab, tmp_path, lambda told: told.update(history={"path": "history"}))
    operator = Operator(plugin_lab, tmp_path / "state", settings)
    with (
        plugin_lab.load(40, queues=FAST, work_ms=1) as fast,
        plugin_lab.load(60, queues=SLOW, consumers=1, work_ms=40) as slow,
    ):
        slow.wait_until(lambda counts: counts.sent - counts.consumed > 400, within_s=60, what="a backlog of 400")
        with recording(load(settings), every_s=0.5):
            slow.wait_for(slow.counts().sent + 300, within_s=60)
            bridges(plugin_lab, "london", "stop()", *SHIPPING)
            stopped, before = time.monotonic(), added(plugin_lab)
            slow.wait_until(lambda _: time.monotonic() >= stopped + STILL_S, what="3 s without shipping")
            after = added(plugin_lab)
            bridges(plugin_lab, "london", "start()", *SHIPPING)
            slow.wait_for(slow.counts().sent + 300, within_s=60)
            fast.stop()
            assert slow.stop(drain_s=200).clean
            until(lambda: even(operator), within_s=60, why="nothing is under way")
    with (
        closing(opened(load(settings), SystemClock(), Patience(), tmp_path)) as topology,
        closing(Monitor(load(settings), topology, SystemClock())) as monitor,
    ):
        monitor.sample()  # that too: the last look is what the estimate calls now
    ended = operator.run("rpo", "estimate")

    total, flows = ended.document["data"]["total"], ended.document["data"]["flows"]
    lost, duplicates = (
        sum(after[f"{q}.out.{kind}"] - before[f"{q}.out.{kind}"] for q in SLOW) for kind in ("mirror", "acks")
    )
    print(f"under way {lost} messages and {duplicates} acknowledgements of the two, of at most {total}")
    assert {(flow["from"], flow["name"]) for flow in flows} == {
        ("london", name) for name in (*FAST, *SLOW, "DLQ", "ExpiryQueue")
    }
    assert lost <= total["loss"]["max"]
    assert duplicates <= total["duplicates"]["max"]
    assert total["age_s"]["max"] >= STILL_S
    assert {name: total[name] for name in FIGURES} == dict.fromkeys(FIGURES, 0)
    for scope in (total, *flows):
        assert {name: scope[name] for name in FIGURES} == {name: scope[key]["now"] for name, key in FIGURES.items()}
        assert scope["unexplained"] is None  # no outflow carries both


def added(lab: Lab) -> dict[str, int]:
    """How much was ever put into each queue of london."""
    admin = lab.admin("london")
    request = {"type": "read", "mbean": f"{admin._broker},queue=*,*", "attribute": ["Name", "MessagesAdded"]}
    return {each["Name"]: each["MessagesAdded"] for each in admin._call(request).values()}


def even(operator: Operator) -> bool:
    links = operator.run("status").document["data"]["links"]
    return all(link["loss_risk"] == link["duplicate_risk"] == link["pending_acks"] == 0 for link in links)
