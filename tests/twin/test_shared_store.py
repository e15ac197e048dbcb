"""A shared store around the moment at which nobody has it: a failover that comes before who waits has taken it, a run
that dies as soon as it was given up, a site that is not there to take it."""

import subprocess
from functools import partial
from unittest.mock import Mock

import pytest

from dr_ctl.engine.plan import Goal
from dr_ctl.topologies.classic import session
from dr_ctl.topologies.sharedstore import procedure
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.conftest import Command
from tests.timeouts import impatient
from tests.twin.matrix import ACCEPTED, at_calls, done, edited, nothing, serving, unprocessed
from tests.twin.subject import until

TOPOLOGY = SHARED_STORE
SWAPOVER = ("swapover", "--to", "paris", "--yes")
FAILOVER = ("failover", "--to", "paris", "--yes")
SLOW_S = 1.5


def slowly(twin: PlayedTwin, every_s: float = SLOW_S) -> None:
    """Paris has just tried for the lock, and does so seldom, as real brokers do."""
    [paris] = [broker for broker in twin.brokers(SharedStoreBroker) if broker.site == "paris"]
    with twin.locked():
        paris.tries_every_s = every_s
        paris.work(twin.clock.now_s() + every_s)


def test_a_failover_waits_until_the_store_is_taken_and_owes_a_fence_until_the_lost_site_waits(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, store_starts_s=0.0)
    slowly(twin, 45.0)
    twin.kill("london")

    ended = done(dr_ctl(*FAILOVER, *ACCEPTED))

    assert serving(twin) == ("paris",)
    assert {(row["kind"], row["site"]) for row in ended.document["debts"]} == {("fence", "london")}
    assert "DR-ROLE-008" in dr_ctl("reinstate", "london", "--yes").ids
    twin.start("london")
    assert done(dr_ctl("reinstate", "london", "--yes")).document["debts"] == []
    assert serving(twin) == ("paris",)


def test_a_target_that_ends_as_the_store_is_given_up_is_started_by_the_run(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing(twin, dr_ctl)
    had = unprocessed(twin)
    with monkeypatch.context() as patch:
        at_calls(patch, Goal.HAND_OVER, lambda: twin.kill("paris"))
        ended = done(dr_ctl(*SWAPOVER))

    assert (serving(twin), {"DR-RUN-001", "DR-STORE-010"} & {*ended.ids}) == (("paris",), set())
    assert had <= unprocessed(twin)


@pytest.mark.parametrize("full", [False, True])
def test_no_store_is_given_up_where_the_target_has_ended_or_nothing_can_be_noted(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    nothing(twin, dr_ctl)
    may_not = procedure._why_not_now
    full_disk = partial(monkeypatch.setattr, session, "write_text", Mock(side_effect=OSError("no space left")))
    occurs = full_disk if full else partial(twin.kill, "paris")
    monkeypatch.setattr(procedure, "_why_not_now", lambda *words: (occurs(), may_not(*words))[1])

    ended = dr_ctl(*SWAPOVER)

    assert (ended.code, serving(twin)) == (20, ("london",)), ended.told
    assert ("make room there" in ended.document["summary"]) is full


def test_a_store_that_nobody_takes_ends_with_a_command_that_helps(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, activate_s=0.2, store_taken_s=0.2, store_starts_s=0.2, store_ends_s=0.2)
    with edited(twin) as settings_file:
        for site in settings_file["sites"].values():
            del site["brokers"][0]["process"]["start"]
    slowly(twin)
    with monkeypatch.context() as patch:
        at_calls(patch, Goal.HAND_OVER, lambda: twin.kill("paris"))
        stranded = dr_ctl(*SWAPOVER)
    shown = dr_ctl("status")

    assert (stranded.code, serving(twin)) == (23, ()), stranded.document
    assert "unfence" not in stranded.rows("DR-RUN-001")[0]["remedy"]
    assert (shown.code, shown.ids) == (22, ["DR-STORE-012", "DR-ROLE-005"])
    assert "start broker paris on its host" in shown.rows("DR-STORE-012")[0]["remedy"]
    twin.start("paris")
    until(lambda: serving(twin) == ("paris",))
    assert done(dr_ctl("status")).document["data"]["pairs"][0]["serving"] == "paris"


@pytest.mark.wire
def test_two_dead_processes_are_no_answer_and_the_command_that_is_named_starts_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, store_starts_s=0.2)
    for site in twin.sites:
        twin.kill(site)

    shown = dr_ctl("status")
    rows = shown.rows("DR-STORE-012")[0]

    assert (shown.code, shown.ids) == (22, ["DR-STORE-012", "DR-ROLE-005"])
    assert rows["text"].count("its process does not run") == 2
    subprocess.run(["/bin/sh", "-c", rows["remedy"].split("`")[1]], check=True, timeout=30)
    until(lambda: serving(twin) == ("london",))
