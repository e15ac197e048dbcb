"""The lock on the brokers while a run holds it: looked at, renewed, lost, taken again, given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl.engine.holding import FRESH_S, LEASE_S, Lease
from dr_ctl.engine.lease import LOCK
from dr_ctl.engine.runs import Locked
from tests.engine.shelves import CALL_S, PAIR, Time, lease, look, may_call, pair, who

OTHER = replace(who("other"), epoch=6)


def held(*shelves: Any, name: str = "run", **more: Any) -> Lease:
    """A run that has the lock."""
    run = lease(name, shelves, **more)
    run.take()
    return run


class TestHolding:
    def test_the_one_who_holds_it_is_named(self) -> None:
        shelves = pair()
        held(*shelves, name="first")
        with pytest.raises(Locked, match=r"at london/orders-1: first \(swapover to paris; ada on host-first") as raised:
            lease("second", shelves).take()
        assert raised.value.exit_code is ExitCode.LOCKED
        assert "--break-lock" in raised.value.remedy

    def test_what_was_taken_is_given_back_where_the_next_is_held(self) -> None:
        london, paris = pair()
        lease("first", [paris]).take()
        with pytest.raises(Locked, match="at paris"):
            lease("second", (london, paris)).take()
        assert (london.epochs(), paris.epochs()) == ([], [1])

    def test_released_it_stays_as_the_highest_and_the_next_goes_above(self) -> None:
        shelves = pair()
        first = held(*shelves, name="first")
        first.release()
        released = [shelf.lock(1).released for shelf in shelves]
        lease("second", shelves).take()
        assert released == [True, True]
        assert [shelf.epochs() for shelf in shelves] == [[2], [2]]

    def test_it_runs_out_by_the_clock_of_the_broker_that_keeps_it(self) -> None:
        london, paris = pair()
        lease("first", (london, paris)).take()
        london.skew_ms += int(LEASE_S * 1000)
        with pytest.raises(Locked, match="at paris"):
            lease("second", (london, paris)).take()
        paris.skew_ms += int(LEASE_S * 1000)
        lease("second", (london, paris)).take()

    @pytest.mark.parametrize("looked", [False, True], ids=["by itself", "beside looks made for something else"])
    def test_it_is_renewed_while_it_is_tended(self, looked: bool) -> None:
        shelves = pair(time := Time())
        run = held(*shelves)

        for _ in range(200):
            time.s += 1.0
            for slot in run.slots:
                if looked:
                    slot.store.look()  # type: ignore[attr-defined]
                run.tend(slot)
            assert may_call(run, "london")

        with pytest.raises(Locked):
            lease("second", shelves).take()

    def test_no_call_goes_out_with_less_left_than_an_answer_may_take(self) -> None:
        london, _ = shelves = pair()
        run = held(*shelves)
        written = london.documents[LOCK, 1]
        london.skew_ms += int((LEASE_S - CALL_S + 1) * 1000)
        assert may_call(run, "london")  # looked at a moment ago
        london.time.s += 2 * FRESH_S

        assert may_call(run, "london")  # renewed before it

        london.documents[LOCK, 1] = written
        assert run.why_not("london", PAIR, LEASE_S + 1) is not None

    def test_a_look_is_at_most_a_second_old(self) -> None:
        shelves = pair(time := Time())
        run = held(*shelves)
        lease("thief", shelves).take(break_lock=True)

        before = may_call(run, "london")
        time.s += FRESH_S + 0.01
        why = run.why_not("london", PAIR, CALL_S)

        assert before
        assert why is not None
        assert "is not this run's any more: thief" in why
        assert not may_call(run, "paris")

    def test_a_look_that_was_made_for_something_else_is_a_look(self) -> None:
        shelves, asked = pair(), list[int]()
        run = lease("run", shelves, before=lambda: asked.append(1))
        run.take()
        shelves[0].time.s += 2 * FRESH_S
        for slot in run.slots:
            slot.store.look()  # type: ignore[attr-defined]
        before = len(asked)

        assert may_call(run, "london")
        for slot in run.slots:
            run.tend(slot)
        assert len(asked) == before

        shelves[0].time.s += FRESH_S + 0.01
        assert may_call(run, "london")
        assert len(asked) == before + len(shelves)

    def test_a_look_from_before_the_lock_was_taken_does_not_say_that_it_is_gone(self) -> None:
        shelves = pair()
        run = lease("run", shelves)
        for slot in run.slots:
            slot.store.look()  # type: ignore[attr-defined]
        run.take()
        for slot in run.slots:
            run.tend(slot)
        assert may_call(run, "london")

    def test_a_look_that_was_made_for_something_else_shows_a_thief_too(self) -> None:
        shelves = pair()
        run = held(*shelves)
        lease("thief", shelves).take(break_lock=True)
        run.slots[0].store.look()  # type: ignore[attr-defined]
        run.tend(run.slots[0])
        assert "thief" in str(run.why_not("london", PAIR, CALL_S))

    def test_a_silent_broker_gets_no_call_and_does_not_keep_the_other_from_its_own(self) -> None:
        london, paris = pair(time := Time())
        run = held(london, paris)
        paris.silent = True
        time.s += 2 * FRESH_S
        assert may_call(run, "london")
        assert (
            run.why_not("paris", PAIR, CALL_S) == "the lock at paris/orders-1 could not be looked at: paris is silent"
        )

    def test_a_broker_that_was_away_is_joined_at_the_same_epoch(self) -> None:
        london, paris = pair()
        paris.silent = True
        run = held(london, paris)
        paris.silent = False
        assert may_call(run, "paris")
        assert (run.held_at(), paris.epochs()) == (["london/orders-1", "paris/orders-1"], [1])

    def test_a_broker_that_was_away_with_a_higher_epoch_shows_that_the_lock_is_lost(self) -> None:
        london, paris = pair()
        paris.documents[LOCK, 9] = replace(OTHER, epoch=9, released=True).to_text()
        paris.silent = True
        run = held(london, paris)
        paris.silent = False

        assert not may_call(run, "paris")
        assert not may_call(run, "london")
        assert run.regain() is None
        assert may_call(run, "london")
        assert [london.epochs(), paris.epochs()] == [[10], [10]]

    def test_an_answer_that_was_lost_is_looked_for(self) -> None:
        london, paris = pair()
        london.loses_answers = True
        run = lease("run", (london, paris))
        run.take()
        assert run.held_at() == ["london/orders-1", "paris/orders-1"]

    def test_where_it_may_not_be_created_the_lock_is_per_machine(self) -> None:
        london, paris = pair()
        london.forbids = paris.forbids = True
        run = lease("run", (london, paris))
        run.take()
        assert [finding.id for finding in run.findings()] == ["DR-LOCK-001", "DR-LOCK-001"]
        assert may_call(run, "london")

    def test_what_a_thief_took_over_is_not_undone_behind_its_back(self) -> None:
        shelves = pair(time := Time())
        run, thief = lease("run", shelves), lease("thief", shelves)
        run.take()
        thief.take(break_lock=True)
        time.s += 2 * FRESH_S
        assert not may_call(run, "london")

        while_held = run.regain()
        thief.release()
        afterwards = run.regain()

        for why in (while_held, afterwards):
            assert why is not None
            assert "was taken over by thief" in why
        assert not may_call(run, "london")
        assert [document.run for document in thief.broken] == ["run"]

    def test_while_another_has_it_nothing_is_created_beside_it(self) -> None:
        london, paris = pair(time := Time())
        london.documents[LOCK, OTHER.epoch] = replace(OTHER, released=True).to_text()
        paris.silent = True
        run = held(london, paris)
        paris.silent = False
        lease("other", [paris]).take()
        assert not may_call(run, "paris")
        assert run.regain() is not None

        time.s += 2 * LEASE_S
        for site in ("london", "paris"):
            assert not may_call(run, site)

        assert (london.epochs(), paris.epochs()) == ([OTHER.epoch + 1], [1])


class TestPauses:
    def test_they_stand_in_the_lock_before_they_are_made(self) -> None:
        london, _ = shelves = pair()
        run = held(*shelves)
        run.before("london", PAIR, ["z"])
        run.facts = lambda: ("abc", 12)
        assert [run.paused("london", PAIR, names) for names in (["b", "a"], ["c"])] == [None, None]
        told = london.lock(1)
        assert (told.paused, told.paused_before) == ({"run": ("a", "b", "c")}, ("z",))
        assert (told.last_hash, told.count) == ("abc", 12)
        # A broker that does not take them down gets no pause.
        london.silent = True
        assert run.paused("london", PAIR, ["d"]) is not None

    @pytest.mark.parametrize(
        ("heir", "more", "paused"),
        [
            ("heir", {"state": "state-dead"}, {"dead": ("a",)}),
            ("heir", {"state": "another"}, {"dead": ("a",)}),
            ("dead", {"host": "another-host"}, {"dead": ("a", "b")}),  # a run that goes on adds to its own
        ],
    )
    def test_whoever_takes_over_answers_for_them(self, heir: str, more: dict[str, str], paused: Any) -> None:
        london, _ = shelves = pair(time := Time())
        held(*shelves, name="dead").paused("london", PAIR, ["a"])
        time.s += LEASE_S + 1
        run = held(*shelves, name=heir, **more)
        if heir == "dead":
            run.paused("london", PAIR, ["b"])
        assert look(london).documents[0].paused == paused
