"""Labs of real ActiveMQ Classic brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.stomp_io.answers import Closed, Connected
from dr_ctl.stomp_io.client import greet
from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.fanout import LEAST_FILE
from dr_ctl_lab.lab.kinds import BROKERSYNC, FAN_OUT, SHARED_STORE
from dr_ctl_lab.lab.lab import Lab
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.deep]

Q = "orders.in"


def admin(lab: Lab, site: str) -> ClassicAdmin:
    return ClassicAdmin(lab.site(site))


def send(lab: Lab, count: int) -> None:
    """Send to whichever site lets clients in, until so many have a receipt."""
    with lab.load(500, queues=[Q], producers=1, consumers=0) as load:
        load.wait_until(lambda counts: counts.sent >= count)
        load.pause_producing()
        load.wait_until(lambda counts: counts.sent == counts.attempted)


def ids(lab: Lab, site: str) -> list[str]:
    return sorted(admin(lab, site).ids(Q))


def alike(lab: Lab) -> bool:
    return ids(lab, "london") == ids(lab, "paris")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("labs") / "lab", topology=BROKERSYNC, queues=(Q,)) as up:
        yield up


@pytest.fixture
def pair(lab: Lab) -> Lab:
    """The lab with london serving, links that work, and nothing in the queues."""
    lab.close_clients("paris")
    lab.open_clients("london")
    lab.wait_mirrored()
    for site in ("london", "paris"):
        admin(lab, site).purge(Q)
    return lab


def test_only_the_serving_site_lets_clients_in(pair: Lab) -> None:
    london, paris = pair.site("london"), pair.site("paris")

    assert isinstance(greet(london.stomp, london.app, None, timeout_s=2), Connected)
    assert isinstance(greet(paris.stomp, paris.app, None, timeout_s=2), Closed)
    status = pair.status()
    assert [(site.answers, site.clients_open) for site in status.sites] == [(True, True), (True, False)]
    assert [link.connected for link in status.links] == [True, True]


def test_traffic_is_judged_clean_and_the_copies_stay(pair: Lab) -> None:
    with pair.load(300) as load:
        load.wait_for(300)
        verdict = load.stop()

    assert verdict.clean
    assert verdict.in_doubt == 0
    eventually(lambda: admin(pair, "paris").depth(Q) == verdict.counts.sent)
    assert admin(pair, "london").depth(Q) == 0


def test_copies_keep_their_ids_in_both_directions_and_nothing_loops(pair: Lab) -> None:
    send(pair, 50)
    eventually(lambda: alike(pair))
    there = len(ids(pair, "paris"))
    pair.close_clients("london")
    pair.open_clients("paris")
    send(pair, 50)
    eventually(lambda: alike(pair))

    assert there >= 50
    assert len(ids(pair, "london")) >= there + 50
    for site in ("london", "paris"):
        depths = admin(pair, site).depths()
        assert sum(depths.values()) == depths[Q]  # no copy is on its way, and none came back


def test_copies_wait_while_the_network_connector_is_stopped_or_the_link_is_cut(pair: Lab) -> None:
    london = admin(pair, "london")
    london.stop_link("paris")
    send(pair, 20)
    waiting = london.depth(f"{Q}.to-paris")

    assert waiting >= 20
    assert not london.link_attached("paris")
    assert admin(pair, "paris").depth(Q) == 0
    london.start_link("paris")
    eventually(lambda: alike(pair))

    pair.cut("london")
    eventually(lambda: not london.link_attached("paris"))
    send(pair, 20)
    assert london.depth(f"{Q}.to-paris") >= 20
    pair.heal()
    eventually(lambda: alike(pair))


def test_what_is_moved_or_purged_here_stays_there(pair: Lab) -> None:
    send(pair, 20)
    eventually(lambda: alike(pair))
    london, whole = admin(pair, "london"), admin(pair, "paris").depth(Q)

    assert london.move(Q, "aside", most=3) == 3
    assert (london.depth("aside"), london.depth(Q)) == (3, whole - 3)
    london.purge(Q)
    london.purge("aside")
    assert (london.depth(Q), admin(pair, "paris").depth(Q)) == (0, whole)


def test_a_queue_that_is_made_later_is_there_at_both_and_copied_nowhere(pair: Lab) -> None:
    pair.create_queue("later")

    assert [admin(pair, site).depths()["later"] for site in ("london", "paris")] == [0, 0]


def test_a_frozen_broker_does_not_answer_and_goes_on_when_it_is_thawed(pair: Lab) -> None:
    pair.freeze("paris")
    frozen = pair.status().sites[1]
    pair.thaw("paris")

    assert (frozen.running, frozen.frozen, frozen.answers) == (True, True, False)
    eventually(lambda: pair.status().sites[1].answers)


def test_a_broker_that_comes_back_keeps_its_messages_and_lets_no_client_in(pair: Lab) -> None:
    send(pair, 20)
    before = ids(pair, "london")
    pair.kill("london")
    pair.start("london")

    assert ids(pair, "london") == before
    assert not admin(pair, "london").clients_open()
    london = pair.site("london")
    assert isinstance(greet(london.stomp, london.app, None, timeout_s=2), Closed)
    pair.open_clients("london")
    assert isinstance(greet(london.stomp, london.app, None, timeout_s=2), Connected)


def test_one_way_copies_arrive_and_a_hardened_management_refuses_what_destroys(tmp_path: Path) -> None:
    with Lab.up(
        tmp_path / "lab",
        topology=BROKERSYNC,
        queues=(Q,),
        options={"one_way": "london", "policy": "hardened", "link_auto_start": {"london": False}},
    ) as lab:
        london, processes = admin(lab, "london"), lab.processes()
        send(lab, 20)
        waiting = london.depth(f"{Q}.DR")
        london.start_link("paris")
        eventually(lambda: alike(lab))
        with pytest.raises(BrokerError, match="forbidden"):
            london.purge(Q)
        lab.close_clients("london")

        assert waiting == london.depth(Q) >= 20
        assert not london.clients_open()

    assert not any(process.alive() for process in processes)
    assert not (tmp_path / "lab").exists()


def has_the_store(lab: Lab, site: str) -> bool:
    try:
        return admin(lab, site).clients_open()
    except BrokerError:
        return False


@pytest.mark.parametrize(
    "options", [{}, {"database": True, "lease_ms": 2000, "keep_alive_ms": 700}], ids=["lock-file", "database"]
)
def test_a_shared_store_goes_to_the_other_broker_with_all_its_messages(tmp_path: Path, options: dict[str, Any]) -> None:
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, queues=(Q,), options=options) as lab:
        waiting = lab.status().sites[1]
        with pytest.raises(UsageError, match="no link joins"):
            lab.cut()
        send(lab, 30)
        held = ids(lab, "london")

        lab.stop("london")
        eventually(lambda: has_the_store(lab, "paris"), within_s=20)
        after_a_stop = ids(lab, "paris")
        lab.start("london")
        lab.kill("paris")
        eventually(lambda: has_the_store(lab, "london"), within_s=20)
        after_a_kill = ids(lab, "london")
        processes = lab.processes()

    assert (waiting.running, waiting.answers) == (True, False)
    assert len(held) >= 30
    assert after_a_stop == after_a_kill == held
    assert len(processes) == (2 if options else 1)
    assert not any(process.alive() for process in processes)


def test_what_is_fanned_out_is_worked_on_once_and_survives_the_loss_of_a_site(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=FAN_OUT, queues=(Q,)) as lab:
        with lab.load(200) as load:
            load.wait_for(200)
            held = admin(lab, "paris").depth(Q)
            lab.kill("london")
            before = load.counts().sent
            lab.open_clients("paris")
            (lab.directory / LEAST_FILE).write_text("1")
            load.wait_until(lambda counts: counts.sent >= before + 100)
            verdict = load.stop()
        left = admin(lab, "paris").depth(Q)

    assert held >= 200
    assert verdict.clean
    assert left == 0


def test_while_both_have_to_confirm_nothing_is_sent_to_one_alone(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=FAN_OUT, queues=(Q,)) as lab, lab.load(200) as load:
        load.wait_for(50)
        lab.kill("paris")
        load.wait_until(lambda counts: counts.attempted == counts.sent + counts.send_in_doubt)
        stuck = load.counts().attempted
        lab.start("paris")
        load.wait_until(lambda counts: counts.sent >= stuck + 50)
        verdict = load.stop()

    assert verdict.clean
