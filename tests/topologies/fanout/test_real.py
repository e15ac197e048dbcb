"""Two real brokers that producers write to side by side: what counters alone prove, and what STOMP carries whole."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.stomp_io.address import Address
from dr_ctl.stomp_io.knock import knock
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.kinds import FAN_OUT, KINDS
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.rehearsal import UNKNOWN
from tests.broker.driving import Operator, end_all, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 60  # consumers that have one message in hand at a time keep up with it


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_all()


def send_to(lab: Lab, site: str, queue: str, ident: str) -> None:
    """As a producer that reaches one site only."""
    where = lab.site(site)
    _, connection = knock(Address("127.0.0.1", where.ports["producers"]), where.app, None, timeout_s=5)
    assert connection is not None
    headers = {"persistent": "true", "order_id": ident, "receipt": ident}
    connection.stomp.send(f"/queue/{queue}", "alone", headers=headers)
    until(lambda: any(frame.cmd == "RECEIPT" for frame in connection.receive(0.1)))
    connection.close()


def test_without_a_store_of_ids_it_moves_there_and_back_under_load_by_counters(tmp_path: Path) -> None:
    queues = ("orders.in", "orders.out", "facturen")
    with Lab.up(tmp_path / "lab", topology=FAN_OUT, queues=queues) as lab:
        told = yaml.safe_load(lab.settings_path.read_text(encoding="utf-8"))
        del told["ids"]
        lab.settings_path.write_text(json.dumps(told), encoding="utf-8")
        operator = Operator(lab, tmp_path / "state")
        with lab.load(2 * RATE) as traffic:
            traffic.wait_for(10 * RATE, within_s=60)
            ready = operator.run("validate", "--to", "paris")
            there = operator.run("swapover", "--to", "paris", "--yes")
            traffic.wait_for(traffic.counts().sent + 4 * RATE, within_s=60)
            back = operator.run("swapover", "--to", "london", "--yes")
            traffic.wait_for(traffic.counts().sent + RATE, within_s=60)
            send_to(lab, "paris", "orders.in", "alone")
            refused = operator.run("swapover", "--to", "paris", "--yes")
            verdict = traffic.stop(drain_s=60)
        rest = operator.run("validate", "--to", "paris")
        [needs] = rest.document["data"]["operations"]["swapover"]["needs"]
        moved = operator.run("swapover", "--to", "paris", "--yes", *needs.split())
    assert [ready.code, there.code, back.code] == [0, 0, 0], (ready.told, there.told, back.told)
    assert verdict.drained
    assert (verdict.lost, verdict.duplicates) == ((), ())
    assert refused.code == 10, refused.told
    assert "a message came to one site alone since both were compared" in refused.told
    assert moved.code == 0, moved.told


def rows(lab: Lab, site: str, queue: str) -> dict[str, dict[str, Any]]:
    """What the console shows of a queue's messages, but for what each broker gives its own, by the producers' id."""
    admin = ClassicAdmin(lab.site(site))
    listed = admin._execute(admin._queue(queue), "browse()")
    own = {"JMSMessageID", "JMSTimestamp", "JMSXUserID", "BrokerPath", "PropertiesText"}
    kept = [{key: value for key, value in each.items() if key not in own} for each in listed]
    return {each["StringProperties"]["order_id"]: each for each in kept}


def send_every_kind(lab: Lab, site: str, queue: str) -> None:
    """As a JMS client does, which writes to one site only: the other one is lost."""
    where = lab.site(site)
    home = distribution.obtain(KINDS.named(FAN_OUT).distribution)
    source = Path(__file__).parent / "Kinds.java"
    address = f"tcp://127.0.0.1:{where.ports['openwire']}"
    words = [address, where.admin.user, where.admin.password, queue, "order_id"]
    classes = f"{home}/lib/*:{home}/lib/optional/*"
    subprocess.run(["java", "-cp", classes, str(source), *words], check=True, timeout=60, capture_output=True)


def test_a_return_copies_what_stomp_carries_whole_and_names_the_rest_before_anything_is_opened(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=FAN_OUT) as lab:
        operator = Operator(lab, tmp_path / "state")
        lab.kill("london")
        lost = operator.run("failover", "--to", "paris", *UNKNOWN, "--yes")
        send_every_kind(lab, "paris", "orders.in")
        lab.start("london")
        ended = operator.run("failback", "--to", "london", "--yes")
        sent, copied = rows(lab, "paris", "orders.in"), rows(lab, "london", "orders.in")

    assert lost.code == 0, lost.told
    assert (ended.code, ended.document["data"]["pairs"][0]["serving"]) == (20, "paris"), ended.told
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-FAN-008"]
    assert all(name in finding["text"] for name in ("empty", "map", "object", "stream", "typed"))
    assert copied.keys() == {"bytes", "text"}
    assert copied == {name: sent[name] for name in copied}
