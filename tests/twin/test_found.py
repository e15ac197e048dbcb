"""The shortest stories of what the adversary found; what befalls a run beside what the record plays: somebody who opens
a site, and clients who work at one that an interrupted run has opened; a fence that outlasts a restart: the clients'
role is kept out, and let in wherever the site serves again; and a return that ends half way, under a consumer at the
serving site: what was done before is not delivered again, and the next return succeeds."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import boottime_s, in_background, system
from dr_ctl.engine.plan import Goal
from dr_ctl.engine.ports import Failed, Outcome
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.gate import Gate
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.session import Session
from dr_ctl.topologies.fanout.procedure import FanoutGate
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.tools import MirrorGate
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from dr_ctl_lab.rehearsal import ANY_FIGURE
from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.host import APP
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.mirror import direction
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.simulated import interrupt
from tests.topologies.fanout import stories as fanned_out
from tests.twin.matrix import (
    ACCEPTED,
    Death,
    Died,
    Judge,
    at_calls,
    dies,
    done,
    edited,
    kept,
    put,
    serving,
    take,
    without_agents,
)
from tests.twin.subject import Client, until

ORDERS = "orders.in"


def consume_all(twin: PlayedTwin, site: str) -> None:
    """Clients of a site consume what it holds, and the other site is not told by ids."""
    with twin.locked():
        broker = twin.host(site).broker
        for message in list(broker.queues[ORDERS].available()):
            broker.remove(broker.queues[ORDERS], message)


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC])
def test_a_failover_that_is_gone_on_with_says_what_it_said_before_clients_worked(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """Its process dies once Paris is open, and somebody fences Paris; London is back before the run is gone on with."""
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    failover = ("failover", "--to", "paris")
    with recording(load(twin.settings_path), every_s=0.1):
        twin.cut("london")
        until(lambda: not twin.host("london").broker.attached)
        consume_all(twin, "london")
        twin.kill("london")
        until(lambda: dr_ctl(*failover, "--dry-run").document["data"]["bounds"]["duplicates"]["at_most"] != 0)
        figures = dr_ctl(*failover, *ACCEPTED, "--dry-run").code == ExitCode.LOSS_REFUSED
        dies(dr_ctl, *failover, *(ANY_FIGURE if figures else ACCEPTED))
    [journal] = Path(os.environ["DR_CTL_STATE_DIR"]).glob("**/runs/*/journal.jsonl")
    lines = [json.loads(line)["evidence"] for line in journal.read_text(encoding="utf-8").splitlines()]
    [said] = [evidence["bounds"] for evidence in lines if "bounds" in evidence]
    consume_all(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))
    twin.heal()
    twin.start("london")

    ended = dr_ctl("resume", "--yes")

    assert (serving(twin), ended.document["data"]["bounds"]) == (("paris",), said), ended.document


@pytest.mark.parametrize(("topology", "again"), [(BROKERSYNC, ()), (FANOUT, ()), (MIRROR, ("london",))])
def test_a_run_is_not_undone_once_its_target_may_have_served_and_was_started_anew(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, topology: str, again: tuple[str, ...]
) -> None:
    """Clients consumed there, which no link of these brokers tells the other site; a mirror tells it."""
    without_agents(twin)
    put(twin, "london", ORDERS, 5)
    twin.wait_mirrored()
    dies(dr_ctl, "swapover", "--to", "paris")
    assert serving(twin) == ("paris",)
    if topology == FANOUT:
        fanned_out.consume(twin, "paris", *fanned_out.Story(twin, dr_ctl).lying("paris")[:3], noted=False)
    else:
        consume_all(twin, "paris")
    twin.wait_mirrored()
    twin.kill("paris")
    twin.start("paris")
    twin.close_clients("paris")
    monkeypatch.setattr(Gate, "verify", lambda *_: Failed("the gate is shut"))

    ended = dr_ctl("resume", "--yes")

    assert (ended.code, serving(twin)) == (20 if again else 23, again), ended.document
    assert again or "paris is closed, and may have served before its restart" in ended.document["summary"]


TO_PARIS = ("swapover", "--to", "paris")


@pytest.mark.parametrize("repair", ["resume", "abort", "unfence"])
@pytest.mark.parametrize(
    ("topology", "at"),
    [
        *((MIRROR, at) for at in (2, 3, 4)),
        *((topology, 3) for topology in (CONTINUITY, BRIDGES)),
        *(pytest.param(MIRROR, at, marks=pytest.mark.deep) for at in (1, 5)),
        *(pytest.param(case, at, marks=pytest.mark.deep) for case in (CONTINUITY, BRIDGES) for at in (1, 2, 4, 5)),
    ],
)
def test_a_site_that_somebody_opened_meanwhile_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, repair: str, at: int
) -> None:
    dies(dr_ctl, *TO_PARIS, by=Death(at, after=True))
    if not serving(twin):
        twin.open_clients("paris")
    judge, open_before = Judge(twin, monkeypatch), serving(twin)

    ended = dr_ctl(repair, *(["london"] if repair == "unfence" else []), "--yes")

    assert (judge.twice, len(serving(twin))) == ([], 1)
    assert serving(twin) == open_before or ended.code == 0
    assert ended.code != 0 or repair == "resume" or serving(twin) == ("london",), ended.document


def test_the_judge_notes_each_queue_that_is_open_at_both_sites(
    twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, paris = Judge(twin, monkeypatch), twin.host("paris")
    request = Request("exec", "a bean", "any()", (), None, ignore_errors=False, echo=None)

    with twin.locked():
        paris.record_change(request, 200)
        assert judge.twice == []
        paris.broker.let_clients_in()
        paris.record_change(request, 200)

    assert {f"paris/orders-1 {name}" for name in twin.queues} <= set(judge.twice)


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC, FANOUT])
def test_a_source_that_somebody_opens_once_the_gate_holds_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, judge = Gate.verify, Judge(twin, monkeypatch)
    monkeypatch.setattr(Gate, "verify", lambda *words: (verify(*words), twin.open_clients("london"))[0])

    ended = dr_ctl(*TO_PARIS, "--yes")

    assert (ended.code, judge.twice, serving(twin)) == (20, [], ("london",)), ended.document


@pytest.mark.parametrize(("topology", "operation"), [(MIRROR, "swapover"), (FANOUT, "swapover"), (MIRROR, "failover")])
def test_what_is_answered_too_late_once_is_read_again(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    late = [TimedOut("the answer came too slowly")]

    def late_once(read: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*words: Any, **more: Any) -> Any:
            if late:
                raise late.pop()
            return read(*words, **more)

        return slow

    for kind, name in ((Session, "unapplied"), (MirrorGate, "compare"), (FanoutGate, "compare")):
        monkeypatch.setattr(kind, name, late_once(getattr(kind, name)))
    if operation == "failover":
        twin.kill("london")

    done(dr_ctl(operation, *TO_PARIS[1:], "--yes", *(ACCEPTED if operation == "failover" else ())))

    assert (late, serving(twin)) == ([], ("paris",))


@pytest.mark.parametrize(("topology", "operation"), [(MIRROR, "swapover"), (SHARED_STORE, "failover")])
def test_a_target_that_answers_too_late_at_first_is_asked_again(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    read, late = Session.read, [TimedOut("the answer came too slowly")] * 2

    def slow(session: Any, *words: Any, **more: Any) -> Any:
        if session.site == "paris" and late:
            raise late.pop()
        return read(session, *words, **more)

    monkeypatch.setattr(Session, "read", slow)
    if operation == "failover":
        twin.kill("london")

    done(dr_ctl(operation, *TO_PARIS[1:], "--yes", *(ACCEPTED if operation == "failover" else ())))

    assert (late, serving(twin)) == ([], ("paris",))


def test_a_fence_does_not_wait_for_the_other_site(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.freeze("paris")
    began_s = boottime_s()

    done(dr_ctl("fence", "london", "--yes"))

    assert boottime_s() - began_s < 30  # five readings that wait for it, none of them again


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC])
def test_an_unfence_looks_at_the_other_site_right_before_it_opens(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has opened that one since the command was planned."""
    assert dr_ctl("fence", "london", "--yes").code == 0
    read_locks, judge = Observer.read_at, Judge(twin, monkeypatch)

    def opened_since(observer: Any, *words: Any, **more: Any) -> Any:
        twin.open_clients("paris")
        return read_locks(observer, *words, **more)

    monkeypatch.setattr(Observer, "read_at", opened_since)

    ended = dr_ctl("unfence", "london", "--yes")

    assert (judge.twice, serving(twin)) == ([], ("paris",)), ended.document
    assert (ended.code != 0, "paris" in ended.document["summary"]) == (True, True)


TO_LONDON = ("swapover", "--to", "london", "--yes")


def works(twin: PlayedTwin, site: str) -> bool:
    return twin.host(site).broker.security.may(APP, "send", "orders.in")


@pytest.fixture
def moved(twin: PlayedTwin, dr_ctl: Command) -> None:
    """London's roles are kept out from then on."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))


@pytest.mark.usefixtures("moved")
def test_a_site_that_is_opened_while_the_roles_of_the_other_are_let_in_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate's look at the other site served until then, and the one before the listeners open is a new one."""
    opened = list[str]()
    at_calls(monkeypatch, Goal.GRANT, lambda: twin.open_clients("paris"))
    at_calls(monkeypatch, Goal.OPEN, lambda: opened.append("tried"), first=True)

    ended = dr_ctl(*TO_LONDON)

    assert (ended.code, serving(twin), opened) == (20, ("paris",), []), ended.document
    assert "paris is open: a second site is never opened" in ended.document["summary"]


@pytest.mark.usefixtures("moved")
def test_rights_that_somebody_gives_once_the_gate_holds_are_not_taken_away(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are not among what the gate reads: they are looked at before a call changes any."""
    verify = Gate.verify

    def given_since(*words: Any) -> Outcome:
        outcome = verify(*words)
        twin.host("london").broker.security.add("#", *["amq,apps"] * 10)
        return outcome

    monkeypatch.setattr(Gate, "verify", given_since)

    done(dr_ctl(*TO_LONDON))

    assert works(twin, "london")
    assert {match: {*roles} for match, roles in kept(twin, "london").items()} == {"#": {"amq", "apps"}}


def test_what_management_gave_is_given_back_where_the_file_gives_clients_nothing(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    with edited(twin) as settings_file, twin.locked():
        for site, part in settings_file["sites"].items():
            part["brokers"][0]["lasting_fence"] = {"roles": ["apps"], "matches": ["orders.#"]}
            security = twin.host(site).broker.security
            security._file = {"#": {role: may for role, may in security._file["#"].items() if role != "apps"}}
            security.add("orders.#", "amq,apps", "amq,apps", *["amq"] * 10)
            security.reload()
    given = kept(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))

    for to in ("paris", "london"):
        done(dr_ctl("swapover", "--to", to, "--yes"))

        assert kept(twin, to) == given
        assert [works(twin, site) for site in ("london", "paris")] == [to == "london", to == "paris"]


@pytest.mark.parametrize("topology", [BRIDGES])
def test_a_client_that_comes_while_an_activation_is_undone_is_not_left_at_a_closed_queue(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let in to one queue before the other one is not opened, and would wait there for ever."""
    fault = Fault(FaultKind.NOOP, Trigger(operation="removeSecuritySettings", after=1), times=None)
    twin.host("paris").faults.add(fault)
    clients = list[Client]()

    def comes() -> None:
        if not clients:
            clients.append(Client(twin.site("paris"), {}))
            clients[0].subscribe("orders.in")

    at_calls(monkeypatch, Goal.REVOKE, comes, at="paris", first=True)

    ended = dr_ctl(*TO_PARIS, "--yes")

    assert (ended.code, ended.document["data"]["undone"]) == (20, True), ended.document
    left = list(twin.host("paris").broker.queues["orders.in"].consumers)
    [client] = clients
    client.connection.close()
    assert (left, serving(twin)) == ([], ("london",))


DONE, NEVER = 12, 3
HALF = 9  # messages that are in when nothing more comes
NAME = "dr-ctl.quarantine.paris.orders.in"


class Consumer:
    """A client of Paris that takes what is delivered, and acknowledges it."""

    def __init__(self, stage: PlayedTwin | Lab) -> None:
        self.got: list[str] = []
        self._stop = system().event()
        self._client = Client(stage.site("paris"), {})
        self._client.subscribe("orders.in")
        self._working = in_background(self._work, "consumer")

    def _work(self) -> None:
        while not self._stop.is_set():
            for frame in self._client.connection.receive(0.02):
                if frame.cmd == "MESSAGE":
                    self.got.append(frame.body.decode())
                    self._client.connection.stomp.send_frame("ACK", {"id": frame.headers["ack"]}, "")

    def end(self) -> None:
        self._stop.set()
        self._working.result()
        self._client.connection.close(politely=False)


class Half:
    """London is back, and its link stops after so many events; `stopped` is called once it does. The commands that
    follow are typed beside a consumer at Paris."""

    def __init__(
        self, twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, patch: pytest.MonkeyPatch, left: int = HALF
    ) -> None:
        self.twin, self.dr_ctl, self.consumer, self.left = twin, dr_ctl, consumer, left
        self.stopped: Callable[[], object] = lambda: None
        apply = MirrorBroker.apply

        def applied(broker: MirrorBroker, event: Event) -> None:
            apply(broker, event)
            if broker.site == "paris" and event.kind == "message":
                self.left -= 1
                if self.left == 0:
                    twin.cut("london", "hang")
                    self.stopped()

        patch.setattr(MirrorBroker, "apply", applied)
        patch.setattr(direction, "BATCH", 1)
        twin.heal()
        twin.start("london")
        until(lambda: twin.host("paris").broker.attached)

    def returns(self, *words: str) -> Ended:
        return self.dr_ctl("reinstate", "london", "--yes", *words)

    def dies(self) -> None:
        """The process ends once half of it is in."""

        def die(*_: Any, **__: Any) -> None:
            until(lambda: self.left <= 0)
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(procedure, "Wait", die)
            with pytest.raises(Died):
                self.returns()

    def next_one_succeeds(self, *words: str) -> None:
        """And brings nothing that London had done."""
        self.twin.heal()
        done(self.returns(*words))
        until(lambda: len(self.consumer.got) == NEVER)
        assert not {f"message {number}" for number in range(DONE)} & {*self.consumer.got}


@pytest.fixture
def consumer(twin: PlayedTwin, dr_ctl: Command) -> Iterator[Consumer]:
    """London was lost with messages that it had done and some that it had not; Paris serves."""
    with edited(twin) as text:
        text.setdefault("drain", {})["stall"] = "1500ms"
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)
    put(twin, "london", "orders.in", DONE + NEVER)
    for _ in range(DONE):
        take(twin, "london", "orders.in")
    twin.kill("london")
    until(lambda: not twin.host("paris").broker.attached)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    client = Consumer(twin)
    yield client
    client.end()


@pytest.fixture
def half(twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Half:
    return Half(twin, dr_ctl, consumer, monkeypatch)


@pytest.mark.parametrize(("ends", "code"), [("stalls", 24), ("interrupted", 130), ("aborted", 0)])
def test_what_came_in_ahead_of_its_acknowledgement_is_taken_out(
    twin: PlayedTwin, half: Half, ends: str, code: int
) -> None:
    if ends == "aborted":
        half.dies()
    if ends == "interrupted":
        half.stopped = lambda: interrupt(signal.SIGINT)

    ended = half.dr_ctl("abort", "--yes") if ends == "aborted" else half.returns()

    assert (ended.code, "DR-RETURN-006" in ended.told) == (code, True), ended.document
    assert ended.document["data"]["left"] == {"taken_out": {NAME: HALF}, "duplicates_at_most": 0}
    assert not any(queue.paused for queue in twin.host("paris").broker.queues.values())
    system().sleep(0.2)  # whoever has it now gets it at once
    assert half.consumer.got == []
    half.next_one_succeeds()
    assert "DR-RECONCILE-003" in half.dr_ctl("status").told


def test_what_cannot_be_named_is_counted(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dr_ctl.topologies.mirror.reading.RESIDUE_UP_TO", 1)

    ended = half.returns()

    assert (ended.code, "DR-RETURN-007" in ended.told) == (24, True), ended.document
    assert ended.document["data"]["left"] == {"taken_out": {}, "duplicates_at_most": HALF}
    until(lambda: len(half.consumer.got) == HALF)


def test_pauses_that_a_return_holds_are_not_lifted_while_its_way_is_open(
    half: Half, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half.dies()
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "another state"))
    broken = ("--break-lock", "--reason", "its process is gone")

    ended = half.dr_ctl("unfence", "paris", "--yes", *broken)

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-UNFENCE-002"), ended.document
    half.next_one_succeeds(*broken)


def test_a_residue_that_moves_is_not_timed_out(
    twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with edited(twin) as settings_file:
        settings_file["drain"] |= {"timeout": "300ms", "stall": "600ms"}
    apply = MirrorBroker.apply

    def slow(broker: MirrorBroker, event: Event) -> None:
        apply(broker, event)
        if broker.site == "paris" and event.kind in ("message", "postAck"):
            broker.changed.wait(0.05)

    monkeypatch.setattr(MirrorBroker, "apply", slow)

    Half(twin, dr_ctl, consumer, monkeypatch, left=-1).next_one_succeeds()
