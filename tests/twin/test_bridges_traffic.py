"""Clients on a twin whose sites are joined by diverts and bridges: those of a lab, with the stores of the twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.artemis.bridges import IDS, BridgesAdmin
from dr_ctl_lab.lab.ids import IdStore, store_at
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.played import PlayedTwin
from tests.lab.waiting import eventually

QUEUES = ("A", "B")


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[PlayedTwin]:
    with PlayedTwin.up(tmp_path / "twin", topology=BRIDGES, queues=QUEUES) as up:
        yield up


def admin(twin: PlayedTwin, site: str) -> BridgesAdmin:
    return BridgesAdmin(twin.site(site))


def ids(twin: PlayedTwin, site: str) -> set[tuple[str, str]]:
    store = IdStore(store_at(twin.directory, twin.site(site).broker))
    try:
        return store.every()
    finally:
        store.close()


def shipped(twin: PlayedTwin, *sites: str) -> bool:
    depths = {site: admin(twin, site).depths() for site in ("london", "paris")}
    held = [count for site in sites for name, count in depths[site].items() if name.startswith("mirror.")]
    return not any(held) and not any(told[IDS] for told in depths.values())


def test_what_the_lab_manages_it_manages_at_a_twin_too(twin: PlayedTwin) -> None:
    london, paris = admin(twin, "london"), admin(twin, "paris")

    assert (london.clients_open(), paris.clients_open()) == (True, False)
    assert london.link_attached("paris")
    london.close_queue("A")
    assert london.served(QUEUES) == ["B"]
    paris.open_queue("A")
    assert paris.served(QUEUES) == ["A"]


def test_a_queue_moves_there_and_back_under_load(twin: PlayedTwin) -> None:
    with twin.load(200) as load:
        load.wait_for(100)
        for source, target in (("london", "paris"), ("paris", "london")):
            admin(twin, source).close_queue("A")
            eventually(lambda source=source: shipped(twin, source))  # type: ignore[misc]
            admin(twin, target).open_queue("A")
            load.wait_for(load.counts().sent + 100)
        verdict = load.stop()
    eventually(lambda: shipped(twin, "london", "paris"))

    assert verdict.clean
    assert verdict.redelivered == ()
    assert ids(twin, "london") == ids(twin, "paris")
