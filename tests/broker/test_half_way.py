"""A return over a slow link ends half way, under a consumer at the serving site: what was done comes no second time,
and the next return succeeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, changed_settings, on_queue, until
from tests.twin.matrix import ACCEPTED
from tests.twin.subject import Client
from tests.twin.test_half_way import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.deep]

DONE, NEVER = 1500, 20
DELAY_MS = 500  # a link takes 1 000 events, and more only once these are confirmed
IN_BY_THEN = 300
NAME = "dr-ctl.quarantine.paris.orders.in"


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Operator:
    def stalls_soon(told: dict[str, object]) -> None:
        told["drain"] = {"stall": "8s"}

    return Operator(lab, tmp_path / "state", changed_settings(lab, tmp_path, stalls_soon))


@pytest.fixture
def consumer(lab: Lab, operator: Operator) -> Iterator[Consumer]:
    """London was lost with messages that it had done, and some that it had not; it is back, behind a slow link."""
    lab.cut("london")
    client = Client(lab.site("london"), {})
    for number in range(DONE + NEVER):
        client.send("orders.in", f"message {number}")
    client.subscribe("orders.in", consumer_window_size="-1")
    for _ in range(DONE):
        client.connection.stomp.send_frame("ACK", {"id": client.message().headers["ack"]}, "")
    until(lambda: lab.admin("london").depth("orders.in") == NEVER, why="they are done")
    lab.kill("london")
    client.connection.close(politely=False)
    presumed = ("--presume-down", "london", "--reason", "it was killed")
    assert operator.run("failover", "--to", "paris", "--yes", *ACCEPTED, *presumed).code == 0
    consumer = Consumer(lab)
    lab.delay(DELAY_MS, "london")
    lab.heal()
    lab.start("london")
    yield consumer
    consumer.end()


def test_what_was_done_comes_no_second_time(lab: Lab, operator: Operator, consumer: Consumer) -> None:
    process = operator.start("reinstate", "london", "--yes")
    until(lambda: lab.admin("paris").depth("orders.in") >= IN_BY_THEN, why="some of it is in")
    lab.cut("london", mode="hang")
    ended = operator.wait(process)
    lab.heal()
    lab.delay(0)
    again = operator.run("reinstate", "london", "--yes")

    assert ended.code == 24, ended.document
    left = ended.document["data"]["left"]
    assert left["taken_out"][NAME] >= IN_BY_THEN
    assert left["duplicates_at_most"] == 0
    assert "DR-RETURN-006" in ended.told
    assert again.code == 0, again.document
    until(lambda: len(consumer.got) == NEVER, why="what was never done is delivered")
    assert {*consumer.got} == {f"message {number}" for number in range(DONE, DONE + NEVER)}
    on_queue(lab, "paris", NAME, "removeAllMessages()")
