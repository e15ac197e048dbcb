"""Labs with real brokers."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.camel import LOG, Camel, broker_properties
from dr_ctl_lab.lab.kinds import BRIDGES, SHARED_STORE
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.broker.driving import Operator, refuses, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]


def ports(lab: Lab) -> list[int]:
    sites = [port for site in lab.state.sites for port in site.ports.values()]
    return sites + [port for link in lab.state.links for port in (link.port, link.control)]


def left_over(lab: Lab) -> list[object]:
    alive: list[object] = [process for process in lab.processes() if process.alive()]
    return alive + [port for port in ports(lab) if not refuses(port)] + list(lab.directory.parent.glob("lab*"))


def test_two_labs_come_up_at_once_and_leave_nothing(tmp_path: Path) -> None:
    """One of them, whose links do not all start at boot and where nobody serves yet, waits for none of that."""
    waits: dict[str, Any] = {"options": {"link_auto_start": {"paris": False}}, "serving": None}
    kinds = {"lab1": {}, "lab2": waits}
    with ThreadPoolExecutor(2) as both:
        labs = [*both.map(lambda name: Lab.up(tmp_path / name, **kinds[name]), kinds)]
    try:
        lab, other = labs
        assert not set(ports(lab)) & set(ports(other))
        waiting = other.status()
        assert [link.connected for link in waiting.links] == [True, False]
        assert [site.clients_open for site in waiting.sites] == [False, False]
        status = lab.status()
        json.dumps(document(status))
        assert [(site.name, site.running, site.answers, site.clients_open) for site in status.sites] == [
            ("london", True, True, True),
            ("paris", True, True, False),
        ]
        assert [(link.mode, link.connected) for link in status.links] == [("open", True)] * 2
        again = Lab.open(lab.directory)
        assert (again.state, again.pid("paris")) == (lab.state, lab.pid("paris"))
    finally:
        for one in labs:
            one.down()

    for one in labs:
        one.down()  # twice is once
        assert left_over(one) == []


def test_traffic_leaves_a_ledger_a_cut_link_heals_and_a_frozen_broker_runs_and_does_not_answer(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab") as lab:
        before = {*lab.ledgers.iterdir()}

        ended = Operator(lab, tmp_path).run("lab", "load", "--dir", str(lab.directory), "--rate", "100", "--for", "1s")

        assert (ended.code, ended.document["data"]["clean"]) == (0, True)
        sent = ended.document["data"]["counts"]["sent"]
        assert 0 < sent <= 110
        [ledger] = {*lab.ledgers.iterdir()} - before
        assert len(ledger.read_text().splitlines()) == 3 * sent

        lab.cut("london")
        until(lambda: lab.status().links[0].connected is False)
        assert [link.mode for link in lab.status().links] == ["refuse", "open"]
        lab.heal()
        lab.wait_mirrored()

        lab.freeze("paris")
        try:
            until(lambda: lab.status().sites[1].frozen)
            paris = lab.status().sites[1]
        finally:
            lab.thaw("paris")
        assert (paris.running, paris.frozen, paris.answers, paris.clients_open) == (True, True, False, None)
        until(lambda: lab.status().sites[1].answers)
        lab.wait_mirrored()


@pytest.mark.parametrize(
    ("home", "edit", "said", "words"),
    [
        (None, lambda xml: xml.replace("<core ", "<kore ", 1), "the broker ended", "kore"),  # its own words
        ("broken", None, "artemis create", ""),
    ],
)
def test_a_broker_that_cannot_start_is_quoted_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
    edit: Callable[[str], str] | None,
    said: str,
    words: str,
) -> None:
    made: list[Lab] = []
    monkeypatch.setattr(Lab, "_save", lambda lab, save=Lab._save: (made.append(lab), save(lab)))
    if home is not None:
        (tmp_path / home).mkdir()
        monkeypatch.setattr(distribution, "obtain", lambda _: tmp_path / home)

    with pytest.raises(EnvironmentFault, match=said) as failed:
        Lab.up(tmp_path / "lab", edit=edit)

    assert words in str(failed.value)
    assert left_over(made[-1]) == []


def test_brokers_of_bridges_copy_a_queue_that_is_made_later(tmp_path: Path) -> None:
    variations = 'it\'s a "quoted" queue'
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A", variations)) as lab:
        rows = [(site.name, site.clients_open, site.serves, site.processor) for site in lab.status().sites]
        with pytest.raises(UsageError, match="has ','"):
            lab.create_queue("a,b")  # no divert can copy it
        lab.create_queue("late")
        lab.wait_mirrored()
        before = lab.admin("paris").depth("late")
        with lab.load(100, queues=["late"]) as load:
            load.wait_for(20)
            sent = load.stop().counts.sent
        until(lambda: lab.admin("paris").depth("late") == before + sent)
        served = ["late" in site.serves for site in lab.status().sites]

    assert rows == [("london", True, ("A", variations), True), ("paris", False, (), True)]
    assert (served, "a,b" in lab.queues) == ([True, False], False)


def test_classic_brokers_and_their_database_end_with_their_lab(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, options={"database": True}) as lab:
        waiting = lab.status().sites[1]
        with pytest.raises(UsageError, match="no link joins"):
            lab.cut()
        processes = lab.processes()

    assert (waiting.running, waiting.answers, len(processes)) == (True, False, 3)
    assert left_over(lab) == []


ROUTE = """
- route:
    id: billing
    from:
      uri: amqp:queue:A
      steps:
        - log: "{{greeting}} ${header.order_id}"
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    [reserve_ports_] = reserve_ports(1, tmp_path)
    yield reserve_ports_
    release_ports(tmp_path)


def test_a_route_works_on_a_brokers_messages_and_is_seen_until_it_ends(tmp_path: Path, port: int) -> None:
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A",)) as lab:
        london = lab.site("london")
        options = {**broker_properties(london.stomp, london.app), "greeting": "billed"}
        with Camel.up(tmp_path / "app", ROUTE, port=port, name="billing", settings=options) as app:
            assert app.states() == {"billing": "Started"}
            with lab.load(100, consumers=0) as load:
                load.wait_for(20)
                sent = load.stop(drain_s=0).counts.sent

            until(lambda: (app.folder / LOG).read_text().count("billed ") == sent)
            until(lambda: lab.admin("london").depth("A") == 0)

    assert not app.process.alive()
    assert refuses(port)


def test_routes_that_cannot_start_are_told_with_the_log_and_nothing_is_left(tmp_path: Path, port: int) -> None:
    with pytest.raises(EnvironmentFault, match="no-such-part"):
        Camel.up(tmp_path / "app", ROUTE.replace("amqp:", "no-such-part:"), port=port, name="billing")

    assert refuses(port)
