"""Two real brokers joined by diverts and bridges, with clients that skip what either site has processed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.stomp_io.answers import Closed, Connected, Failed, Passed
from dr_ctl.stomp_io.client import greet, round_trip
from dr_ctl_lab.lab.artemis.bridges import IDS, BridgesAdmin, buffer
from dr_ctl_lab.lab.ids import IdStore
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.traffic import Load
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ODD = 'it\'s a "quoted" queue'
QUEUES = ("A", "B", ODD)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for the tests that leave it as it was: london serves all queues."""
    with Lab.up(tmp_path_factory.mktemp("labs") / "lab", topology=BRIDGES, queues=QUEUES) as up:
        yield up


def admin(lab: Lab, site: str) -> BridgesAdmin:
    return BridgesAdmin(lab.site(site))


def ids(lab: Lab, site: str) -> set[tuple[str, str]]:
    store = IdStore(lab.id_store(site))
    try:
        return store.every()
    finally:
        store.close()


def shipped(lab: Lab, *sites: str) -> bool:
    """Nothing of these sites is under way, and all that arrived is written down."""
    depths = {site: lab.admin(site).depths() for site in ("london", "paris")}
    held = [count for site in sites for name, count in depths[site].items() if name.startswith("mirror.")]
    return not any(held) and not any(told[IDS] for told in depths.values())


def move(lab: Lab, queue: str, source: str, target: str) -> None:
    """Move one queue as a person would who waits for everything of the source."""
    admin(lab, source).close_queue(queue)
    eventually(lambda: shipped(lab, source))
    admin(lab, target).open_queue(queue)


def duplicates(load: Load) -> int:
    verdict = load.ledger.verdict(drained=False)
    return len(verdict.duplicates) + len(verdict.redelivered)


def test_both_sites_greet_and_only_one_serves(lab: Lab) -> None:
    london, paris = lab.site("london"), lab.site("paris")
    passed = round_trip(london.stomp, london.app, None, queue="A", body="x", timeout_s=5)
    refused = round_trip(paris.stomp, paris.app, None, queue="A", body="x", timeout_s=5)

    assert isinstance(greet(paris.stomp, paris.app, None, timeout_s=2), Connected)
    assert isinstance(passed, Passed)
    assert isinstance(refused, Failed)
    assert "AMQ" in refused.because


def test_the_status_says_which_queues_are_served_where(lab: Lab) -> None:
    status = lab.status()

    told = [(site.name, site.clients_open, site.serves, site.processor) for site in status.sites]
    assert told == [("london", True, QUEUES, True), ("paris", False, (), True)]
    assert [(link.mode, link.connected) for link in status.links] == [("open", True)] * 2


def test_messages_and_ids_arrive_at_the_site_that_waits_and_nothing_goes_back(lab: Lab) -> None:
    depth, known = lab.admin("paris").depths(), ids(lab, "paris")
    with lab.load(200) as load:
        load.wait_for(300)
        verdict = load.stop()
    eventually(lambda: shipped(lab, "london", "paris"))

    assert verdict.clean
    assert verdict.redelivered == ()
    assert verdict.receive_gaps.keys() == set(QUEUES)
    sent = verdict.counts.sent
    after = lab.admin("paris").depths()
    assert sum(after[name] - depth[name] for name in QUEUES) == sent
    assert len(ids(lab, "paris") - known) == sent
    assert ids(lab, "paris") == ids(lab, "london")
    assert all(lab.admin("london").depth(name) == 0 for name in QUEUES)


def test_one_queue_moves_and_back_and_the_others_do_not_notice(lab: Lab) -> None:
    with lab.load(300) as load:
        load.wait_for(300)
        move(lab, "A", "london", "paris")
        assert lab.status().sites[1].serves == ("A",)
        load.wait_for(load.counts().sent + 300)
        move(lab, "A", "paris", "london")
        load.wait_for(load.counts().sent + 300)
        verdict = load.stop()
    eventually(lambda: shipped(lab, "london", "paris"))

    assert verdict.clean
    assert verdict.redelivered == ()
    assert max(verdict.receive_gaps[name].seconds for name in ("B", ODD)) < verdict.receive_gaps["A"].seconds
    assert ids(lab, "paris") == ids(lab, "london")


def test_a_cut_link_is_seen_and_what_waited_for_it_arrives(lab: Lab) -> None:
    with lab.load(100, queues=["A"]) as load:
        lab.cut("london")
        eventually(lambda: lab.status().links[0].connected is False)
        load.wait_for(50)
        assert lab.admin("london").depth(buffer("paris", "A")) > 0

        lab.heal()

        lab.wait_mirrored()
        assert load.stop().clean
    eventually(lambda: shipped(lab, "london"))


def test_bridges_of_messages_and_of_ids_stop_apart(lab: Lab) -> None:
    london = admin(lab, "london")
    london.stop_bridges(ids=True)
    known = len(ids(lab, "paris"))
    with lab.load(100, queues=["B"]) as load:
        load.wait_for(50)
        verdict = load.stop()
    sent = verdict.counts.sent
    eventually(lambda: lab.admin("london").depth(buffer("paris", "B")) == 0)

    assert lab.admin("london").depth(buffer("paris", IDS)) == sent
    assert len(ids(lab, "paris")) == known
    assert lab.status().links[0].connected is False
    london.start_bridges(ids=True)
    eventually(lambda: len(ids(lab, "paris")) == known + sent)
    lab.wait_mirrored()

    london.stop_bridges(ids=False)
    with lab.load(100, queues=["B"]) as load:
        load.wait_for(20)
        sent = load.stop().counts.sent
    eventually(lambda: lab.admin("london").depth(buffer("paris", IDS)) == 0)
    assert lab.admin("london").depth(buffer("paris", "B")) == sent
    london.start_bridges(ids=False)
    eventually(lambda: shipped(lab, "london"))


def test_a_bridge_stops_and_starts_although_acknowledgements_died_with_its_link(lab: Lab) -> None:
    london = admin(lab, "london")
    with lab.load(200, queues=["A"]) as load:
        load.wait_for(50)
        lab.cut("london")
        load.wait_for(load.counts().sent + 50)
        lab.heal()
        lab.wait_mirrored()
        london.stop_bridges(ids=False)
        london.start_bridges(ids=False)
        lab.wait_mirrored()

        assert load.stop().clean
    eventually(lambda: shipped(lab, "london"))


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


def test_one_refused_login_stops_every_bridge_of_its_broker(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A",)) as lab:
        admin(lab, "london").refuse_a_bridge("A")

        eventually(lambda: [link.connected for link in lab.status().links] == [False, True])
        with lab.load(100) as load:
            load.wait_for(20)
            sent = load.stop().counts.sent
        assert lab.admin("london").depth(buffer("paris", "A")) == sent
        assert lab.admin("paris").depth("A") == 0


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


def test_a_lost_site_comes_back_closed_and_ends_with_the_same_ids(tmp_path: Path) -> None:
    """Killed under load, the other site opened; the lost one comes back, and then its queues do."""
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A", "B")) as lab:
        with lab.load(200) as load:
            load.wait_for(300)
            lab.kill("london")
            assert lab.status().sites[0].processor is True
            lab.open_clients("paris")
            load.wait_for(load.counts().sent + 200)
            assert duplicates(load) <= 2  # one of each consumer

            for queue in ("A", "B"):
                admin(lab, "paris").close_queue(queue)  # until what the lost site holds is in, with its ids
            lab.start("london")
            lab.wait_mirrored()
            london = lab.site("london")
            assert isinstance(greet(london.stomp, london.app, None, timeout_s=2), Closed)
            eventually(lambda: shipped(lab, "london", "paris"))
            before = duplicates(load)
            lab.open_clients("london")
            load.wait_for(load.counts().sent + 200)
            verdict = load.stop()
        eventually(lambda: shipped(lab, "london", "paris"))

        assert verdict.lost == ()
        assert verdict.drained
        assert len(verdict.duplicates) + len(verdict.redelivered) == before
        assert ids(lab, "london") == ids(lab, "paris")
        processes = lab.processes()

    assert len(processes) == 6
    assert not any(process.alive() for process in processes)
    assert not (tmp_path / "lab").exists()
