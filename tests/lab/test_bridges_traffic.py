"""Two real brokers joined by diverts and bridges, with clients that skip what either site has processed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ODD = 'it\'s a "quoted" queue'
QUEUES = ("A", "B", ODD)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for the tests that leave it as it was: london serves all queues."""
    with Lab.up(tmp_path_factory.mktemp("labs") / "lab", topology=BRIDGES, queues=QUEUES) as up:
        yield up


def test_the_status_says_which_queues_are_served_where(lab: Lab) -> None:
    status = lab.status()

    told = [(site.name, site.clients_open, site.serves, site.processor) for site in status.sites]
    assert told == [("london", True, QUEUES, True), ("paris", False, (), True)]
    assert [(link.mode, link.connected) for link in status.links] == [("open", True)] * 2


def test_a_queue_that_is_made_later_is_copied_too_and_served_where_the_others_are(lab: Lab) -> None:
    lab.create_queue("late")
    lab.wait_mirrored()
    before = lab.admin("paris").depth("late")
    with lab.load(100, queues=["late"]) as load:
        load.wait_for(20)
        sent = load.stop().counts.sent

    eventually(lambda: lab.admin("paris").depth("late") == before + sent)
    assert "late" in lab.status().sites[0].serves
    assert "late" not in lab.status().sites[1].serves


def test_a_queue_that_no_divert_can_copy_is_refused(lab: Lab) -> None:
    with pytest.raises(UsageError, match="comma"):
        lab.create_queue("a,b")

    assert "a,b" not in lab.queues


def test_a_lab_that_fails_once_its_processors_run_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Lab] = []

    def fail(lab: Lab, site: str) -> None:
        made.append(lab)
        raise EnvironmentFault(f"{site} lets nobody in")

    monkeypatch.setattr(Lab, "open_clients", fail)

    with pytest.raises(EnvironmentFault, match="lets nobody in"):
        Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A",))

    assert len(made[0].processes()) == 6
    assert not any(process.alive() for process in made[0].processes())
