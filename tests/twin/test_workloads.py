"""Workloads around a pair of brokers: whatever dies or fails, each runs at the site that serves, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.workloads.sites import WorkloadSites
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.kinds import BRIDGES, MIRROR
from tests.conftest import Command
from tests.topologies.workloads.work import Work
from tests.twin.conftest import BOTH
from tests.twin.matrix import OPERATIONS, SOME_AND_ALL, Judge, at_rest, done, moments, quick, serving, unprocessed
from tests.twin.test_crashes import Died, bare, effects
from tests.twin.test_undo import before_no_return

NAMES = ("billing", "mailer")
AROUND = pytest.mark.parametrize("topology", [MIRROR, BRIDGES])


class Played:
    """A twin with two workloads, which run where it serves; named besides are those that work on some queues only."""

    def __init__(
        self, folder: Path, twin: PlayedTwin, *, singletons: Sequence[str] = NAMES, **queues: Sequence[str]
    ) -> None:
        self.works = [
            Work(folder / "work", site, name, running=site == "london") for site in twin.sites for name in NAMES
        ]
        told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
        for site, part in told["sites"].items():
            part["workloads"] = [
                each.told(singleton=each.name in singletons, queues=list(queues.get(each.name, ())))
                for each in self.works
                if each.site == site
            ]
        twin.settings_path.write_text(json.dumps(told), encoding="utf-8")
        self.log = folder / "work" / "workloads.log"

    @property
    def running(self) -> list[tuple[str, str]]:
        return [(each.site, each.name) for each in self.works if each.runs]

    @property
    def called(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    @property
    def changes(self) -> list[str]:
        return sorted(self.called)

    def work(self, site: str, name: str) -> Work:
        return next(each for each in self.works if (each.site, each.name) == (site, name))


class Death:
    """Ends the process right before or right after its n-th call that changes a broker or a workload."""

    def __init__(self, at: int | None, *, after: bool) -> None:
        self.at, self.after, self.calls = at, after, 0

    def strike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sender, "_post", self._mortal(Sender._post))
        monkeypatch.setattr(WorkloadSites, "send", self._mortal(WorkloadSites.send))

    def _mortal(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*given: Any) -> Any:
            self.calls += 1
            strikes = self.calls == self.at
            if strikes and not self.after:
                raise Died
            outcome = send(*given)
            if strikes:
                raise Died
            return outcome

        return mortal


Fresh = Callable[[str], tuple[PlayedTwin, Played]]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str) -> Fresh:
    def made(name: str) -> tuple[PlayedTwin, Played]:
        twin = PlayedTwin.up(tmp_path / name, topology=topology)
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / f"state of {name}"))
        return twin, Played(tmp_path / f"beside {name}", twin)

    return made


def dies(inside: Command, monkeypatch: pytest.MonkeyPatch, death: Death, words: Sequence[str]) -> None:
    """Run a command whose process ends on the way."""
    with monkeypatch.context() as patch:
        death.strike(patch)
        with pytest.raises(Died):
            inside(*words, "--yes")


def at(site: str) -> list[tuple[str, str]]:
    return [(site, name) for name in NAMES]


@SOME_AND_ALL
@pytest.mark.parametrize("operation", ["swapover", "failover", "failback"])
@AROUND
def test_a_run_that_is_killed_anywhere_leaves_them_at_the_site_that_serves(
    fresh: Fresh, inside: Command, monkeypatch: pytest.MonkeyPatch, operation: str, whole: bool
) -> None:
    words, target = OPERATIONS[operation].words, OPERATIONS[operation].serving[0]
    twin, played = fresh("undisturbed")
    death = Death(None, after=False)
    with twin, monkeypatch.context() as patch:
        OPERATIONS[operation].before(twin, inside)
        death.strike(patch)
        done(inside(*words, "--yes"))
        wanted, once, called = at_rest(twin), effects(twin), played.changes
        assert played.running == at(target)

    every = [(number, after) for number in range(1, death.calls + 1) for after in (False, True)]
    for number, after in moments(every, whole=whole, of=f"workloads {operation}"):
        twin, played = fresh(f"dies {'after' if after else 'before'} {number}")
        with twin:
            judge = Judge(twin, monkeypatch)
            OPERATIONS[operation].before(twin, inside)
            had = unprocessed(twin)
            dies(inside, monkeypatch, Death(number, after=after), words)

            ended = inside("resume", "--yes")

            assert ended.code == 0, (number, after, ended.document)
            assert (played.running, serving(twin), judge.twice) == (at(target), (target,), []), (number, after)
            assert (bare(at_rest(twin)), effects(twin)) == (bare(wanted), once), (number, after)
            assert played.changes == called, (number, after)
            assert had <= unprocessed(twin), (number, after)


@SOME_AND_ALL
@AROUND
def test_whichever_call_of_a_broker_fails_they_run_where_they_ran(
    fresh: Fresh, inside: Command, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    twin, _ = fresh("undisturbed")
    with twin:
        calls = before_no_return("swapover", twin, inside)
    for number, call in moments(list(enumerate(calls)), whole=whole, of="workloads fail"):
        twin, played = fresh(f"fails at {number}")
        with twin:
            OPERATIONS["swapover"].before(twin, inside)
            before = at_rest(twin)
            verb = call.operation.partition("(")[0]
            nth = sum((each.site, each.operation) == (call.site, call.operation) for each in calls[:number])
            twin.host(call.site).faults.add(Fault(FaultKind.ERROR, When(operation=verb, after=nth), times=None))

            with quick(monkeypatch):
                ended = inside("swapover", "--to", "paris", "--yes")

            twin.host(call.site).faults.clear()
            assert ended.code in (10, 13, 20, 23, 24), (call, ended.document)
            assert played.running == at("london"), "also where a pause could not be lifted"
            assert ended.code == 23 or at_rest(twin) == before, (call, ended.document)


@pytest.mark.parametrize("number", range(1, 5))
@AROUND
def test_a_run_that_is_killed_before_its_end_is_undone(
    fresh: Fresh, inside: Command, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    twin, played = fresh("killed")
    with twin:
        OPERATIONS["swapover"].before(twin, inside)
        before = at_rest(twin)
        dies(inside, monkeypatch, Death(number, after=True), ("swapover", "--to", "paris"))

        done(inside("abort", "--yes"))

        assert (played.running, serving(twin), at_rest(twin)) == (at("london"), ("london",), before)


ENDS: Sequence[tuple[str, str, str, int, str, str]] = (
    ("london", "billing", "stop.fails", 20, "london", "DR-WORK-003"),
    ("london", "mailer", "stop.hangs", 20, "london", "DR-WORK-003"),
    ("london", "mailer", "state.broken", 10, "london", "DR-WORK-002"),
    ("paris", "billing", "state.broken", 10, "london", "DR-WORK-002"),
    ("paris", "billing", "start.fails", 21, "paris", "DR-WORK-004"),
)


@pytest.mark.parametrize(("site", "name", "switch", "code", "served", "finding"), ENDS)
def test_however_one_fails_the_end_says_so(
    fresh: Fresh, inside: Command, site: str, name: str, switch: str, code: int, served: str, finding: str
) -> None:
    twin, played = fresh("fails")
    with twin:
        OPERATIONS["swapover"].before(twin, inside)
        told = twin.settings_path.read_text(encoding="utf-8")
        twin.settings_path.write_text(told.replace('"timeout": "5s"', '"timeout": "300ms"'), encoding="utf-8")
        played.work(site, name).switch(switch)

        ended = inside("swapover", "--to", "paris", "--yes")

        assert (ended.code, serving(twin)) == (code, (served,)), ended.document
        assert name in ended.document["summary"]
        told = [each["id"] for each in ended.document["findings"] if each["id"].startswith("DR-WORK")]
        assert told == [finding]
        expected = [each for each in at(served) if (each[1], code) != (name, 21)]
        assert played.running == expected


@AROUND
def test_a_stop_that_may_take_effect_later_is_taken_back_by_the_undo(fresh: Fresh, inside: Command) -> None:
    twin, played = fresh("drains")
    with twin:
        told = twin.settings_path.read_text(encoding="utf-8")
        twin.settings_path.write_text(told.replace('"timeout": "5s"', '"timeout": "300ms"'), encoding="utf-8")
        billing = played.work("london", "billing")
        billing.switch("stop.drains")

        ended = inside("swapover", "--to", "paris", "--yes")
        billing.drain()

        assert (ended.code, serving(twin)) == (20, ("london",)), ended.document
        assert played.running == at("london")
        assert "may still take effect" in ended.document["summary"]


@pytest.mark.parametrize("word", [(), ("--presume-down", "london", "--reason", "its hosts are powered off")])
@AROUND
def test_a_singleton_of_a_dead_broker_that_cannot_be_asked_is_started_by_somebodys_word_only(
    fresh: Fresh, inside: Command, word: tuple[str, ...]
) -> None:
    """It has a host of its own, where it may run on."""
    twin, played = fresh("apart")
    with twin:
        OPERATIONS["failover"].before(twin, inside)
        for name in NAMES:
            played.work("london", name).switch("state.broken")

        ended = inside(
            "failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", *word, "--yes"
        )

        assert serving(twin) == ("paris",)
        assert (ended.code, played.running) == ((0, [*at("london"), *at("paris")]) if word else (21, at("london")))
        asked = [each for each in ended.document["findings"] if each["id"] == "DR-WORK-007"]
        assert all(("--presume-down london --reason" in each["remedy"]) is not bool(word) for each in asked)
        assert len(asked) == len(NAMES)


@BOTH
def test_what_its_end_says_to_type_starts_one_that_did_not(
    tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    with PlayedTwin.up(tmp_path / "twin", topology=topology) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        played = Played(tmp_path / "beside", twin)
        OPERATIONS["swapover"].before(twin, inside)
        played.work("paris", "billing").switch("start.fails")
        moved = inside("swapover", "--to", "paris", "--yes")
        before = at_rest(twin)
        played.work("paris", "billing").switch("start.fails", on=False)
        again = inside("swapover", "--to", "paris", "--yes")

        unfenced = done(inside("unfence", "paris", "--yes"))

        assert (moved.code, again.code) == (21, 0), moved.document
        assert "DR-WORK-006" in [each["id"] for each in again.document["findings"]]
        assert (played.running, at_rest(twin), serving(twin)) == (at("paris"), before, ("paris",)), unfenced.document
        assert inside("unfence", "paris", "--yes").document["summary"].endswith("nothing was changed")


def test_with_one_queue_of_a_site_goes_what_works_on_it(
    tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlayedTwin.up(tmp_path / "twin", topology=BRIDGES) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        played = Played(tmp_path / "beside", twin, mailer=("orders.in",))

        moved = inside("swapover", "--to", "paris", "--queues", "orders.in", "--yes")
        between = played.running
        back = inside("swapover", "--to", "london", "--queues", "orders.in", "--yes")

        assert (moved.code, between) == (0, [("london", "billing"), ("paris", "mailer")]), moved.document
        assert (back.code, played.running) == (0, at("london")), back.document
