"""The lock on the brokers: what follows from a look, and that of two runs never both have it, however they meet."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dr_ctl.engine.holding import FRESH_S, LEASE_S, Lease
from dr_ctl.engine.lease import LOCK, LockDocument, Look, against, conflict, inherited, lost_to, next_epoch
from dr_ctl.engine.runs import Locked
from tests.engine.shelves import PAIR, Contender, Shelf, Time, lease, may_call, pair, play, who

NOW = 1_000_000
MINE = replace(who("mine"), epoch=7, expires_ms=NOW + 60_000)
OTHER = replace(who("other"), epoch=6, expires_ms=NOW + 1)


def seen(*documents: LockDocument) -> Look:
    return Look("london", PAIR, NOW, documents)


class TestTheSameState:
    """A copy of a machine's disk has the same STATE to the last bit, and its runs live elsewhere."""

    MINE = replace(MINE, state="one", host="bastion", boot="first", pid=os.getpid())
    OTHER = replace(OTHER, state="one", host="bastion", boot="first", pid=2**22 + 1)

    def test_a_run_of_this_machine_whose_process_is_gone_keeps_nobody_out(self) -> None:
        assert against(seen(self.OTHER), self.MINE) is None
        assert against(seen(replace(self.OTHER, pid=os.getpid())), self.MINE) is None

    def test_of_a_machine_that_tells_no_start_of_its_own_the_state_decides(self) -> None:
        assert against(seen(replace(self.OTHER, boot="", host="another")), self.MINE) is None

    @pytest.mark.parametrize("more", [{"boot": "second"}, {"host": "bastion-2"}, {"pid": 1}, {"state": "x"}])
    def test_one_that_may_live_keeps_others_out_until_it_runs_out(self, more: dict[str, Any]) -> None:
        there = replace(self.OTHER, **more)
        assert against(seen(there), self.MINE) == there
        assert against(seen(replace(there, expires_ms=NOW)), self.MINE) is None


class TestDecisions:
    @pytest.mark.parametrize(
        ("there", "keeps_out"),
        [
            (OTHER, True),
            (replace(OTHER, expires_ms=NOW), False),
            (replace(OTHER, released=True), False),
            (replace(OTHER, state=MINE.state), False),
            (LockDocument.of_text(6, "nothing that can be read"), True),
            (LockDocument.of_text(6, '{"run": "cut off'), True),
        ],
        ids=["live", "ran out", "released", "a dead run of this STATE", "unreadable", "torn"],
    )
    def test_what_keeps_a_run_out(self, there: LockDocument, keeps_out: bool) -> None:
        assert (against(seen(there), MINE) is not None) is keeps_out

    def test_a_run_without_a_state_takes_nobody_for_dead(self) -> None:
        assert against(seen(LockDocument.of_text(6, "?")), replace(MINE, state="")) is not None

    def test_only_what_was_seen_when_breaking_is_broken(self) -> None:
        assert against(seen(OTHER), MINE, broken=[OTHER]) is None
        assert against(seen(OTHER, replace(OTHER, epoch=5)), MINE, broken=[OTHER]) is not None

    @pytest.mark.parametrize(
        ("documents", "mine"),
        [
            ([MINE], True),
            ([MINE, replace(OTHER, expires_ms=NOW)], True),
            ([MINE, OTHER], False),
            ([MINE, replace(OTHER, epoch=8, released=True)], False),
            ([replace(MINE, pid=1)], False),
            ([MINE, replace(OTHER, epoch=7, released=True)], False),
            ([], False),
        ],
        ids=["alone", "over a dead one", "beside a live one", "below another", "of another process", "twice", "gone"],
    )
    def test_whether_what_was_created_is_the_lock(self, documents: list[LockDocument], mine: bool) -> None:
        assert (conflict(seen(*documents), MINE) is None) is mine

    def test_an_older_lock_does_not_take_it_away(self) -> None:
        assert lost_to(seen(OTHER, MINE), MINE) is None
        assert lost_to(seen(MINE, replace(OTHER, epoch=8)), MINE) is not None

    def test_an_epoch_is_above_all_that_were_seen_anywhere(self) -> None:
        assert next_epoch([]) == 1
        assert next_epoch([seen(MINE), seen(OTHER)]) == 8

    def test_pauses_are_taken_over_from_all_who_left_some(self) -> None:
        dead = replace(OTHER, paused={"other": ("a", "b")})
        older = replace(dead, epoch=5, paused={"other": ("c",)})
        ended = replace(dead, epoch=4, released=True, paused={"ended": ("d",)})
        assert inherited(seen(dead, older, ended)) == {"other": ("a", "b", "c"), "ended": ("d",)}

    @given(
        st.builds(
            LockDocument,
            epoch=st.just(3),
            run=st.text(),
            holder=st.text(),
            pid=st.integers(),
            expires_ms=st.integers(),
            released=st.booleans(),
            paused_before=st.lists(st.text()).map(tuple),
            paused=st.dictionaries(st.text(), st.lists(st.text()).map(tuple)),
        )
    )
    def test_what_is_written_is_read(self, document: LockDocument) -> None:
        assert LockDocument.of_text(3, document.to_text()) == document

    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip  # noqa: E501
    def test_anything_else_is_held_by_somebody(self, told: object) -> None:
        assert LockDocument.of_text(3, json.dumps(told)).live(NOW)


ORDERS = st.lists(st.integers(0, 1), max_size=40)
EPOCHS = st.lists(st.integers(1, 9), max_size=2, unique=True)


def reaching(contender: Contender, run: Lease, got: list[Lease], *, break_lock: bool = False) -> None:
    """Let a contender reach for the lock, and note where it got it."""

    def act() -> None:
        with suppress(Locked):
            run.take(break_lock=break_lock)
            got.append(run)

    contender.does(act)


def two(
    shelves: tuple[Shelf, Shelf], order: list[int], cut: frozenset[str] = frozenset(), *, break_lock: bool = False
) -> list[Lease]:
    """Two runs that reach for the lock at once; those that got it. The second does not reach the sites of `cut`."""
    got: list[Lease] = []
    first, second = Contender(), Contender()
    reaching(first, lease("first", shelves, first), got, break_lock=break_lock)
    reaching(second, lease("second", shelves, second, cut), got, break_lock=break_lock)
    play([first, second], order)
    return got


def with_released(here: list[int], there: list[int]) -> tuple[Shelf, Shelf]:
    shelves = pair()
    for shelf, epochs in zip(shelves, (here, there), strict=True):
        for epoch in epochs:
            shelf.documents[LOCK, epoch] = replace(OTHER, epoch=epoch, released=True).to_text()
    return shelves


class TestTwoAtOnce:
    @settings(deadline=None)
    @given(ORDERS, EPOCHS, EPOCHS)
    def test_exactly_one_gets_it(self, order: list[int], here: list[int], there: list[int]) -> None:
        shelves = with_released(here, there)
        got = two(shelves, order)
        assert len(got) == 1
        assert [shelf.epochs() for shelf in shelves] == [[max([*here, *there, 0]) + 1]] * 2
        assert may_call(got[0], "london")
        assert may_call(got[0], "paris")

    @settings(deadline=None)
    @given(ORDERS, EPOCHS, EPOCHS, st.sampled_from(["london", "paris"]))
    def test_never_both_where_one_reaches_only_one_site(
        self, order: list[int], here: list[int], there: list[int], away: str
    ) -> None:
        shelves = with_released(here, there)
        got = two(shelves, order, frozenset({away}))
        shelves[0].time.s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) <= 1

    @settings(deadline=None)
    @given(ORDERS)
    def test_never_both_where_a_lock_has_run_out(self, order: list[int]) -> None:
        shelves = pair(time := Time())
        dead = lease("dead", shelves)
        dead.take()
        time.s += LEASE_S + 1
        [got] = two(shelves, order)
        assert [may_call(run, site) for run in (got, dead) for site in ("paris", "london")] == [True] * 2 + [False] * 2

    @settings(deadline=None)
    @given(ORDERS)
    @example([1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1])
    def test_of_two_thieves_one_gets_it(self, order: list[int]) -> None:
        shelves = pair(time := Time())
        victim = lease("victim", shelves)
        victim.take()

        got = two(shelves, order, break_lock=True)

        time.s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) == 1
            assert not may_call(victim, site)

    @settings(deadline=None)
    @given(ORDERS)
    def test_a_late_renewal_and_a_new_run_never_both_hold(self, order: list[int]) -> None:
        shelves = pair(time := Time())
        renewing, beginning = Contender(), Contender()
        late, fresh = lease("late", shelves, renewing), lease("fresh", shelves, beginning)
        late.take()
        time.s += LEASE_S + 1
        got: list[Lease] = []

        def renew() -> None:
            if may_call(late, "london") and may_call(late, "paris"):
                got.append(late)

        renewing.does(renew)
        reaching(beginning, fresh, got)
        play([renewing, beginning], order)

        time.s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) <= 1
