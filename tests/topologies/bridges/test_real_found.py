"""What a move or a trim must never do with queues that diverts and bridges copy, each once on two real brokers."""

from __future__ import annotations

import json
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from dr_ctl.stomp_io.connection import Connection
from dr_ctl_lab.lab.artemis.bridges import ORIGIN, TEXT
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.clients.stomp import StompClient
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, execute, send_as_client, until
from tests.topologies.bridges.real import QUEUES, admin, assert_clean, shipped

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def depths(lab: Lab, queue: str) -> tuple[int, int]:
    return lab.admin("london").depth(queue), lab.admin("paris").depth(queue)


def made(lab: Lab, queue: str) -> None:
    """A queue at both sites that London serves."""
    for site in ("london", "paris"):
        admin(lab, site).create_queue(queue)
    admin(lab, "london").open_queue(queue)


def rights(lab: Lab, site: str, match: str, *words: str) -> None:
    execute(lab, site, "", f"addSecuritySettings({','.join([TEXT] * 11)})", match, *words)


def roles(lab: Lab, site: str, queue: str) -> set[str]:
    """The roles that may send there."""
    told = json.loads(execute(lab, site, "", f"getRolesAsJSON({TEXT})", queue))
    return {row["name"] for row in told if row["send"]}


def found(ended: Ended) -> set[str]:
    return {each["id"] for each in ended.document["findings"]}


@contextmanager
def client(lab: Lab) -> Iterator[Connection]:
    dialled = Dialler(lab.target()).dial(threading.Event())
    assert dialled is not None
    _, client = dialled
    assert isinstance(client, StompClient)
    yield client.connection
    client.close()


def test_rights_that_management_gave_are_there_after_a_move_and_the_way_back(
    bridges_lab: Lab, operator: Operator
) -> None:
    """No file names the auditor, so that only what was noted can give the role its right back."""
    made(bridges_lab, "RT")
    rights(bridges_lab, "london", "RT", "amq,app,bridge,auditor", "amq,app", *["amq"] * 8)
    before = roles(bridges_lab, "london", "RT")

    there = operator.run(*SWAPOVER, "--queues", "RT")
    moved = roles(bridges_lab, "london", "RT"), roles(bridges_lab, "paris", "RT")
    back = operator.run("swapover", "--to", "london", "--queues", "RT", "--yes")

    assert (there.code, back.code) == (0, 0), (there.told, back.told)
    assert ("app" in moved[0], "app" in moved[1]) == (False, True)
    assert roles(bridges_lab, "london", "RT") == before == {"amq", "app", "bridge", "auditor"}


def test_a_trim_takes_no_copy_of_what_its_sender_gave_an_origin_and_nobody_processed(
    bridges_lab: Lab, operator: Operator
) -> None:
    send_as_client(bridges_lab, "BAR", 10, **{ORIGIN: "london"})
    until(lambda: depths(bridges_lab, "BAR") == (10, 10), why="they are copied")

    ended = operator.run("trim", "paris", "--queues", "BAR", "--yes")

    assert (ended.code, depths(bridges_lab, "BAR")) == (0, (10, 10)), ended.told


def test_a_trim_takes_no_copy_of_a_message_whose_transaction_is_committed_late(
    bridges_lab: Lab, operator: Operator
) -> None:
    """Its number is lower than those of all that were sent and processed meanwhile."""
    with client(bridges_lab) as late:
        late.stomp.send_frame("BEGIN", {"transaction": "t", "receipt": "begun"}, "")
        headers = {"destination": "FOO", "destination-type": "ANYCAST", "persistent": "true", "transaction": "t"}
        late.stomp.send_frame("SEND", {**headers, "receipt": "sent"}, "late")
        until(lambda: any(frame.headers.get("receipt-id") == "sent" for frame in late.receive(0.1)))
        with bridges_lab.load(RATE, queues=["FOO"], producers=1, consumers=1) as load:
            load.wait_for(50)
            assert_clean(load.stop())
        until(lambda: shipped(bridges_lab, "london", "paris"), why="the ids are applied")
        late.stomp.send_frame("COMMIT", {"transaction": "t", "receipt": "committed"}, "")
        until(lambda: any(frame.headers.get("receipt-id") == "committed" for frame in late.receive(0.1)))
    until(lambda: depths(bridges_lab, "FOO")[0] == 1 and shipped(bridges_lab, "london"), why="it is copied")

    ended = operator.run("trim", "paris", "--queues", "FOO", "--yes")

    assert (ended.code, depths(bridges_lab, "FOO")) == (0, (1, 1)), ended.told


def test_a_queue_that_an_ordinary_divert_feeds_is_moved(bridges_lab: Lab, operator: Operator) -> None:
    made(bridges_lab, "FED")
    source = {"name": "SRC", "address": "SRC", "routing-type": "ANYCAST", "durable": True}
    execute(bridges_lab, "london", "", f"createQueue({TEXT},boolean)", json.dumps(source), True)
    divert = {"name": "app.SRC", "address": "SRC", "forwarding-address": "FED", "exclusive": True}
    execute(bridges_lab, "london", "", f"createDivert({TEXT})", json.dumps({**divert, "routing-type": "ANYCAST"}))
    send_as_client(bridges_lab, "SRC", 5)
    until(lambda: depths(bridges_lab, "FED") == (5, 5), why="they are copied")

    ended = operator.run(*SWAPOVER, "--queues", "FED")

    assert ended.code == 0, ended.told


def test_a_queue_whose_divert_is_gone_at_the_serving_site_opens_at_no_second_one(
    bridges_lab: Lab, operator: Operator
) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        execute(bridges_lab, "london", "", f"destroyDivert({TEXT})", "divert.FOO")
        ended = operator.run(*SWAPOVER)
        verdict = load.stop()

    assert (ended.code, ended.document["run"]) == (10, None), ended.told
    assert {site.name: site.serves for site in bridges_lab.status().sites} == {"london": QUEUES, "paris": ()}
    assert_clean(verdict)


def test_messages_without_a_copy_undo_a_move_however_old_they_are(bridges_lab: Lab, operator: Operator) -> None:
    """The copy's queue was made again at the waiting site while messages waited at the serving one."""
    send_as_client(bridges_lab, "BAZ", 12)
    until(lambda: depths(bridges_lab, "BAZ") == (12, 12), why="they are copied")
    execute(bridges_lab, "paris", "", f"destroyQueue({TEXT})", "BAZ")
    again = {"name": "BAZ", "address": "BAZ", "routing-type": "ANYCAST", "durable": True}
    execute(bridges_lab, "paris", "", f"createQueue({TEXT},boolean)", json.dumps(again), True)
    admin(bridges_lab, "paris").close_queue("BAZ")
    send_as_client(bridges_lab, "BAZ", 3, at="london")
    until(lambda: depths(bridges_lab, "BAZ") == (15, 3), why="what came since is copied")

    ended = operator.run(*SWAPOVER, "--queues", "BAZ")

    assert ended.code in (10, 20), ended.told
    assert "12 message(s) of BAZ lie at london and not at paris" in ended.told
    assert {site.name: site.serves for site in bridges_lab.status().sites}["london"] == QUEUES


def test_a_way_back_under_load_finds_what_was_sent_while_a_divert_was_away(
    bridges_lab: Lab, operator: Operator
) -> None:
    """The copy at the site to go back to begins with originals of that site, left there by the move away."""
    with bridges_lab.load(RATE, consumers=0) as first:
        first.wait_for(RATE)
        first.stop(drain_s=0)
    until(lambda: shipped(bridges_lab, "london"), why="the copies are there")
    assert operator.run(*SWAPOVER).code == 0
    send_as_client(bridges_lab, "FOO", 5, at="paris")
    until(lambda: shipped(bridges_lab, "paris"), why="the copies are there")
    before = depths(bridges_lab, "FOO")
    name = "mirror.london.FOO"
    buffer = f'component=addresses,address="mirror.FOO",subcomponent=queues,routing-type="anycast",queue="{name}"'
    execute(bridges_lab, "paris", 'component=bridges,name="bridge.mirror.london.FOO"', "stop()")
    send_as_client(bridges_lab, "FOO", 7, at="paris")
    execute(bridges_lab, "paris", buffer, "removeAllMessages()")
    execute(bridges_lab, "paris", 'component=bridges,name="bridge.mirror.london.FOO"', "start()")
    assert depths(bridges_lab, "FOO") == (before[0], before[1] + 7)

    ended = operator.run("swapover", "--to", "london", "--queues", "FOO", "--yes")

    assert ended.code in (10, 20), ended.told
    assert "7 message(s) of FOO lie at paris and not at london" in ended.told


def test_ids_that_never_came_to_the_other_store_refuse_a_move_and_are_counted(
    bridges_lab: Lab, operator: Operator
) -> None:
    with bridges_lab.load(RATE, queues=["FOO"], producers=1, consumers=1) as load:
        load.wait_for(50)
        assert_clean(load.stop())
    until(lambda: shipped(bridges_lab, "london", "paris"), why="the ids are applied")
    with closing(sqlite3.connect(bridges_lab.id_store("paris"))) as store, store:
        store.execute("DELETE FROM processed WHERE (queue, id) IN (SELECT queue, id FROM processed LIMIT 2)")

    refused = operator.run(*SWAPOVER, "--queues", "FOO")
    [told] = [each for each in refused.document["findings"] if each["id"] == "DR-BRIDGE-018"]
    words = shlex.split(told["remedy"][told["remedy"].index("--accept-difference") :].split("`")[0])[:2]
    moved = operator.run(*SWAPOVER, "--queues", "FOO", *words)

    assert (refused.code, told["text"].startswith("2 message(s) of FOO may come twice")) == (10, True), refused.told
    assert moved.code == 0, moved.told
