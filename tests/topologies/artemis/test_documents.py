"""What dr-ctl remembers at a broker, its debts included: written, and read back as the broker answers."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.lease import Forbidden
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE, IN_USER
from dr_ctl.topologies.artemis.documents import Documents
from dr_ctl.topologies.common.debts import debts_of, document, is_debt, owe
from dr_ctl.topologies.common.names import numbered
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.mirror.access import Access
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.pair import Management, _Direct, failed
from tests.topologies.mirror.views import PAIR, broker


def documents(broker: Management) -> Documents:
    view = SimpleNamespace(broker=broker.broker, document_queue=IN_USER)
    access = SimpleNamespace(
        clock=Access.clock,
        clock_ms=Access.clock_ms,
        site=broker.site,
        pair="orders-1",
        names=lambda: view,
        wire=lambda: _Direct(broker),
        close=lambda: None,
    )
    return Documents(cast("Access", access))


@pytest.fixture
def london() -> Management:
    return Management("london", "paris", open=True)


@pytest.mark.parametrize("look", [Access.look, Access.doors], ids=["whole", "doors"])
def test_a_look_from_before_the_machine_slept_is_old(
    london: Management, look: Callable[[Access], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still in suspend would take it for a young one, beside a lock that has run out."""
    awake_s = 1000.0
    asleep_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: awake_s)
    monkeypatch.setattr(time, "clock_gettime", lambda _: awake_s + asleep_s[0])
    view = SimpleNamespace(documents={}, forged=(), now_ms=1, queues=())
    monkeypatch.setattr("dr_ctl.topologies.mirror.access.look_again", lambda *_, **__: view)
    mine = Access.__new__(Access)
    mine.site, mine.pair, mine.newest = "london", "orders-1", (awake_s, cast("BrokerView", view))
    monkeypatch.setattr(mine, "_look", lambda _: view)
    monkeypatch.setattr(mine, "reader", lambda: None)
    look(mine)

    asleep_s[0] = 600.0

    told = Documents(mine).lately("lock")
    assert told is not None
    assert told[0] == 600.0


@pytest.mark.parametrize(
    "answer",
    [
        {"error_type": "java.lang.Exception", "error": "not allowed", "status": 403},
        failed("AMQ229032: User: app does not have permission='CREATE_DURABLE_QUEUE'", "SecurityException", 500),
    ],
    ids=["the console's policy", "the broker's security"],
)
def test_a_refusal_is_told_apart_from_one_that_is_there(london: Management, answer: dict[str, object]) -> None:
    london.instead["createQueue"] = answer
    with pytest.raises(Forbidden):
        documents(london).create("lock", 1, "text")


@pytest.mark.parametrize(
    ("answer", "forbidden"),
    [
        ({"value": True, "status": 200}, False),
        ({"value": False, "status": 200}, True),
        # A broker that does not know who may says nothing.
        (failed("No MBean", "javax.management.InstanceNotFoundException", 404), False),
    ],
)
def test_whether_they_may_be_created_is_asked_and_not_tried(london: Management, answer: Any, forbidden: bool) -> None:
    london.instead["canInvoke"] = answer
    assert (documents(london).why_forbidden() is not None) is forbidden


def test_only_documents_of_the_kind_are_numbered_whatever_the_site_is_called() -> None:
    names = ["dr-ctl.lock.london.2", "dr-ctl.lock.lon.1", "dr-ctl.lock.london.x", "dr-ctl.debt.london.1", "dr-ctl.lock"]
    assert [number for number, _ in numbered(dict.fromkeys(names, ""), "lock")] == [1, 2]


SITES = st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True)
PARIS = broker("paris")
NAME = "dr-ctl.debt.paris.quarantine.london"


@given(kind=st.sampled_from(DebtKind), about=SITES, kept_at=SITES, lasting=st.booleans())
def test_the_name_says_who_holds_it_what_it_is_and_whom_it_concerns(
    kind: DebtKind, about: str, kept_at: str, lasting: bool
) -> None:
    name = document(kind, about, kept_at)
    text = json.dumps({"since": "2026-11-21T02:00:00Z", "lasting": lasting})
    assert is_debt(name)
    assert debts_of({name: text}) == [Debt(kind, about, kept_at, "2026-11-21T02:00:00Z", lasting)]


@pytest.mark.parametrize(
    "text", ["", "owed", "[]", "7", "null", "{}", '{"since": "2026-11-21T02:00:00Z"}', '{"lasting": true}', '{"sin']
)
def test_one_that_cannot_be_read_is_owed_all_the_same(text: str) -> None:
    [debt] = debts_of({NAME: text})
    assert debt == Debt(DebtKind.QUARANTINE, "london", "paris", "not known", lasting=False)


NO_DEBTS = """dr-ctl.lock.paris.4 dr-ctl.probe.paris dr-ctl.debt dr-ctl.debt. dr-ctl.debt.paris dr-ctl.debt.paris.fence
dr-ctl.debt.paris.taxes.london dr-ctl.debt.paris.fence.london.twice orders.in"""


@pytest.mark.parametrize("name", [*NO_DEBTS.split(), ""])
def test_what_is_named_otherwise_is_no_debt_and_keeps_nobody_from_looking(name: str) -> None:
    assert not is_debt(name)
    assert debts_of({name: "{}", NAME: "{}"}) == debts_of({NAME: "{}"})


def test_a_debt_is_one_call_that_writes_it_down_by_the_brokers_clock() -> None:
    [call] = owe(PARIS, DebtKind.QUARANTINE, "london", lasting=True)

    assert (call.site, call.unit, change(call).bean) == ("paris", PAIR, beans.server("broker-paris"))
    assert (change(call).operation, change(call).arguments[1], call.when, call.at_most) == (CREATE_QUEUE, True, None, 1)
    told = json.loads(str(change(call).arguments[0]))
    # Internal: it never reaches the peer. Durable, and never removed by itself: it outlives a restart.
    assert told == {
        "name": NAME,
        "address": NAME,
        "routing-type": "ANYCAST",
        "durable": True,
        "internal": True,
        "auto-delete": False,
        "user": told["user"],
    }
    assert json.loads(told["user"]) == {"since": "2026-11-21T08:54:23.227Z", "lasting": True}


@pytest.mark.parametrize("text", ["", '{"since": "x", "lasting": false}'])
def test_one_that_stands_is_not_written_again(text: str) -> None:
    standing = replace(PARIS, documents={NAME: text})
    assert (owe(standing, DebtKind.QUARANTINE, "london"), len(owe(standing, DebtKind.FENCE, "london"))) == ((), 1)
