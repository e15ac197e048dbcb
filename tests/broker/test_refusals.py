"""What speaks against a move is said before the first call, with its remedy, and nothing is changed."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.stomp_io.address import Address
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import (
    Ended,
    Operator,
    changed_settings,
    end_all,
    execute,
    on_queue,
    recorded,
    reset,
    send,
    state_of,
    until,
)
from tests.lab.holding import HoldingConsumer

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.fixture(scope="module")
def odd_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A pair with one more open acceptor at each broker, whose mirrors do not carry the removal of queues."""

    def keep_queues(xml: str) -> str:
        assert 'queue-removal="true"' in xml
        return xml.replace('queue-removal="true"', 'queue-removal="false"')

    with Lab.up(tmp_path_factory.mktemp("odd") / "lab", options={"admin_door": True}, edit=keep_queues) as lab:
        yield lab


@pytest.fixture
def odd_operator(odd_lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    reset(odd_lab)
    yield Operator(odd_lab, tmp_path / "state")
    end_all()


def refused(ended: Ended, operator: Operator, finding: str, *words: str) -> None:
    """Refused before the first call: reason, remedy, no run."""
    assert (ended.code, ended.document["outcome"]) == (10, "precheck_failed"), ended.document
    named = [each for each in ended.document["findings"] if each["id"] == finding]
    assert named, ended.document["findings"]
    assert named[0]["severity"] == "error"
    assert named[0]["remedy"]
    assert all(word in named[0]["text"] for word in words), named[0]["text"]
    assert not list(operator.state.glob("runs/*"))


def closed_console(told: dict[str, Any]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told["sites"]["london"]["brokers"][0]["jolokia"] = f"http://127.0.0.1:{port}/console/jolokia"


def wrong_password(told: dict[str, Any]) -> None:
    told["sites"]["london"]["brokers"][0]["password"] = {"plain": "not-the-password"}


def missing_secret(told: dict[str, Any]) -> None:
    told["sites"]["london"]["brokers"][0]["password"] = {"env": "DR_CTL_TEST_NO_SUCH_VARIABLE"}


def misspelt_acceptor(told: dict[str, Any]) -> None:
    told["sites"]["london"]["brokers"][0]["clients"] = ["cleints"]


@pytest.mark.parametrize(
    ("change", "finding", "words"),
    [
        (wrong_password, "DR-SITE-001", ("london", "login")),
        (closed_console, "DR-SITE-001", ("london", "connection refused")),
        (missing_secret, "DR-SITE-001", ("london", "DR_CTL_TEST_NO_SUCH_VARIABLE")),
        (misspelt_acceptor, "DR-DOOR-001", ("cleints",)),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    change: Callable[[dict[str, Any]], None],
    finding: str,
    words: tuple[str, ...],
    lab: Lab,
    operator: Operator,
    tmp_path: Path,
) -> None:
    before = state_of(lab)
    settings = changed_settings(lab, tmp_path / "settings", change)

    ended = Operator(lab, operator.state, settings).run("swapover", "--to", "paris", "--yes")

    refused(ended, operator, finding, *words)
    assert "not-the-password" not in ended.told + ended.err
    assert state_of(lab) == before


def test_a_web_page_in_place_of_the_console_is_refused(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    before = state_of(lab)

    with recorded(lab, tmp_path / "recorded") as (settings, recorders):
        recorders["london"].page = (200, "<html><body>Please log in</body></html>")
        ended = Operator(lab, operator.state, settings).run("swapover", "--to", "paris", "--yes")

    refused(ended, operator, "DR-SITE-001", "london", "no JSON")
    assert state_of(lab) == before


def test_a_consumer_at_the_standby_is_refused(odd_lab: Lab, odd_operator: Operator) -> None:
    before = state_of(odd_lab)
    at_paris = through_the_door(odd_lab, "paris")

    with HoldingConsumer(at_paris, "orders.in", client_id="early-bird"):
        ended = odd_operator.run("swapover", "--to", "paris", "--yes")

    refused(ended, odd_operator, "DR-STANDBY-001", "paris", "orders.in", "early-bird")
    assert state_of(odd_lab) == before


def test_a_client_on_another_acceptor_is_refused(odd_lab: Lab, odd_operator: Operator) -> None:
    before = state_of(odd_lab)
    at_london = through_the_door(odd_lab, "london")

    with HoldingConsumer(at_london, "orders.in", client_id="by-the-side-door"):
        ended = odd_operator.run("swapover", "--to", "paris", "--yes")

    refused(ended, odd_operator, "DR-DOOR-005", "london", "admin-door", "by-the-side-door")
    assert state_of(odd_lab) == before


def through_the_door(lab: Lab, site: str) -> Any:
    door = lab.site(site).ports["door"]
    return replace(lab.target(), sites=((site, Address("127.0.0.1", door)),))


def test_a_queue_missing_at_the_target_is_refused(odd_lab: Lab, odd_operator: Operator) -> None:
    odd_lab.create_queue("invoices")
    send(odd_lab, "london", "invoices", 4)
    until(lambda: odd_lab.admin("paris").depth("invoices") == 4)
    on_queue(odd_lab, "paris", "invoices", "removeAllMessages()")
    until(lambda: odd_lab.admin("london").depth("invoices") == 0)
    execute(odd_lab, "paris", "", "destroyQueue(java.lang.String)", "invoices")
    execute(odd_lab, "london", "", "stopBrokerConnection(java.lang.String)", "paris")
    # Captured while the queue is not there, so it never arrives: the mirror has no place to put it.
    send(odd_lab, "london", "invoices", 4)
    execute(odd_lab, "london", "", "startBrokerConnection(java.lang.String)", "paris")
    until(lambda: "invoices" in odd_lab.admin("paris").depths() or odd_lab.admin("london").depth("invoices") == 4)
    before = state_of(odd_lab)

    ended = odd_operator.run("swapover", "--to", "paris", "--yes")

    refused(ended, odd_operator, "DR-PARITY-001", "invoices", "4 at london")
    assert state_of(odd_lab) == before


def test_a_prepared_transaction_is_refused(lab: Lab, operator: Operator) -> None:
    site = lab.site("london")
    classes = f"{distribution.obtain()}/lib/*"
    address = f"tcp://127.0.0.1:{site.ports['clients']}"
    source = Path(__file__).parent / "Prepared.java"
    words = ["java", "-cp", classes, str(source), address, site.app.user, site.app.password, "orders.in"]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    before = state_of(lab)

    ended = operator.run("swapover", "--to", "paris", "--yes")

    refused(ended, operator, "DR-TX-001", "london", "1 prepared transaction")
    assert state_of(lab) == before
    told = execute(lab, "london", "", "listPreparedTransactionDetailsAsJSON()")
    assert told
    for each in json.loads(told):
        execute(lab, "london", "", "rollbackPreparedTransaction(java.lang.String)", each["xid_as_base64"])


def test_a_link_that_is_not_started_is_refused(lab: Lab, operator: Operator) -> None:
    execute(lab, "paris", "", "stopBrokerConnection(java.lang.String)", "london")
    before = state_of(lab)

    ended = operator.run("swapover", "--to", "paris", "--yes")

    refused(ended, operator, "DR-LINK-003", "paris", "london")
    assert state_of(lab) == before


def test_a_frozen_standby_is_sick_and_never_down(lab: Lab, operator: Operator) -> None:
    lab.freeze("paris")
    try:
        ended = operator.run("swapover", "--to", "paris", "--yes")
    finally:
        lab.thaw("paris")

    refused(ended, operator, "DR-ROLE-004", "paris is sick")
