"""A shared store around the moment at which nobody has it: a failover that comes before who waits has taken it, a run
that dies as soon as it was given up, a site that is not there to take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import done, nothing, scene, serving, unprocessed
from tests.twin.subject import until
from tests.twin.test_crashes import Died

SWAPOVER = ("swapover", "--to", "paris", "--yes")
FAILOVER = ("failover", "--to", "paris", "--yes")
SLOW_S = 1.5


@pytest.fixture
def topology() -> str:
    return SHARED_STORE


def slowly(twin: PlayedTwin) -> None:
    """Paris has just tried for the lock, and does so seldom, as real brokers do."""
    [paris] = [each for each in twin.brokers(SharedStoreBroker) if each.site == "paris"]
    with twin.still():
        paris.tries_every_s = SLOW_S
        paris.work(twin.clock.now_s() + SLOW_S)


def given_up(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Have something happen as soon as London has given up the store."""
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.HAND_OVER for call in calls):
            then()
        return outcomes

    monkeypatch.setattr(Sender, "_post", posted)


def ids(ended: Ended) -> list[str]:
    return [each["id"] for each in ended.document["findings"]]


def test_a_failover_gives_who_waits_its_moment_and_then_has_nothing_to_do(twin: PlayedTwin, dr_ctl: Command) -> None:
    nothing(twin, dr_ctl)
    had = unprocessed(twin)
    slowly(twin)
    twin.kill("london")
    assert serving(twin) == ()

    ended = done(dr_ctl(*FAILOVER))

    assert (serving(twin), ended.document["debts"]) == (("paris",), [])
    assert had <= unprocessed(twin)


def test_a_failover_waits_until_the_store_is_taken_and_owes_a_fence_until_the_lost_site_waits(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, store_starts_s=0.0)
    slowly(twin)
    twin.kill("london")

    ended = done(dr_ctl(*FAILOVER, "--accept-loss", "unknown"))

    assert serving(twin) == ("paris",)
    assert {(each["kind"], each["site"]) for each in ended.document["debts"]} == {("fence", "london")}
    assert "DR-ROLE-008" in ids(dr_ctl("reinstate", "london", "--yes"))
    twin.start("london")
    assert done(dr_ctl("reinstate", "london", "--yes")).document["debts"] == []
    assert serving(twin) == ("paris",)


@pytest.mark.parametrize("words", [SWAPOVER, ("activate", "paris", "--yes")])
def test_a_run_that_dies_as_the_store_is_given_up_goes_on_and_starts_who_ended(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    nothing(twin, dr_ctl)
    had = unprocessed(twin)
    if words != SWAPOVER:
        done(dr_ctl("fence", "london", "--yes"))
        done(dr_ctl("drain", "--to", "paris", "--yes"))
    slowly(twin)

    def die() -> None:
        raise Died

    with monkeypatch.context() as patch:
        given_up(patch, die)
        with pytest.raises(Died):
            dr_ctl(*words)
    assert serving(twin) == ()

    done(dr_ctl("resume", "--yes"))

    assert serving(twin) == ("paris",)
    assert had <= unprocessed(twin)
    assert all(each.running for each in twin.brokers(SharedStoreBroker))


def lives_on(twin: PlayedTwin, seconds: float) -> None:
    """Each process is there for so long after it was told to stop, as a JVM is."""
    with twin.still():
        for broker in twin.brokers(SharedStoreBroker):
            broker.lives_on_s = seconds


def test_a_process_that_lives_on_after_its_stop_is_waited_for_and_started(twin: PlayedTwin, dr_ctl: Command) -> None:
    nothing(twin, dr_ctl)
    lives_on(twin, 3.0)

    there = dr_ctl(*SWAPOVER)
    assert (there.code, "DR-STORE-010" in ids(there)) == (0, False)
    assert all(each.running for each in twin.brokers(SharedStoreBroker))
    assert there.document["data"]["outage_s"] < 3.0

    assert dr_ctl("swapover", "--to", "london", "--yes").code == 0
    assert serving(twin) == ("london",)


def test_a_process_that_is_not_seen_to_end_is_said_and_no_move_goes_back_to_it(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, store_ends_s=0.3)
    nothing(twin, dr_ctl)
    lives_on(twin, 3600.0)

    there = dr_ctl(*SWAPOVER)
    back = dr_ctl("swapover", "--to", "london", "--yes")

    assert (there.code, "DR-STORE-010" in ids(there)) == (0, True)
    assert (back.code, "DR-STORE-004" in ids(back)) == (10, True)
    assert serving(twin) == ("paris",)


def test_a_store_that_nobody_takes_strands_the_service_until_somebody_starts_who_should(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, activate_s=0.2, store_starts_s=0.2)
    slowly(twin)
    with monkeypatch.context() as patch:
        given_up(patch, lambda: twin.kill("paris"))
        stranded = dr_ctl(*SWAPOVER)
    assert (stranded.code, serving(twin)) == (23, ()), stranded.document
    assert "paris" in stranded.document["summary"]

    twin.start("paris")
    until(lambda: serving(twin) == ("paris",))

    assert done(dr_ctl("status")).document["data"]["pairs"][0]["serving"] == "paris"


@pytest.mark.parametrize(("words", "why"), [(SWAPOVER, "DR-STORE-004"), (FAILOVER, "DR-ALIVE-001")])
def test_a_site_whose_process_is_not_there_takes_nothing(
    twin: PlayedTwin, dr_ctl: Command, words: tuple[str, ...], why: str
) -> None:
    twin.kill("paris")
    before = scene(twin)

    ended = dr_ctl(*words)

    assert why in ids(ended)
    assert (scene(twin), serving(twin)) == (before, ("london",))
