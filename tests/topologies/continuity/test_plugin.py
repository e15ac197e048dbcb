"""Moves, a lost site and its return on real brokers with the real continuity plugin; the ledger of ids judges them."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dr_ctl.core.document import document
from dr_ctl_lab.lab.classic.create import DISTRIBUTION
from dr_ctl_lab.lab.clients import stomp
from dr_ctl_lab.lab.clients.client import Proto
from dr_ctl_lab.lab.clients.traits import LARGE
from dr_ctl_lab.lab.distribution import obtain
from dr_ctl_lab.lab.kinds import CONTINUITY
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Counts, Key
from dr_ctl_lab.lab.traffic import Load
from tests.broker.driving import Operator, end_all, on_queue, send, send_speaking, taken, until
from tests.topologies.absent import tells_of
from tests.topologies.continuity.plugin import FAST, SLOW, activated, bridges, left, needs_plugin, up
from tests.topologies.pages import ACCEPTORS, RIGHTS, at_lab, blocks, in_the_place_of, installed, walked, with_user

pytestmark = [pytest.mark.broker, pytest.mark.deep, needs_plugin]


@pytest.mark.parametrize(("moves", "waiting"), [(2, 1000), pytest.param(10, 5000, marks=pytest.mark.chaos)])
def test_there_and_back_under_load_nothing_is_lost_and_nothing_twice(
    plugin_lab: Lab, operator: Operator, monkeypatch: pytest.MonkeyPatch, moves: int, waiting: int
) -> None:
    """Two flows whose consumers keep up; after as many moves, two more with a backlog that is consumed slowly. The
    plugin loses acknowledgements of all of them. On a busy machine it keeps a connection silent for more than four
    seconds, and what a client held that leaves then comes again, without a copy."""
    monkeypatch.setattr(stomp, "SILENT_S", 30.0)
    with plugin_lab.load(100, queues=FAST, work_ms=1) as fast:
        for number in range(moves):
            move(operator, fast, number)
        with plugin_lab.load(1000, queues=SLOW, consumers=1, work_ms=40) as slow:
            slow.wait_for(waiting)
            slow.pause_producing()
            for number in range(moves, 2 * moves):
                assert move(operator, fast, number) > waiting * 2 // 5
            verdicts = fast.stop(), slow.stop(drain_s=400)

    for verdict in verdicts:
        print(document(verdict))
        assert verdict.drained
        assert not verdict.lost
        assert not verdict.duplicates
        assert not verdict.redelivered
    # All that was sent was consumed: once both sites have been the target nothing of it is left anywhere.
    for target in ("paris", "london"):
        ended = operator.run("swapover", "--to", target, "--yes")
        assert ended.code == 0, ended.told
    until(lambda: not left(plugin_lab), why=f"nothing is left: {left(plugin_lab)}")


def move(operator: Operator, fast: Load, number: int) -> int:
    """Move there, or back, and say how many messages waited."""
    fast.wait_for(fast.counts().sent + 100)
    ended = operator.run("swapover", "--to", ("paris", "london")[number % 2], "--yes")
    assert ended.code == 0, ended.told
    waited = conserved(operator)
    print(f"move {number + 1}: {ended.document['summary']}; {waited} messages in both queues, by id")
    return waited


def conserved(operator: Operator) -> int:
    """How many messages lay at the site that was left when its gate held: each of them once at the other, by its id."""
    verified = [entry for entry in operator.journal() if entry["kind"] == "step" and entry["step"].endswith("-verify")]
    result = [pair for pair in verified[-1]["evidence"].values() if isinstance(pair, dict)]
    assert result
    for pair in result:
        assert pair["ids_compared"] == sum(pair["depths"].values()), pair
    return sum(pair["ids_compared"] for pair in result)


def test_a_port_that_another_process_has_is_never_a_success(plugin_lab: Lab, operator: Operator) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", plugin_lab.site("paris").ports["clients"]))
        other.listen()

        ended = operator.run("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.told
    assert activated(plugin_lab, "london") == (True, True)
    assert activated(plugin_lab, "paris") == (False, False)


def test_what_a_full_address_has_not_taken_is_never_removed(tmp_path: Path) -> None:
    """One that blocks goes on taking what the plugin delivers, one that fails does not."""

    def small(xml: str) -> str:
        full = (
            '<address-settings><address-setting match="slow.a"><max-size-bytes>20000</max-size-bytes>'
            "<address-full-policy>FAIL</address-full-policy></address-setting>"
        )
        return xml.replace("<address-settings>", full) if "<name>paris</name>" in xml else xml

    with up(tmp_path / "lab", edit=small) as lab:
        operator = Operator(lab, tmp_path / "state")
        with lab.load(400, queues=["slow.a"], consumers=0) as idle:
            idle.wait_for(300)
            sent = idle.stop(drain_s=0).counts.sent
        moved = operator.run("swapover", "--to", "paris", "--yes")
        until(lambda: lab.admin("paris").depths().get("slow.a", 0) > 0, why="it takes the first of them")
        back = operator.run("swapover", "--to", "london", "--yes")
        depths = lab.admin("paris").depths()

    assert moved.code == 0, moved.told
    assert "DR-CONT-018" in moved.told
    assert back.code == 10, back.told
    assert "paris still delivers" in back.document["summary"]
    assert 0 < depths["slow.a"] < sent
    assert depths["slow.a"] + depths["slow.a.in.mirror"] == sent


def test_a_plugin_with_its_own_outflows_moves_its_beans_and_copies_no_message_of_jms_over_amqp(tmp_path: Path) -> None:
    """The lab's client marks every other one so."""

    def its_own(xml: str) -> str:
        own = re.sub(r'<address name="\S+\.out\.mirror">.*?</address>', "", xml)
        return own.replace('hierarchy" value="false"', 'hierarchy" value="true"')

    with up(tmp_path / "lab", edit=its_own) as lab:
        operator = Operator(lab, tmp_path / "state")
        status = operator.run("status")
        sent = send_speaking(lab, Proto.AMQP, "london", "fast.a", 4)
        refused = operator.run("swapover", "--to", "paris", "--yes")
        came = taken(lab, "london", "fast.a", 4)
        ended = operator.run("swapover", "--to", "paris", "--yes")

    assert [link["attached"] for link in status.document["data"]["links"]] == [True, True]
    assert (refused.code, ["fast.a: 2 (" in text for text in refused.texts("DR-CONT-013")]) == (10, [True]), (
        refused.told
    )
    assert sorted(came) == sorted(sent)
    assert ended.code == 0, ended.told


def test_messages_of_every_protocol_move_with_their_copies(plugin_lab: Lab, operator: Operator) -> None:
    """A library of its own speaks OpenWire: this version's distribution lacks a part of it."""
    classic = obtain(DISTRIBUTION)
    spoken = [(case, LARGE) for case in (Proto.STOMP, Proto.MQTT, Proto.CORE)] + [(Proto.AMQP, 50_000)]
    sent = send_speaking(plugin_lab, Proto.OPENWIRE, "london", "fast.a", 2, size=LARGE, home=classic)
    for speaks, size in spoken:
        sent += send_speaking(plugin_lab, speaks, "london", "fast.a", 2)
        sent += send_speaking(plugin_lab, speaks, "london", "fast.a", 2, size=size, id_header="_AMQ_DUPL_ID")

    moved = operator.run("swapover", "--to", "paris", "--yes")
    came = taken(plugin_lab, "paris", "fast.a", len(sent)) if moved.code == 0 else []
    back = operator.run("swapover", "--to", "london", "--yes")

    assert (moved.code, back.code) == (0, 0), moved.told + back.told
    assert sorted(came) == sorted(sent)
    assert left(plugin_lab) == {}


@pytest.mark.parametrize("speaks", [Proto.CORE, Proto.AMQP])
def test_large_messages_without_an_id_refuse_a_move_until_they_and_their_copies_are_gone(
    plugin_lab: Lab, operator: Operator, speaks: Proto
) -> None:
    send_speaking(plugin_lab, speaks, "london", "fast.a", 2, size=LARGE)
    until(lambda: left(plugin_lab).get("paris/fast.a.in.mirror") == 2, why="both have a copy")
    refused = operator.run("swapover", "--to", "paris", "--yes")
    taken(plugin_lab, "london", "fast.a", 2)
    copies = operator.run("validate", "--to", "paris")
    without_id = "removeMessages(java.lang.String)", "_AMQ_DUPL_ID IS NULL"
    removed = on_queue(plugin_lab, "paris", "fast.a.in.mirror", *without_id)
    ended = operator.run("validate", "--to", "paris")

    assert (refused.code, "DR-CONT-020" in refused.told, activated(plugin_lab, "london")) == (10, True, (True, True))
    assert (copies.code, removed) == (10, 2), copies.told
    assert "fast.a: 2 at paris" in copies.told
    assert ended.code == 0, ended.told


def test_a_wrong_password_of_the_plugin_is_found_although_no_flag_says_so(tmp_path: Path) -> None:
    def wrong(xml: str) -> str:
        return xml.replace('remote-password" value="', 'remote-password" value="not-')

    nobody = {"london": False, "paris": False}  # such links never come up: they are not waited for
    with up(tmp_path / "lab", edit=wrong, options={"link_auto_start": nobody}, serving=None) as lab:
        operator = Operator(lab, tmp_path / "state")
        remote = operator.run("validate", "--for", "swapover")
        lab.stop("paris")
        xml = lab.instance("paris") / "etc" / "broker.xml"
        xml.write_text(xml.read_text().replace('local-password" value="', 'local-password" value="not-'))
        lab.start("paris", wait=False)
        local = "DR-CONT-001"
        until(lambda: local in operator.run("validate").told, within_s=90, why="the broker is up without its plugin")
        moved = operator.run("swapover", "--to", "paris", "--yes")

    assert "DR-CONT-009" in remote.told
    assert moved.code == 10, moved.told
    assert local in moved.told


class Both:
    """Two loads on one lab."""

    def __init__(self, lab: Lab, *loads: Load) -> None:
        self._lab, self._loads = lab, loads

    def go_on(self) -> None:
        for load in self._loads:
            load.resume_producing()
            load.wait_for(load.counts().sent + 40, within_s=60)

    def without(self) -> tuple[set[Key], set[Key]]:
        """What the site that serves never had, and what came twice, once nothing lies in its queues any more."""
        for load in self._loads:
            load.pause_producing()
        for load in self._loads:
            load.wait_until(self._done, within_s=120, goal="the queues are empty")
        rows = [item.ledger.verdict(drained=True) for item in self._loads]
        return {key for item in rows for key in item.lost}, {key for item in rows for key in item.duplicates}

    def _done(self, counts: Counts) -> bool:
        idle = counts.received == counts.consumed + counts.ack_in_doubt
        return idle and self._lab.target().remaining(self._lab.queues) == 0


@dataclass
class Behind:
    """A site that died while nothing of it was shipped, and is up again beside the one that took over; nothing that
    this one ships arrives, so a return cannot come to its end."""

    lab: Lab
    operator: Operator
    traffic: Load
    both: Both
    before: set[Key]

    @property
    def stated(self) -> dict[str, int]:
        value: dict[str, int] = self.operator.run("plan", "reinstate", "--to", "london").document["data"]["residue"]
        return value

    def doubled(self) -> set[Key]:
        """What came twice since, once all is over: nothing may be lost."""
        self.both.go_on()
        after = self.traffic.stop()
        assert after.drained
        assert not after.lost
        return set(after.duplicates) - self.before


@contextmanager
def behind(tmp_path: Path) -> Iterator[Behind]:
    with up(tmp_path / "lab") as lab, lab.load(60, queues=FAST, work_ms=1) as traffic:
        operator, both = Operator(lab, tmp_path / "state"), Both(lab, traffic)
        traffic.wait_for(100)
        bridges(lab, "london", "stop()", ".out.mirror.bridge", ".out.acks.bridge")
        traffic.wait_for(traffic.counts().sent + 90)
        lab.kill("london")
        until(lambda: "down" in operator.run("status").told, why="london is seen down")
        ended = operator.run(
            "failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )
        assert ended.code == 0, ended.told
        _, before = both.without()
        lab.start("london")
        lab.cut("paris")
        yield Behind(lab, operator, traffic, both, before)


def test_a_return_that_fails_half_way_is_undone_and_doubles_nothing(tmp_path: Path) -> None:
    """The lost site's messages come in, and then the way closes: what was done there must not be delivered by the undo,
    although no acknowledgement says so yet."""
    with behind(tmp_path) as lost:
        lab, operator, stated = lost.lab, lost.operator, lost.stated
        failed = operator.run("reinstate", "london", "--yes", "--timeout", "8s")
        lost.both.go_on()
        lost.both.without()
        owed = operator.run("status").document["debts"]
        shut = not lab.admin("paris").clients_open("mirror")
        lab.heal()
        done = operator.run("reinstate", "london", "--yes")
        doubled = lost.doubled()
        paid = not operator.run("status").document["debts"]

    print(f"{stated}; {len(doubled)} doubled")
    assert stated["messages"] > 50
    assert failed.code == 24, failed.told
    assert owed
    assert shut
    assert done.code == 0, done.told
    assert len(doubled) <= stated["duplicates_at_most"]
    assert paid


def test_a_failover_and_an_estimate_count_what_has_no_copy_although_a_copy_left_over_hides_it(tmp_path: Path) -> None:
    """As many at both sites: one message that management put there, and the copy of one whose acknowledgement overtook
    it."""
    with up(tmp_path / "lab") as lab:
        operator = Operator(lab, tmp_path / "state")
        bridges(lab, "london", "stop()", "fast.a.out.mirror.bridge")
        send_speaking(lab, Proto.STOMP, "london", "fast.a", 1)
        taken(lab, "london", "fast.a", 1)
        until(lambda: lab.admin("london").depths()["fast.a.out.acks"] == 0, why="its acknowledgement is shipped")
        bridges(lab, "london", "start()", "fast.a.out.mirror.bridge")
        send(lab, "london", "fast.a", 1)
        until(lambda: left(lab) == {"london/fast.a": 1, "paris/fast.a.in.mirror": 1}, why="one lies at each site")
        operator.start("monitor", "--for", "12s").communicate()  # it writes a line for each reading
        estimated = operator.run("rpo", "estimate")
        lab.kill("london")
        accepted = "--accept-loss", "0", "--accept-duplicates", "0"
        refused = operator.run("failover", "--to", "paris", "--yes", *accepted)

    bounds = refused.document["data"]["bounds"]
    assert (refused.code, bounds["lost"]["at_most"], bounds["duplicates"]["at_most"]) == (11, None, 1), refused.told
    assert "at least 1: fast.a: 1 at london, 1 of them without a copy, 1 at paris" in bounds["lost"]["because"]
    loss = estimated.document["data"]["total"]["loss"]
    assert (loss["now"], loss["max"], loss["likely"]["now"]) == (1, 1, 1), estimated.told


@pytest.fixture(scope="session")
def plugin_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with up(tmp_path_factory.mktemp("plugin") / "lab") as lab:
        yield lab


@pytest.fixture
def operator(plugin_lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    yield Operator(plugin_lab, tmp_path / "state")
    end_all()


def pasted(generated: str, page: dict[str, str], lab: Path) -> str:
    """The lab's broker.xml with the page's elements in the place of its own."""
    with_user(generated, lab, page, "continuity")
    ports = {"61613": "clients", "61617": "mirror"}
    xml = at_lab(page[ACCEPTORS], generated, ports, london='key="site-id" value="london"' in generated)
    before, _, plugin = generated.rpartition("<broker-plugins>")  # a stock file shows another one in a comment
    generated = re.sub(
        "<persist-id-cache>.*?</persist-id-cache>", "", before + plugin.partition("</broker-plugins>")[2]
    )
    outflow = r'<address name="orders.in.out.mirror">.*?</address>'
    generated = in_the_place_of(outflow, page["in <addresses>"], generated)
    generated = in_the_place_of("<acceptors>.*</connectors>", xml, generated)
    rights = page[RIGHTS] + page["the rights of dr-ctl"]
    return in_the_place_of(r'<security-setting match="#">.*?</security-setting>', rights, generated)


def test_the_page_can_be_pasted_and_each_line_that_is_absent_is_told(tmp_path: Path) -> None:
    """Messages go there and back under the rights of the page alone."""
    mirror = blocks("artemis-mirror.md")
    page = {name: text for name, text in mirror.items() if name.startswith(("management", "the rights"))}
    page |= blocks("artemis-continuity.md")

    with installed(tmp_path, CONTINUITY, lambda xml: pasted(xml, page, tmp_path / "lab")) as (lab, operator):
        tells_of(operator, lab, CONTINUITY)
        assert operator.run("activate", "london", "--yes").code == 0
        sent, came = send_speaking(lab, Proto.STOMP, "london", "orders.in", 4), list[str]()
        for target in ("paris", "london"):
            ended = operator.run("swapover", "--to", target, "--yes")
            assert ended.code == 0, ended.told
            came += taken(lab, target, "orders.in", 4)
            sent += send_speaking(lab, Proto.AMQP, target, "orders.in", 4)
        walked(operator, "validate --to paris", "swapover --to paris --yes")
        came += taken(lab, "paris", "orders.in", 4)

    assert sorted(came) == sorted(sent)
