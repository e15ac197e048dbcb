"""What the outflow says of a loss, and what a reading of both sites shows: no bound is below what any of them does, and
every command says the same."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl.core.patience import Patience
from dr_ctl.core.system import system
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.site import PAIR
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import put, serving
from tests.twin.subject import until
from tests.twin.test_drills import Person, person, recorded

__all__ = ["person"]

LOST, DUPLICATES = 30, 40
DISASTER = ("plan", "failover", "--to", "paris", "--as-if-lost", "london")


def alone(twin: PlayedTwin, site: str, queue: str, count: int) -> None:
    """Messages that the link does not bring to the other site, as where a filter keeps them back."""
    broker = twin.host(site).broker
    with twin.still():
        for _ in range(count):
            message = Message(broker.next_number(), queue, b"", text=True, headers={}, timestamp_ms=broker.now_ms())
            broker.queue(queue).add(message)


def watched(twin: PlayedTwin, looks: int = 5) -> None:
    clock = SystemClock()
    installation = load(Path(twin.settings_path))
    with (
        closing(registry.opened(installation, clock, Patience(), installation.file.parent)) as topology,
        closing(Monitor(installation, topology, clock, every_s=1)) as monitor,
    ):
        for _ in range(looks):
            monitor.sample()


@pytest.fixture
def apart(twin: PlayedTwin) -> None:
    put(twin, "london", "orders.in", 20)
    twin.wait_mirrored()
    alone(twin, "london", "orders.out", LOST)
    alone(twin, "paris", "orders.in", DUPLICATES)
    watched(twin)


def differ(ended: Ended) -> list[str]:
    return [each["text"] for each in ended.document["findings"] if each["id"] == "DR-PARITY-001"]


@pytest.mark.usefixtures("apart")
def test_a_failover_does_not_say_none_where_a_reading_shows_some(twin: PlayedTwin, dr_ctl: Command) -> None:
    before = [dr_ctl("status"), dr_ctl(*DISASTER), dr_ctl("validate", "--for", "failover")]
    twin.kill("london")
    dry, refused = dr_ctl("failover", "--to", "paris", "--dry-run"), dr_ctl(
        "failover", "--to", "paris", "--yes", "--accept-loss", "0", "--accept-duplicates", "0"
    )  # fmt: skip
    accepted = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")
    moved = dr_ctl("failover", "--to", "paris", "--yes", *accepted)

    for ended in (*before, dry, refused, moved):
        bounds = ended.document["data"]["bounds"]
        assert (bounds["lost"]["at_most"], bounds["duplicates"]["at_most"]) == (None, None)
        assert f"at least {LOST}: orders.out: {LOST} at london, 0 at paris" in bounds["lost"]["because"]
        [text] = differ(ended)[:1]
        assert f"orders.in: 20 at london, {20 + DUPLICATES} at paris" in text
        assert f"orders.out: {LOST} at london, 0 at paris" in text
    assert (dry.code, refused.code, moved.code) == (11, 11, 0)
    assert serving(twin) == ("paris",)


def figures(ended: Ended) -> tuple[Any, ...]:
    bounds = ended.document["data"]["bounds"]
    return tuple(bounds[of][key] for of in ("lost", "duplicates") for key in ("at_most", "likely", "read_at"))


def test_every_command_has_one_figure_of_one_reading(twin: PlayedTwin, dr_ctl: Command) -> None:
    recorded(twin, "serving", ago_s=90)

    told = {words[0]: dr_ctl(*words) for words in (("status",), ("check",), ("validate",), DISASTER)}

    readings = {figures(each)[2] for each in told.values()}
    assert len(readings) == 1
    validated = told["validate"].document
    at_most = validated["data"]["bounds"]["lost"]["at_most"]
    assert at_most > 900
    assert f"at most {at_most} message(s) may be lost" in validated["data"]["operations"]["failover"]["verdict"]
    for each in validated["findings"]:
        assert "may be lost" not in each["text"] or f"up to {at_most} message(s)" in each["text"]


def test_without_a_link_status_says_since_when_and_shows_no_old_estimate(person: Person) -> None:
    twin = person.twin
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)
    put(twin, "london", "orders.in", 12)
    last = system().now() - timedelta(minutes=11)
    more = {"pair": PAIR, "start": "1", "added": 0, "removed": 0}
    write([Row(site="london", ts=last, kind="mixed", name="*", depth=0, link=True, **more)],
          Path(twin.settings_path).parent / "history")  # fmt: skip
    watched(twin)

    lines = person.types("status").out.splitlines()

    [headline] = [line for line in lines if line.startswith("nothing has reached paris")]
    assert headline.startswith(f"nothing has reached paris since {stamp(last)}; if london died now: ")
    assert "12 message(s) may be lost" in headline
    assert not [line for line in lines if line.startswith(("if london died", "estimate of"))]
