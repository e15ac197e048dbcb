"""The lock on the brokers: what follows from a reading, that two runs never both have it, and how one holds it."""

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.holding import FRESH_S, LEASE_S, Lease
from dr_ctl.engine.lease import (
    LOCK,
    Forbidden,
    LockDocument,
    LockReading,
    inherited_pauses,
    next_epoch,
    read_locks,
    replaced_by,
    rival_lock,
)
from dr_ctl.engine.runs import Locked
from tests.clocks import Ticking

PAIR = "orders-1"
CALL_S = 30.0


@dataclass
class Shelf:
    """The documents of one broker. `skew_ms` is how far its clock is from the others'."""

    site: str
    time: Ticking
    skew_ms: int = 0
    silent: bool = False
    forbids: bool = False
    loses_answers: bool = False
    documents: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def now_ms(self) -> int:
        return int(self.time.passed_s * 1000) + self.skew_ms

    def lock(self, epoch: int) -> LockDocument:
        return LockDocument.of_text(epoch, self.documents[LOCK, epoch])

    def epochs(self) -> list[int]:
        return sorted(number for kind, number in self.documents if kind == LOCK)


class Reach:
    """One run's way to a shelf; `before` is called before each request."""

    pair = PAIR

    def __init__(self, shelf: Shelf, before: Callable[[], None] = lambda: None, *, cut: bool = False) -> None:
        self.site, self._shelf, self._before, self._cut = shelf.site, shelf, before, cut
        self._told: tuple[float, int, list[tuple[str, int, str]]] | None = None

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        self._ask()
        rows = [(number, text) for (document, number), text in self._shelf.documents.items() if document == kind]
        return self._shelf.now_ms, rows

    def recent(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        """What `read_for_another` was told, and how long that is ago."""
        if self._told is None:
            return None
        at_s, now_ms, result = self._told
        texts = [(number, text) for value, number, text in result if value == kind]
        return self._shelf.time.passed_s - at_s, now_ms, texts

    def read_for_another(self) -> None:
        """Look at the broker for something else."""
        rows = [(kind, number, text) for (kind, number), text in self._shelf.documents.items()]
        self._told = self._shelf.time.passed_s, self._shelf.now_ms, rows

    def create(self, kind: str, number: int, text: str) -> bool:
        self._ask()
        if self._shelf.forbids:
            raise Forbidden("not allowed")
        if (kind, number) in self._shelf.documents:
            return False
        self._shelf.documents[kind, number] = text
        if self._shelf.loses_answers:
            raise BrokerError("no answer")
        return True

    def update(self, kind: str, number: int, text: str) -> None:
        self._ask()
        if (kind, number) not in self._shelf.documents:
            raise BrokerError("it does not exist")
        self._shelf.documents[kind, number] = text

    def delete(self, kind: str, number: int) -> None:
        self._ask()
        if self._shelf.documents.pop((kind, number), None) is None:
            raise BrokerError("it does not exist")

    def _ask(self) -> None:
        self._before()
        if self._shelf.silent or self._cut:
            raise BrokerError(f"{self.site} is silent")


def who(name: str, **more: str) -> LockDocument:
    """The document of a run to be; each run has a STATE of its own unless told otherwise."""
    options = {"holder": "ada", "host": f"host-{name}", "state": f"state-{name}", "what": "swapover to paris", **more}
    return LockDocument(0, name, pid=4711, **options)  # type: ignore[arg-type]


def lease(
    name: str,
    shelves: Iterable[Shelf],
    before: Callable[[], None] = lambda: None,
    cut: frozenset[str] = frozenset(),
    **more: str,
) -> Lease:
    """A run's lock; it does not reach the sites of `cut`."""
    stores = [Reach(shelf, before, cut=shelf.site in cut) for shelf in shelves]
    return Lease(stores, who(name, **more))  # type: ignore[arg-type]


def pair(time: Ticking | None = None) -> tuple[Shelf, Shelf]:
    time = time or Ticking()
    return Shelf("london", time), Shelf("paris", time, skew_ms=90_000)


def may_call(run: Lease, site: str) -> bool:
    return run.why_not(site, PAIR, CALL_S) is None


class Contender:
    """A thread that moves only when it is told to, up to its next request. Call it before each of these; what another
    thread asks for goes through."""

    def __init__(self) -> None:
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._over = False

    def __call__(self) -> None:
        if threading.current_thread() is self._thread:
            self._arrived.release()
            self._go.acquire()

    def does(self, act: Callable[[], None]) -> None:
        def run() -> None:
            self._go.acquire()
            try:
                act()
            finally:
                self._over = True
                self._arrived.release()

        self._thread = threading.Thread(target=run)

    def start(self) -> None:
        assert self._thread is not None
        self._thread.start()

    def step(self) -> bool:
        """Move once; says whether there is more to come."""
        if not self._over:
            self._go.release()
            self._arrived.acquire()
        return not self._over

    def end(self) -> None:
        assert self._thread is not None
        while self.step():
            pass
        self._thread.join()


def play(contenders: Sequence[Contender], order: Iterable[int]) -> None:
    """Move the contenders in this order, then each to its end."""
    for contender in contenders:
        contender.start()
    for number in order:
        contenders[number].step()
    for contender in contenders:
        contender.end()


NOW = 1_000_000
MINE = replace(who("mine"), epoch=7, expires_ms=NOW + 60_000)
OTHER = replace(who("other"), epoch=6, expires_ms=NOW + 1)


def snapshot(*documents: LockDocument) -> LockReading:
    return LockReading("london", PAIR, NOW, documents)


# A copy of a machine's disk has the same STATE to the last bit, and its runs live elsewhere.
HERE: dict[str, Any] = {"state": "one", "host": "bastion", "boot": "first"}
GONE = 2**22 + 1  # the number of no process


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
        assert (rival_lock(snapshot(there), MINE) is not None) is keeps_out

    @pytest.mark.parametrize(
        ("more", "keeps_out"),
        [
            ({}, False),  # a run of this machine whose process is gone
            ({"pid": os.getpid()}, False),
            ({"boot": "", "host": "another"}, False),  # a machine that tells no start of its own: the state decides
            ({"boot": "second"}, True),
            ({"host": "bastion-2"}, True),
            ({"pid": 1}, True),
            ({"state": "x"}, True),
        ],
    )
    def test_of_the_same_state_one_that_may_live_keeps_others_out(self, more: dict[str, Any], keeps_out: bool) -> None:
        items, remote = replace(MINE, pid=os.getpid(), **HERE), replace(OTHER, **{"pid": GONE, **HERE, **more})
        assert rival_lock(snapshot(remote), items) == (remote if keeps_out else None)
        assert rival_lock(snapshot(replace(remote, expires_ms=NOW)), items) is None

    def test_a_run_without_a_state_takes_nobody_for_dead(self) -> None:
        assert rival_lock(snapshot(LockDocument.of_text(6, "?")), replace(MINE, state="")) is not None

    def test_only_what_was_seen_when_breaking_is_broken(self) -> None:
        assert rival_lock(snapshot(OTHER), MINE, broken=[OTHER]) is None
        assert rival_lock(snapshot(OTHER, replace(OTHER, epoch=5)), MINE, broken=[OTHER]) is not None

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
        reading = snapshot(*documents)
        assert ((replaced_by(reading, MINE) or rival_lock(reading, MINE)) is None) is mine

    def test_an_older_lock_does_not_take_it_away(self) -> None:
        assert replaced_by(snapshot(OTHER, MINE), MINE) is None
        assert replaced_by(snapshot(MINE, replace(OTHER, epoch=8)), MINE) is not None

    def test_an_epoch_is_above_all_that_were_seen_anywhere(self) -> None:
        assert next_epoch([]) == 1
        assert next_epoch([snapshot(MINE), snapshot(OTHER)]) == 8

    def test_pauses_are_taken_over_from_all_who_left_some(self) -> None:
        dead = replace(OTHER, paused={"other": ("a", "b")})
        older = replace(dead, epoch=5, paused={"other": ("c",)})
        ended = replace(dead, epoch=4, released=True, paused={"ended": ("d",)})
        assert inherited_pauses(snapshot(dead, older, ended)) == {"other": ("a", "b", "c"), "ended": ("d",)}

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
    def test_anything_else_is_held_by_somebody(self, value: object) -> None:
        assert LockDocument.of_text(3, json.dumps(value)).live(NOW)


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


def with_released(local: list[int], there: list[int]) -> tuple[Shelf, Shelf]:
    shelves = pair()
    for shelf, epochs in zip(shelves, (local, there), strict=True):
        for epoch in epochs:
            shelf.documents[LOCK, epoch] = replace(OTHER, epoch=epoch, released=True).to_text()
    return shelves


class TestTwoAtOnce:
    @settings(deadline=None)
    @given(ORDERS, EPOCHS, EPOCHS)
    def test_exactly_one_gets_it(self, order: list[int], local: list[int], there: list[int]) -> None:
        shelves = with_released(local, there)
        got = two(shelves, order)
        assert len(got) == 1
        assert [shelf.epochs() for shelf in shelves] == [[max([*local, *there, 0]) + 1]] * 2
        assert may_call(got[0], "london")
        assert may_call(got[0], "paris")

    @settings(deadline=None)
    @given(ORDERS, EPOCHS, EPOCHS, st.sampled_from(["london", "paris"]))
    def test_never_both_where_one_site_is_away(
        self, order: list[int], local: list[int], there: list[int], away: str
    ) -> None:
        shelves = with_released(local, there)
        got = two(shelves, order, frozenset({away}))
        shelves[0].time.passed_s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) <= 1

    @settings(deadline=None)
    @given(ORDERS)
    def test_never_both_where_a_lock_has_run_out(self, order: list[int]) -> None:
        shelves = pair(time := Ticking())
        dead = lease("dead", shelves)
        dead.take()
        time.passed_s += LEASE_S + 1
        [got] = two(shelves, order)
        assert [may_call(run, site) for run in (got, dead) for site in ("paris", "london")] == [True] * 2 + [False] * 2

    @settings(deadline=None)
    @given(ORDERS)
    @example([1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1])
    def test_of_two_thieves_one_gets_it(self, order: list[int]) -> None:
        shelves = pair(time := Ticking())
        victim = lease("victim", shelves)
        victim.take()

        got = two(shelves, order, break_lock=True)

        time.passed_s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) == 1
            assert not may_call(victim, site)

    @settings(deadline=None)
    @given(ORDERS)
    def test_a_late_renewal_and_a_new_run_never_both_hold(self, order: list[int]) -> None:
        shelves = pair(time := Ticking())
        renewing, beginning = Contender(), Contender()
        late, fresh = lease("late", shelves, renewing), lease("fresh", shelves, beginning)
        late.take()
        time.passed_s += LEASE_S + 1
        got: list[Lease] = []

        def renew() -> None:
            if may_call(late, "london") and may_call(late, "paris"):
                got.append(late)

        renewing.does(renew)
        reaching(beginning, fresh, got)
        play([renewing, beginning], order)

        time.passed_s += 2 * FRESH_S
        for site in ("london", "paris"):
            assert sum(may_call(run, site) for run in got) <= 1


LATER = replace(who("other"), epoch=6)
Shelves = tuple[Shelf, Shelf]


@pytest.fixture
def shelves() -> Shelves:
    return pair()


def held(shelves: Shelves, name: str = "run", **more: Any) -> Lease:
    """A run that has the lock."""
    run = lease(name, shelves, **more)
    run.take()
    return run


def late(shelves: Shelves) -> Lease:
    """A run that has the lock where Paris did not answer, and does now."""
    shelves[1].silent = True
    run = held(shelves)
    shelves[1].silent = False
    return run


def look_beside(run: Lease) -> None:
    for slot in run.locks:
        slot.store.read_for_another()  # type: ignore[attr-defined]


class TestHolding:
    def test_what_was_taken_is_given_back_where_the_next_is_held(self, shelves: Shelves) -> None:
        lease("first", shelves[1:]).take()
        with pytest.raises(Locked, match="at paris"):
            lease("second", shelves).take()
        assert [shelf.epochs() for shelf in shelves] == [[], [1]]

    def test_it_runs_out_by_the_clock_of_the_broker_that_keeps_it(self, shelves: Shelves) -> None:
        held(shelves, "first")
        shelves[0].skew_ms += int(LEASE_S * 1000)
        with pytest.raises(Locked, match="at paris"):
            lease("second", shelves).take()
        shelves[1].skew_ms += int(LEASE_S * 1000)
        lease("second", shelves).take()

    @pytest.mark.parametrize("looked", [False, True], ids=["by itself", "beside looks made for something else"])
    def test_it_is_renewed_while_it_is_tended(self, shelves: Shelves, looked: bool) -> None:
        run = held(shelves)

        for _ in range(200):
            shelves[0].time.passed_s += 1.0
            if looked:
                look_beside(run)
            for slot in run.locks:
                run.renew_if_due(slot)
            assert may_call(run, "london")

        with pytest.raises(Locked):
            lease("second", shelves).take()

    def test_no_call_goes_out_with_less_left_than_an_answer_may_take(self, shelves: Shelves) -> None:
        london, run = shelves[0], held(shelves)
        written = london.documents[LOCK, 1]
        london.skew_ms += int((LEASE_S - CALL_S + 1) * 1000)
        assert may_call(run, "london")  # looked at a moment ago
        london.time.passed_s += 2 * FRESH_S

        assert may_call(run, "london")  # renewed before it

        london.documents[LOCK, 1] = written
        assert run.why_not("london", PAIR, LEASE_S + 1) is not None

    @pytest.mark.parametrize("looked", [False, True], ids=["at most a second old", "made for something else"])
    def test_a_look_shows_a_thief(self, shelves: Shelves, looked: bool) -> None:
        run = held(shelves)
        lease("thief", shelves).take(break_lock=True)
        assert may_call(run, "london")
        if looked:
            look_beside(run)
            run.renew_if_due(run.locks[0])
        else:
            shelves[0].time.passed_s += FRESH_S + 0.01
        assert "is not this run's any more: thief" in str(run.why_not("london", PAIR, CALL_S))
        assert looked or not may_call(run, "paris")

    def test_a_look_that_was_made_for_something_else_is_a_look(self, shelves: Shelves) -> None:
        asked = list[int]()
        run = held(shelves, before=lambda: asked.append(1))
        shelves[0].time.passed_s += 2 * FRESH_S
        look_beside(run)
        before = len(asked)

        assert may_call(run, "london")
        for slot in run.locks:
            run.renew_if_due(slot)
        assert len(asked) == before

        shelves[0].time.passed_s += FRESH_S + 0.01
        assert may_call(run, "london")
        assert len(asked) == before + len(shelves)

    def test_a_look_from_before_the_lock_was_taken_does_not_say_that_it_is_gone(self, shelves: Shelves) -> None:
        run = lease("run", shelves)
        look_beside(run)
        run.take()
        for slot in run.locks:
            run.renew_if_due(slot)
        assert may_call(run, "london")

    def test_a_silent_broker_gets_no_call_and_does_not_keep_the_other_from_its_own(self, shelves: Shelves) -> None:
        run, shelves[1].silent = held(shelves), True
        shelves[0].time.passed_s += 2 * FRESH_S
        assert may_call(run, "london")
        why = run.why_not("paris", PAIR, CALL_S)
        assert why == "the lock at paris/orders-1 could not be read: paris is silent"

    def test_a_broker_that_was_away_is_joined_at_the_same_epoch(self, shelves: Shelves) -> None:
        run = late(shelves)
        assert may_call(run, "paris")
        assert (run.held_at(), shelves[1].epochs()) == (["london/orders-1", "paris/orders-1"], [1])

    def test_a_broker_that_was_away_with_a_higher_epoch_shows_that_the_lock_is_lost(self, shelves: Shelves) -> None:
        shelves[1].documents[LOCK, 9] = replace(LATER, epoch=9, released=True).to_text()
        run = late(shelves)

        assert not may_call(run, "paris")
        assert not may_call(run, "london")
        assert run.reacquire() is None
        assert may_call(run, "london")
        assert [shelf.epochs() for shelf in shelves] == [[10], [10]]

    def test_an_answer_that_was_lost_is_looked_for(self, shelves: Shelves) -> None:
        shelves[0].loses_answers = True
        assert held(shelves).held_at() == ["london/orders-1", "paris/orders-1"]

    def test_what_a_thief_took_over_is_not_undone_behind_its_back(self, shelves: Shelves) -> None:
        run, thief = held(shelves), lease("thief", shelves)
        thief.take(break_lock=True)
        shelves[0].time.passed_s += 2 * FRESH_S
        assert not may_call(run, "london")

        while_held = run.reacquire()
        thief.release()

        for why in (while_held, run.reacquire()):
            assert "was taken over by thief" in str(why)
        assert not may_call(run, "london")
        assert [document.run for document in thief.broken] == ["run"]

    def test_while_another_has_it_nothing_is_created_beside_it(self, shelves: Shelves) -> None:
        london, paris = shelves
        london.documents[LOCK, LATER.epoch] = replace(LATER, released=True).to_text()
        run = late(shelves)
        lease("other", [paris]).take()
        assert not may_call(run, "paris")
        assert run.reacquire() is not None

        london.time.passed_s += 2 * LEASE_S
        for site in ("london", "paris"):
            assert not may_call(run, site)

        assert (london.epochs(), paris.epochs()) == ([LATER.epoch + 1], [1])


class TestPauses:
    def test_they_stand_in_the_lock_before_they_are_made(self, shelves: Shelves) -> None:
        london, run = shelves[0], held(shelves)
        run.note_paused_before("london", PAIR, ["z"])
        run.facts = lambda: ("abc", 12)
        assert [run.record_pauses("london", PAIR, names) for names in (["b", "a"], ["c"])] == [None, None]
        held_lock = london.lock(1)
        assert (held_lock.paused, held_lock.paused_before) == ({"run": ("a", "b", "c")}, ("z",))
        assert (held_lock.last_hash, held_lock.count) == ("abc", 12)
        # A broker that does not take them down gets no pause.
        london.silent = True
        assert run.record_pauses("london", PAIR, ["d"]) is not None

    @pytest.mark.parametrize(
        ("heir", "more", "paused"),
        [
            ("heir", {"state": "state-dead"}, {"dead": ("a",)}),
            ("heir", {"state": "another"}, {"dead": ("a",)}),
            ("dead", {"host": "another-host"}, {"dead": ("a", "b")}),  # a run that goes on adds to its own
        ],
    )
    def test_who_takes_over_answers_for_them(
        self, shelves: Shelves, heir: str, more: dict[str, str], paused: Any
    ) -> None:
        held(shelves, "dead").record_pauses("london", PAIR, ["a"])
        shelves[0].time.passed_s += LEASE_S + 1
        run = held(shelves, heir, **more)
        if heir == "dead":
            run.record_pauses("london", PAIR, ["b"])
        assert read_locks(Reach(shelves[0])).documents[0].paused == paused
