"""Labs with real brokers."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for the tests that leave it as it was: london serves, the links work."""
    with Lab.up(tmp_path_factory.mktemp("labs") / "lab") as up:
        yield up


def _ports(lab: Lab) -> list[int]:
    sites = [port for site in lab.state.sites for port in site.ports.values()]
    return sites + [port for link in lab.state.links for port in (link.port, link.control)]


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _left_over(lab: Lab) -> list[object]:
    alive: list[object] = [process for process in lab.processes() if process.alive()]
    return alive + [port for port in _ports(lab) if not _refuses(port)] + list(lab.directory.parent.glob("lab*"))


def test_the_status_says_who_serves(lab: Lab) -> None:
    status = lab.status()

    assert [(site.name, site.running, site.answers, site.clients_open) for site in status.sites] == [
        ("london", True, True, True),
        ("paris", True, True, False),
    ]
    assert [(link.mode, link.connected) for link in status.links] == [("open", True)] * 2
    json.dumps(status.as_json())


def test_the_lab_is_found_again_by_its_directory(lab: Lab) -> None:
    again = Lab.open(lab.directory)

    assert again.state == lab.state
    assert again.pid("paris") == lab.pid("paris")


def test_traffic_for_a_time_leaves_a_ledger(lab: Lab, tmp_path: Path) -> None:
    before = set(lab.ledgers.iterdir())

    ended = Operator(lab, tmp_path).run("lab", "load", "--dir", str(lab.directory), "--rate", "100", "--for", "1s")

    assert (ended.code, ended.document["data"]["clean"]) == (0, True)
    sent = ended.document["data"]["counts"]["sent"]
    assert 80 <= sent <= 110
    [ledger] = set(lab.ledgers.iterdir()) - before
    assert len(ledger.read_text().splitlines()) == 3 * sent


def test_a_cut_link_is_seen_and_heals(lab: Lab) -> None:
    lab.cut("london")
    eventually(lambda: lab.status().links[0].connected is False)
    assert [link.mode for link in lab.status().links] == ["refuse", "open"]

    lab.heal()

    lab.wait_mirrored()


def test_a_frozen_broker_runs_and_does_not_answer(lab: Lab) -> None:
    lab.freeze("paris")
    try:
        eventually(lambda: lab.status().sites[1].frozen)
        paris = lab.status().sites[1]
    finally:
        lab.thaw("paris")

    assert (paris.running, paris.frozen, paris.answers, paris.clients_open) == (True, True, False, None)
    eventually(lambda: lab.status().sites[1].answers)
    lab.wait_mirrored()


def test_two_labs_come_up_at_once_and_leave_nothing(tmp_path: Path) -> None:
    labs: list[Lab] = []
    starters = [
        threading.Thread(target=lambda name=name: labs.append(Lab.up(tmp_path / name))) for name in ("lab1", "lab2")
    ]
    try:
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join(timeout=120)

        assert len(labs) == 2
        assert not set(_ports(labs[0])) & set(_ports(labs[1]))
    finally:
        for one in labs:
            one.down()

    for one in labs:
        one.down()  # twice is once
        assert _left_over(one) == []


def test_a_broker_that_cannot_start_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Lab] = []
    monkeypatch.setattr(Lab, "_save", lambda lab, save=Lab._save: (made.append(lab), save(lab)))

    with pytest.raises(EnvironmentFault, match="the broker ended") as failed:
        Lab.up(tmp_path / "lab", edit=lambda xml: xml.replace("<core ", "<kore ", 1))

    assert "kore" in str(failed.value)  # the broker's own words
    assert _left_over(made[-1]) == []


def test_a_broken_distribution_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    monkeypatch.setattr(distribution, "obtain", lambda _: broken)
    made: list[Lab] = []
    monkeypatch.setattr(Lab, "_save", lambda lab, save=Lab._save: (made.append(lab), save(lab)))

    with pytest.raises(EnvironmentFault, match="artemis create"):
        Lab.up(tmp_path / "lab")

    assert _left_over(made[-1]) == []


def test_a_link_that_does_not_start_at_boot_is_not_waited_for(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", options={"link_auto_start": {"paris": False}}, serving=None) as lab:
        assert [link.connected for link in lab.status().links] == [True, False]
        assert [site.clients_open for site in lab.status().sites] == [False, False]

    assert _left_over(lab) == []
