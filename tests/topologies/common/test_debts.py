"""Debts as documents on a broker: their names, what is read of them, and the calls that write and strike them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE
from dr_ctl.topologies.common.debts import debts_of, document, is_debt, owe
from dr_ctl.topologies.console.requests import change
from tests.topologies.mirror.views import PAIR, broker

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
