"""Clients of every protocol at a mirrored pair: what they send and take, and a move with their messages at rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from dr_ctl_lab.lab.clients.client import Proto
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, execute, on_queue, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]

SESSIONS = "$sys.mqtt.sessions"


@pytest.mark.parametrize("protocol", Proto)
def test_stored_messages_move_there_and_back_compared_one_by_one(lab: Lab, operator: Operator, protocol: Proto) -> None:
    """A copy keeps its origin over a restart of its broker: an AMQP message's annotations do not."""
    variations = [item for item in lab.target().variations if item.name != "DELAYED"]  # where one waits, counts decide
    with lab.load(100, protocols=[protocol], variations=variations, consumers=0) as traffic:
        traffic.wait_for(60, within_s=60)
        traffic.pause_producing()
        until(lambda: traffic.counts().sent == traffic.counts().attempted)
    remote = operator.run("swapover", "--to", "paris", "--yes")
    lab.stop("london")
    lab.start("london")
    lab.wait_mirrored()

    back = operator.run("swapover", "--to", "london", "--yes")

    lying = sum(lab.admin("london").depth(queue) for queue in lab.queues)
    assert (remote.code, back.code) == (0, 0), (remote.told, back.told)
    assert lying >= 60
    assert compared(operator) == lying
    assert not [finding for finding in back.document["findings"] if finding["id"].startswith("DR-PARITY")]


def compared(operator: Operator) -> int:
    value: list[dict[str, Any]] = [entry["evidence"] for entry in operator.journal() if entry["kind"] == "step"]
    [by_pair] = [item for item in value if "orders-1" in item]
    return int(by_pair["orders-1"]["ids_compared"])


def test_what_mqtt_retains_and_the_sessions_it_keeps_are_said_to_stay(lab: Lab, operator: Operator) -> None:
    """The queue of a kept session moves with what waits in it; a new subscriber at the other site gets no state."""
    before = lab.admin("london").depths().get(SESSIONS, 0)  # of each connection of a load before
    with mqtt(lab, "london", "meter") as meter:
        meter.subscribe("plant/+/temp", 1)
        until(lambda: "meter.plant.*.temp" in lab.admin("london").depths())
    with mqtt(lab, "london", "plc", keeps=False) as plc:
        plc.publish("plant/1/state", "RUNNING", 1, retain=True).wait_for_publish(10)
        for value in ("17", "18"):
            plc.publish("plant/1/temp", value, 1).wait_for_publish(10)
    until(lambda: lab.admin("paris").depths().get("meter.plant.*.temp") == 2)
    sessions = lab.admin("london").depths()[SESSIONS]
    assert sessions > before
    stays = ("1 retained message(s) of MQTT (plant.1.state)", f"the session state of {sessions} client(s) of MQTT")

    validated, planned = operator.run("validate"), operator.run("plan", "swapover", "--to", "paris")
    moved = operator.run("swapover", "--to", "paris", "--yes")

    [content] = [finding for finding in validated.document["findings"] if finding["id"] == "DR-MQTT-001"]
    assert all(part in content["text"] for part in stays), content["text"]
    assert set(stays) <= {*planned.document["data"]["plan"]["not_replicated"]}
    assert moved.code == 0, moved.told
    came: list[str] = []
    with mqtt(lab, "paris", "meter", came) as meter:
        meter.subscribe("plant/+/temp", 1)
        until(lambda: sorted(came) == ["17", "18"])
        answered: list[bool] = []
        meter.on_unsubscribe = lambda *_: answered.append(True)
        meter.subscribe("plant/+/state", 1)
        meter.unsubscribe("nothing")  # is answered after what is retained
        until(lambda: answered)
        assert sorted(came) == ["17", "18"]
    back = operator.run("swapover", "--to", "london", "--yes")
    assert back.code == 0, back.told
    with mqtt(lab, "london", "plc", keeps=False) as plc:  # retained at home, however old
        plc.publish("plant/1/state", "", 1, retain=True).wait_for_publish(10)
    for kept in ("meter.plant.*.temp", "meter.plant.*.state"):
        execute(lab, "london", "", "destroyQueue(java.lang.String,boolean)", kept, True)
    until(lambda: not [name for name in lab.admin("paris").depths() if name.startswith("meter.")])
    on_queue(lab, "london", SESSIONS, "removeAllMessages()")


@contextmanager
def mqtt(lab: Lab, site: str, name: str, came: list[str] | None = None, *, keeps: bool = True) -> Iterator[paho.Client]:
    """A client of MQTT 3.1.1 with a session that outlives it, or with none."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=not keeps)
    target = lab.target()
    client.username_pw_set(target.login.user, target.login.password)
    if came is not None:
        client.on_message = lambda _client, _data, message: came.append(message.payload.decode())
    address = dict(target.sites)[site]
    client.connect(address.host, address.port)
    client.loop_start()
    try:
        until(client.is_connected)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
