"""What happens to messages and sites that the continuity plugin joins, real or simulated: where they differ the twin is
wrong."""

import json

import pytest

from dr_ctl.stomp_io.answers import Closed, Connected
from dr_ctl.stomp_io.client import greet
from dr_ctl.topologies.continuity import copies
from dr_ctl_lab.lab.kinds import CONTINUITY
from tests.twin.subject import ACTIVATE, DEACTIVATE, ID, SITES, PluginSubject, until

TOPOLOGY = CONTINUITY

DESTROY = "destroyQueue(java.lang.String,boolean)"
REMOVE = "removeMessages(java.lang.String)"


def test_a_message_is_staged_at_the_peer_and_its_acknowledgement_removes_it_there(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b", "c"])
    pair.staged("orders.in", 3)
    pair.quiet()

    assert pair.depths("orders.in", "orders.in.in.mirror") == [3, 0, 0, 3]
    assert pair.ids("london", "orders.in") == pair.ids("paris", "orders.in.in.mirror")
    assert pair.counters("london", "orders.in.out.mirror") == (3, 3, 0)

    with pair.client("london") as client:
        client.subscribe("orders.in")
        first = client.message()
        client.ack(first)
        client.confirmed("UNSUBSCRIBE", id="s")
    pair.staged("orders.in", 2)
    pair.quiet()

    assert first.headers["message-id"] == first.headers["ack"]
    assert first.headers["message-id"].isdecimal()
    assert first.headers[ID] not in pair.ids("paris", "orders.in.in.mirror")
    assert pair.ids("london", "orders.in") == pair.ids("paris", "orders.in.in.mirror")
    assert pair.counters("london", "orders.in.out.acks") == (1, 1, 0)
    assert pair.counters("paris", "orders.in.in.acks") == (1, 1, 0)
    assert pair.counters("paris", "orders.in.in.mirror") == (3, 0, 1)


def test_what_is_staged_waits_for_its_time_and_is_listed_apart(pair: PluginSubject) -> None:
    pair.send("orders.in", [f"{number}" for number in range(5)])
    until(lambda: pair.depths("orders.in.in.mirror")[1] == 5)

    bean = pair.at("paris", "orders.in.in.mirror")
    seen: set[tuple[int, int]] = set()

    def over() -> bool:
        staged = pair.flow("paris", "orders.in").in_mirror
        listed = json.loads(pair.execute("paris", bean, "listScheduledMessagesAsJSON()")["value"])
        assert all(row["_AMQ_SCHED_DELIVERY"] == row["timestamp"] + 500 and row[ID] for row in listed)
        seen.add((staged.depth, staged.delivering))
        return staged.scheduled == 0

    until(over)
    assert seen == {(5, 0)}


def test_what_was_delivered_there_comes_back_and_is_refused_for_ever(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)

    pair.move("paris")

    until(lambda: pair.depths("orders.in", "orders.in.in.mirror") == [2, 2, 2, 0])
    with pair.client("paris") as client:
        client.subscribe("orders.in")
        message = client.message()
        client.confirmed("UNSUBSCRIBE", id="s")
    assert message.headers["_CTY_ORIGIN"] == "london"
    assert message.headers["_AMQ_ORIG_ADDRESS"] == "orders.in"
    assert message.headers["_AMQ_ORIG_QUEUE"] == "orders.in.out.mirror.divert"
    assert message.headers["redelivered"] == "false"
    assert message.headers[ID] in pair.ids("london", "orders.in")

    pair.move("london")

    until(lambda: pair.flow("london", "orders.in").stuck)
    flow = pair.flow("london", "orders.in")
    assert (flow.in_mirror.depth, flow.in_mirror.delivering) == (2, 2)
    assert flow.target_bridge.forwarded - flow.target_bridge.acked == 2
    bean = pair.at("london", "orders.in.in.mirror")
    every = f"{ID} IN ({', '.join(repr(each) for each in sorted(pair.ids('london', 'orders.in')))})"
    assert pair.execute("london", bean, REMOVE, every)["value"] == 0
    pair.execute("london", pair.bridge("london", "orders.in.in.mirror.bridge"), "stop()")
    until(lambda: pair.flow("london", "orders.in").in_mirror.delivering == 0)
    assert pair.execute("london", bean, REMOVE, every)["value"] == 2
    pair.quiet()
    assert pair.depths("orders.in") == [2, 2]


def test_an_acknowledgement_that_overtakes_its_message_finds_nothing(pair: PluginSubject) -> None:
    bridge = pair.bridge("london", "orders.in.out.mirror.bridge")
    assert pair.execute("london", bridge, "stop()")["status"] == 200
    until(lambda: pair.flow("london", "orders.in").out_mirror.consumers == 0)
    with pair.client("london") as client:
        client.send("orders.in")
        client.subscribe("orders.in")
        client.ack(client.message())
        client.confirmed("UNSUBSCRIBE", id="s")
    until(lambda: pair.counters("paris", "orders.in.in.acks")[1] == 1)
    assert pair.depths("orders.in.out.mirror")[0] == 1

    pair.execute("london", bridge, "start()")

    pair.staged("orders.in", 1)
    pair.quiet()
    assert pair.depths("orders.in", "orders.in.in.mirror") == [0, 0, 0, 1]


@pytest.mark.parametrize("politely", [True, False], ids=["unsubscribed", "disconnected"])
def test_what_a_connection_held_when_it_ended_costs_the_peer_a_copy(pair: PluginSubject, politely: bool) -> None:
    pair.send("orders.in", ["a", "b", "c"])
    pair.staged("orders.in", 3)
    with pair.client("london") as client:
        client.subscribe("orders.in")
        held = [client.message() for _ in range(3)]
        if politely:
            client.confirmed("UNSUBSCRIBE", id="s")
        client.confirmed("DISCONNECT")

    pair.staged("orders.in", 3 if politely else 2)
    pair.quiet()

    assert pair.depths("orders.in")[0] == 3
    gone = pair.ids("london", "orders.in") - pair.ids("paris", "orders.in.in.mirror")
    assert gone == (set() if politely else {held[0].headers[ID]})


def test_what_management_puts_into_a_queue_is_not_shipped_and_its_removal_is(pair: PluginSubject) -> None:
    pair.put("london", "orders.out")
    pair.quiet()
    assert pair.depths("orders.out", "orders.out.in.mirror") == [1, 0, 0, 0]
    assert len(pair.ids("london", "orders.out")) == 1

    assert pair.execute("london", pair.at("london", "orders.out"), REMOVE, "n = '0'")["value"] == 1

    until(lambda: pair.counters("paris", "orders.out.in.acks")[1] == 1)
    assert pair.counters("london", "orders.out.out.acks")[0] == 1


def test_emptying_the_queue_of_a_site_that_waits_deletes_where_clients_are_served(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)
    pair.move("paris")
    until(lambda: pair.depths("orders.in") == [2, 2])

    pair.execute("london", pair.at("london", "orders.in"), "removeAllMessages()")

    until(lambda: pair.depths("orders.in") == [0, 0])


def test_activation_lets_clients_in_and_puts_the_peer_out(pair: PluginSubject) -> None:
    at = {site: pair.place(site) for site in SITES}
    assert isinstance(greet(at["london"].stomp, at["london"].app, None, timeout_s=5), Connected)
    assert isinstance(greet(at["paris"].stomp, at["paris"].app, None, timeout_s=5), Closed)

    assert pair.execute("paris", pair.service("paris"), ACTIVATE, 20_000) == {"value": None, "status": 200}

    until(lambda: pair.serving("paris") == (True, True))
    until(lambda: pair.serving("london") == (False, False))
    assert isinstance(greet(at["paris"].stomp, at["paris"].app, None, timeout_s=5), Connected)
    assert isinstance(greet(at["london"].stomp, at["london"].app, None, timeout_s=5), Closed)
    for _ in range(2):
        assert pair.execute("paris", pair.service("paris"), DEACTIVATE) == {"value": None, "status": 200}
    assert [pair.serving(site) for site in SITES] == [(False, False)] * 2
    assert not any(flow.target_bridge.started for flow in pair.view("paris").flows)


def test_a_bridge_starts_again_where_its_peers_door_opens(pair: PluginSubject) -> None:
    door = pair.acceptor("paris", "mirror")

    pair.execute("paris", door, "stop()")

    until(lambda: not any(queue.consumers for flow in pair.view("london").flows for queue in flow.outflow))
    assert all(pair.view("london").link.ships.values())
    pair.send("orders.in", ["a"])
    assert pair.depths("orders.in", "orders.in.out.mirror", "orders.in.in.mirror") == [1, 1, 0, 0, 0, 0]
    first = pair.flow("london", "orders.in").out_mirror.oldest_ms
    assert first is not None
    until(lambda: (pair.flow("london", "orders.in").out_mirror.oldest_ms or 0) > first)

    pair.execute("paris", door, "start()")

    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)
    until(lambda: pair.view("london").link.attached)


def test_a_cut_way_takes_the_bridges_down_and_healing_brings_them_back(pair: PluginSubject) -> None:
    pair.stage.cut("london")
    until(lambda: not pair.flow("london", "orders.in").out_mirror.consumers)
    assert pair.view("paris").link.attached
    pair.send("orders.in", ["a"])
    assert pair.depths("orders.in.out.mirror", "orders.in.in.mirror") == [1, 0, 0, 0]

    pair.stage.heal()

    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)


def test_over_a_way_that_hangs_a_bridge_seems_connected_and_ships_nothing(pair: PluginSubject) -> None:
    pair.stage.cut("london", "hang")
    pair.send("orders.in", ["a"])

    until(lambda: pair.flow("london", "orders.in").out_mirror.delivering == 1)
    outflow = pair.flow("london", "orders.in")
    assert (outflow.out_mirror.depth, outflow.out_mirror.consumers) == (1, 1)
    assert outflow.mirror_bridge.forwarded - outflow.mirror_bridge.acked == 1
    assert pair.depths("orders.in.in.mirror")[1] == 0

    pair.stage.heal()
    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)
    pair.quiet()
    assert pair.counters("paris", "orders.in.in.mirror") == (1, 0, 0)


def test_alone_a_site_delivers_when_its_patience_is_over_and_what_it_said_is_kept(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)
    pair.execute("paris", pair.at("paris", "continuity.cmd.out"), "pause(boolean)", True)
    pair.stage.kill("london")

    pair.execute("paris", pair.service("paris"), ACTIVATE, 1_000)

    assert pair.serving("paris") == (True, False)
    until(lambda: pair.serving("paris") == (True, True), within_s=5)
    until(lambda: pair.depths_at("paris", "orders.in", "orders.in.in.mirror") == [2, 0])
    assert pair.depths_at("paris", "continuity.cmd.out") == [1]
    pair.stage.start("london")
    until(lambda: pair.serving("london") is not None, within_s=30)
    # It was told nothing; it starts inactive by itself, with what it held.
    until(lambda: pair.view("london").link.attached)
    assert [pair.serving(site) for site in SITES] == [(False, False), (True, True)]
    assert pair.depths("orders.in")[0] == 2
    pair.execute("paris", pair.at("paris", "continuity.cmd.out"), "resume()")
    pair.quiet()
    assert [pair.serving(site) for site in SITES] == [(False, False), (True, True)]


def test_a_new_queue_becomes_a_flow_at_both_sites_and_its_end_is_not_told(pair: PluginSubject) -> None:
    name = "made.by.hand"
    assert pair.write("london", name, None, name)["status"] == 200

    until(lambda: all(pair.view(site).flow(name) is not None for site in SITES))
    until(lambda: all(queue.consumers for site in SITES for queue in pair.flow(site, name).outflow))
    pair.send(name, ["a"])
    pair.staged(name, 1)
    assert pair.execute("london", pair.server("london"), DESTROY, name, True)["status"] == 200

    until(lambda: pair.view("london").flow(name) is None)
    assert name in pair.view("paris").business
    pair.execute("paris", pair.server("paris"), DESTROY, name, True)
    until(lambda: pair.view("paris").flow(name) is None)


def test_ids_are_counted_in_slices_that_hold_each_of_them_once(pair: PluginSubject) -> None:
    pair.send("orders.in", [f"m{n}" for n in range(60)])
    pair.staged("orders.in", 60)
    operation = "countMessages(java.lang.String,java.lang.String)"
    bean = pair.at("paris", "orders.in.in.mirror")

    told = [json.loads(pair.execute("paris", bean, operation, each, ID)["value"]) for each in copies.slices()]

    assert sum(len(each) for each in told) == 60
    assert set().union(*told) == pair.ids("paris", "orders.in.in.mirror")
