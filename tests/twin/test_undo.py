"""A call that fails before the point of no return, whichever it is, leaves both sites as they were; and what somebody
does by hand between a crash and its repair never opens a second site."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.host import Change
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from tests.conftest import Command
from tests.twin.conftest import BOTH
from tests.twin.matrix import (
    OPERATIONS,
    Judge,
    done,
    opens,
    serving,
)
from tests.twin.subject import Client
from tests.twin.test_crashes import Death, Died

ADMITS = "removeSecuritySettings"


def before_no_return(operation: str, twin: PlayedTwin, dr_ctl: Command) -> list[Change]:
    """The requests of an undisturbed run up to its activation, without those of dr-ctl's own documents."""
    OPERATIONS[operation].before(twin, dr_ctl)
    earlier = len(twin.changes())
    done(dr_ctl(*OPERATIONS[operation].words, "--yes"))
    found = []
    for each in twin.changes()[earlier:]:
        if opens(twin, each, OPERATIONS[operation].serving[0]):
            return found
        if "dr-ctl.lock" not in str(each.arguments):
            found.append(each)
    raise AssertionError("it never opened a site")


@pytest.mark.parametrize("repair", ["resume", "abort", "unfence"])
@pytest.mark.parametrize(
    ("topology", "at"),
    [
        *((MIRROR, at) for at in (1, 2, 3, 4, 5)),
        *((topology, 3) for topology in (CONTINUITY, BRIDGES)),
        *(
            pytest.param(topology, at, marks=pytest.mark.deep)
            for topology in (CONTINUITY, BRIDGES)
            for at in (1, 2, 4, 5)
        ),
    ],
)
def test_a_site_that_somebody_opened_meanwhile_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, repair: str, at: int
) -> None:
    with monkeypatch.context() as patch:
        Death(at, after=True).strike(patch)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    if not serving(twin):
        twin.open_clients("paris")
    judge = Judge(twin, monkeypatch)
    open_before = serving(twin)

    words = ("unfence", "london") if repair == "unfence" else (repair,)
    ended = dr_ctl(*words, "--yes")

    assert judge.twice == []
    assert len(serving(twin)) == 1
    assert serving(twin) == open_before or ended.code == 0
    assert ended.code != 0 or repair == "resume" or serving(twin) == ("london",), ended.document


@pytest.mark.parametrize("topology", [BRIDGES])
def test_a_client_that_comes_while_an_activation_is_undone_is_not_left_at_a_closed_queue(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let in to one queue before the other one is not opened, and would wait there for ever."""
    twin.host("paris").faults.add(Fault(FaultKind.IDLE, When(operation=ADMITS, after=1), times=None))
    post, clients = Sender._post, list[Client]()

    def before_it_is_shut_out(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        if not clients and any((call.site, call.goal) == ("paris", Goal.SHUT_OUT) for call in calls):
            clients.append(Client(twin.site("paris"), {}))
            clients[0].subscribe("orders.in")
        return post(sender, calls)

    monkeypatch.setattr(Sender, "_post", before_it_is_shut_out)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, ended.document["data"]["undone"]) == (20, True), ended.document
    left = list(twin.host("paris").broker.queues["orders.in"].takers)
    [client] = clients
    client.connection.close()
    assert left == []
    assert serving(twin) == ("london",)


@BOTH
def test_the_judge_notes_each_queue_that_is_open_at_both_sites(
    twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(twin, monkeypatch)
    request = Request("exec", "a bean", "any()", (), None, ignore_errors=False, echo=None)
    paris = twin.host("paris")

    with twin.still():
        paris.note(request, 200)
        before = list(judge.twice)
        if isinstance(paris.broker, SharedStoreBroker):
            ClassicBroker.start(paris.broker)  # as if its store had no lock
        else:
            paris.broker.let_clients_in()
        paris.note(request, 200)

    assert before == []
    assert {f"paris/orders-1 {name}" for name in twin.queues} <= set(judge.twice)
