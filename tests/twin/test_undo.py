"""What befalls a run beside what the record plays: somebody who opens a site, and clients who work at one that an
interrupted run has opened."""

from typing import Any

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR
from tests.conftest import Command
from tests.twin.conftest import BOTH
from tests.twin.matrix import OPERATIONS, Death, Judge, at_calls, dies, serving
from tests.twin.subject import Client

TO_PARIS = ("swapover", "--to", "paris")


@pytest.mark.parametrize("repair", ["resume", "abort", "unfence"])
@pytest.mark.parametrize(
    ("topology", "at"),
    [
        *((MIRROR, at) for at in (2, 3, 4)),
        *((topology, 3) for topology in (CONTINUITY, BRIDGES)),
        *(pytest.param(MIRROR, at, marks=pytest.mark.deep) for at in (1, 5)),
        *(pytest.param(each, at, marks=pytest.mark.deep) for each in (CONTINUITY, BRIDGES) for at in (1, 2, 4, 5)),
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


@pytest.mark.parametrize("topology", [BRIDGES])
def test_a_client_that_comes_while_an_activation_is_undone_is_not_left_at_a_closed_queue(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let in to one queue before the other one is not opened, and would wait there for ever."""
    twin.host("paris").faults.add(Fault(FaultKind.IDLE, When(operation="removeSecuritySettings", after=1), times=None))
    clients = list[Client]()

    def comes() -> None:
        if not clients:
            clients.append(Client(twin.site("paris"), {}))
            clients[0].subscribe("orders.in")

    at_calls(monkeypatch, Goal.SHUT_OUT, comes, at="paris", first=True)

    ended = dr_ctl(*TO_PARIS, "--yes")

    assert (ended.code, ended.document["data"]["undone"]) == (20, True), ended.document
    left = list(twin.host("paris").broker.queues["orders.in"].takers)
    [client] = clients
    client.connection.close()
    assert (left, serving(twin)) == ([], ("london",))


@pytest.mark.parametrize("words", [("resume",), ("fence", "london")], ids=["resume", "fence"])
@pytest.mark.parametrize("operation", ["swapover", "failover"])
def test_a_site_that_opens_again_beside_the_one_of_a_run_that_died_is_closed_by_what_status_names(
    twin: PlayedTwin, dr_ctl: Command, operation: str, words: tuple[str, ...]
) -> None:
    def doors() -> list[str]:
        """Sites whose doors are open, whatever their clients may do there."""
        return [site for site in twin.sites if twin.host(site).broker.acceptors["clients"].started]

    OPERATIONS[operation].before(twin, dr_ctl)
    dies(dr_ctl, *OPERATIONS[operation].words)
    twin.heal()
    twin.start("london")
    with twin.still():
        twin.host("london").broker.let_clients_in()
    assert doors() == ["london", "paris"]
    status = dr_ctl("status").document

    ended = dr_ctl(*words, "--yes")

    assert any(f"dr-ctl {words[0]}" in each["remedy"] for each in status["findings"]), status["findings"]
    assert (ended.code, doors()) == (0, ["paris"]), ended.document
    assert words == ("resume",) or dr_ctl("resume", "--yes").code == 0
    assert (doors(), dr_ctl("status").document["data"]["open_run"]) == (["paris"], None)


@BOTH
def test_the_judge_notes_each_queue_that_is_open_at_both_sites(
    twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, paris = Judge(twin, monkeypatch), twin.host("paris")
    request = Request("exec", "a bean", "any()", (), None, ignore_errors=False, echo=None)

    with twin.still():
        paris.note(request, 200)
        before = list(judge.twice)
        if isinstance(paris.broker, SharedStoreBroker):
            ClassicBroker.start(paris.broker)  # as if its store had no lock
        else:
            paris.broker.let_clients_in()
        paris.note(request, 200)

    assert (before, {f"paris/orders-1 {name}" for name in twin.queues} <= set(judge.twice)) == ([], True)


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC, FANOUT])
def test_a_source_that_somebody_opens_once_the_gate_holds_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, judge = Verifier.verify, Judge(twin, monkeypatch)
    monkeypatch.setattr(Verifier, "verify", lambda *words: (verify(*words), twin.open_clients("london"))[0])

    ended = dr_ctl(*TO_PARIS, "--yes")

    assert (ended.code, judge.twice, serving(twin)) == (20, [], ("london",)), ended.document


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC])
def test_an_unfence_looks_at_the_other_site_right_before_it_opens(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has opened that one since the command was planned."""
    assert dr_ctl("fence", "london", "--yes").code == 0
    look_at, judge = Observer.look_at, Judge(twin, monkeypatch)

    def opened_since(observer: Any, *words: Any, **more: Any) -> Any:
        twin.open_clients("paris")
        return look_at(observer, *words, **more)

    monkeypatch.setattr(Observer, "look_at", opened_since)

    ended = dr_ctl("unfence", "london", "--yes")

    assert (judge.twice, serving(twin)) == ([], ("paris",)), ended.document
    assert (ended.code != 0, "paris" in ended.document["summary"]) == (True, True)
