"""Workloads around a pair of brokers: whatever dies or fails, each runs at the site that serves, and nowhere else."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings.loader import load
from dr_ctl.topologies.registry import opened
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, MIRROR, SHARED_STORE
from tests.conftest import Command
from tests.topologies.workloads.work import Work
from tests.twin.matrix import (
    OPERATIONS,
    Death,
    Judge,
    at_rest,
    bare,
    dies,
    done,
    edited,
    effects,
    nothing,
    serving,
    unprocessed,
)

BILLING, MAILER = NAMES = ("billing", "mailer")
TO_PARIS = ("swapover", "--to", "paris", "--yes")
AROUND = pytest.mark.parametrize("topology", [MIRROR, BRIDGES])


class Played:
    """A twin with two workloads, which run where it serves; named besides are those that work on some queues only."""

    def __init__(
        self, folder: Path, twin: PlayedTwin, *, singletons: Sequence[str] = NAMES, **queues: Sequence[str]
    ) -> None:
        self.twin, self.log = twin, folder / "work" / "workloads.log"
        self.works = {
            (site, name): Work(folder / "work", site, name, running=site == "london")
            for site in twin.sites
            for name in NAMES
        }
        with edited(twin) as settings_file:
            for (site, name), work in self.works.items():
                rows = settings_file["sites"][site].setdefault("workloads", [])
                rows.append(work.told(singleton=name in singletons, queues=list(queues.get(name, ()))))

    @property
    def running(self) -> list[tuple[str, str]]:
        return [which for which, work in self.works.items() if work.runs]

    @property
    def calls(self) -> list[str]:
        return sorted(self.log.read_text(encoding="utf-8").splitlines()) if self.log.exists() else []


Fresh = Callable[[str], tuple[PlayedTwin, Played]]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str) -> Fresh:
    def made(name: str) -> tuple[PlayedTwin, Played]:
        twin = PlayedTwin.up(tmp_path / name, topology=topology)
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / f"state of {name}"))
        return twin, Played(tmp_path / f"beside {name}", twin)

    return made


@pytest.fixture
def works(tmp_path: Path, twin: PlayedTwin) -> Played:
    """A billing, which is a singleton, and a mailer, which is none."""
    return Played(tmp_path / "beside", twin, singletons=(BILLING,))


def at(site: str) -> list[tuple[str, str]]:
    return [(site, name) for name in NAMES]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["ends", "whole"])
@pytest.mark.parametrize(
    ("topology", "operation"),
    [
        (MIRROR, "swapover"),
        *(pytest.param(MIRROR, name, marks=pytest.mark.deep) for name in ("failover", "failback")),
        *(pytest.param(BRIDGES, name, marks=pytest.mark.deep) for name in ("swapover", "failover", "failback")),
    ],
)
def test_a_run_that_is_killed_anywhere_leaves_them_at_the_site_that_serves(
    fresh: Fresh, inside: Command, monkeypatch: pytest.MonkeyPatch, operation: str, whole: bool
) -> None:
    begins, words, target = OPERATIONS[operation].before, OPERATIONS[operation].words, OPERATIONS[operation].serving[0]
    twin, played = fresh("undisturbed")
    death = Death(None, after=False)
    with twin, monkeypatch.context() as patch:
        begins(twin, inside)
        death.strike(patch)
        done(inside(*words, "--yes"))
        wanted, once, called = at_rest(twin), effects(twin), played.calls
        assert played.running == at(target)

    every = [(number, after) for number in range(1, len(death.requests) + 1) for after in (False, True)]
    for number, after in every if whole else (every[0], every[-1]):
        twin, played = fresh(f"dies {'after' if after else 'before'} {number}")
        with twin:
            judge = Judge(twin, monkeypatch)
            begins(twin, inside)
            had = unprocessed(twin)
            dies(inside, *words, by=Death(number, after=after))

            ended = inside("resume", "--yes")

            assert ended.code == 0, (number, after, ended.document)
            assert (played.running, serving(twin), judge.twice) == (at(target), (target,), []), (number, after)
            assert (bare(at_rest(twin)), effects(twin)) == (bare(wanted), once), (number, after)
            assert played.calls == called, (number, after)
            assert had <= unprocessed(twin), (number, after)


@pytest.mark.parametrize("number", [2, *(pytest.param(number, marks=pytest.mark.deep) for number in (1, 3, 4))])
@AROUND
def test_a_run_that_is_killed_before_its_end_is_undone(fresh: Fresh, inside: Command, number: int) -> None:
    twin, played = fresh("killed")
    with twin:
        nothing(twin, inside)
        before = at_rest(twin)
        dies(inside, *TO_PARIS[:-1], by=Death(number, after=True))

        done(inside("abort", "--yes"))

        assert (played.running, serving(twin), at_rest(twin)) == (at("london"), ("london",), before)


@AROUND
def test_a_stop_that_may_take_effect_later_is_taken_back_by_the_undo(
    twin: PlayedTwin, works: Played, dr_ctl: Command
) -> None:
    billing = works.works["london", BILLING]
    with edited(twin) as settings_file:
        for workload in (item for site in settings_file["sites"].values() for item in site["workloads"]):
            workload["timeout"] = "300ms"
    billing.switch("stop.drains")

    ended = dr_ctl(*TO_PARIS)
    billing.drain()

    assert (ended.code, serving(twin), works.running) == (20, ("london",), at("london")), ended.document
    assert "may still take effect" in ended.document["summary"]


def test_beside_them_an_agent_is_needed_and_a_store_is_shared_as_without(tmp_path: Path) -> None:
    for kind in (BROKERSYNC, SHARED_STORE):
        twin = PlayedTwin.up(tmp_path / kind, topology=kind)
        Played(tmp_path / f"beside {kind}", twin)
        with twin, closing(opened(load(twin.settings_path), Timeouts(), tmp_path)) as topology:
            if kind == BROKERSYNC:
                topology.cleaner("london", {}).close()
                assert topology.unproven("paris", None) == []
            assert topology.observe().one_store is (kind == SHARED_STORE)
