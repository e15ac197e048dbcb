"""The monitor without brokers, with its estimate and its size; the agent's loop; what both show of themselves."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pyarrow.parquet as pq
import pytest

from dr_ctl.agents.exposing import Board, Metric, Sample, ServedState, exposing, registry_of
from dr_ctl.agents.monitor import ESTIMATE_FACTOR, GAPS_WITHIN_S, AnotherMonitor, Monitor, Refresher, served_state
from dr_ctl.agents.sync import Phase, SyncAgent
from dr_ctl.application.monitoring import Recorded
from dr_ctl.core.errors import Sick, Unreachable, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Role
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import BY_AGENT, Hold, Notes
from dr_ctl.engine.runs import Locked, Runs
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.files import Sources
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.history.writer import TAIL_EVERY_S
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSnapshot
from dr_ctl.topologies.topology import Progress, QueueProgress, TimedReading
from tests.cli.conftest import Shell
from tests.clocks import Ticking
from tests.rpo.files import full_disk
from tests.stomp_io.listeners import closed_port
from tests.topologies.mirror.views import PAIR, at_both, listeners, snapshot

LONDON, PARIS = at_both("orders.in", depth=4)
REFUSED = Silent(PAIR, "london", Unreachable("refused", refused=True), ports_refuse=True)
SILENT = Silent(PAIR, "london", Unreachable("no route", refused=False))
SILENT_PARIS = Silent(PAIR, "paris", Unreachable("no answer within 1 s", refused=False))
SICK = Silent(PAIR, "london", Sick("out of memory"))
FENCED = replace(LONDON, acceptors=listeners("london", serving=False))


@dataclass
class Watched:
    """Stands where the topology would: each reading is what the test says."""

    view: BrokerView | Silent = LONDON
    looks: list[MirrorSnapshot] = field(default_factory=list)

    def read(self) -> MirrorSnapshot:
        self.looks.append(snapshot(self.view, PARIS))
        return self.looks[-1]

    def poll(self, *, full: bool = False) -> TimedReading[MirrorSnapshot] | None:
        return None


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Installation:
    return load(Shell(tmp_path, capsys).settings())


@pytest.fixture
def monitor(installation: Installation, watched: Watched) -> Iterator[Monitor]:
    with closing(Monitor(installation, watched)) as monitor:
        yield monitor


def rows_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


def on_disk(folder: Path, site: str = "london") -> list[str]:
    """The roles of the readings that are in the files, the oldest first."""
    rows = rows_of((folder / "history").glob(f"date=*/site={site}/*.parquet"))
    return [row["name"] for row in sorted(rows, key=lambda row: row["ts"]) if row["kind"] == "site"]


def test_a_link_attached_while_its_broker_dies_is_no_node(
    monitor: Monitor, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, watched.view = [0], replace(REFUSED, signs=("the link is attached",))
    for lingers_s in (60, 60, 0):
        monkeypatch.setattr("dr_ctl.agents.monitor.LINGERS_S", lingers_s)
        monitor.sample()
        rows.append(monitor.rows - sum(rows))

    assert rows[1] == rows[2] == rows[3] - 1


@pytest.mark.parametrize(
    ("view", "role"),
    [(REFUSED, "down"), (SILENT, "unknown"), (SICK, "sick"), (FENCED, "standby")],
    ids=["down", "unknown", "sick", "standby"],
)
def test_a_change_and_all_before_it_are_on_disk_with_that_very_look(
    tmp_path: Path, monitor: Monitor, watched: Watched, view: BrokerView | Silent, role: str
) -> None:
    monitor.sample()
    monitor.sample()
    watched.view = view

    monitor.sample()

    assert on_disk(tmp_path) == ["serving", "serving", role]
    assert on_disk(tmp_path, "paris") == ["standby"] * 3


def test_one_change_is_one_file_and_its_end_another(tmp_path: Path, monitor: Monitor, watched: Watched) -> None:
    for view in (LONDON, SILENT, SILENT, SILENT):
        watched.view = view
        monitor.sample()
    assert on_disk(tmp_path) == ["serving", "unknown"]

    watched.view = LONDON
    monitor.sample()

    assert on_disk(tmp_path) == ["serving", "unknown", "unknown", "unknown", "serving"]
    assert len(list(tmp_path.glob("history/date=*/site=london/*.parquet"))) == 2


def test_one_silent_broker_of_a_site_that_keeps_its_role_is_a_change(
    tmp_path: Path, monitor: Monitor, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    other = replace(LONDON, pair="orders-2")

    def read(second: BrokerView | Silent) -> MirrorSnapshot:
        paris = {PAIR: PARIS, "orders-2": replace(PARIS, pair="orders-2")}
        return MirrorSnapshot({"london": {PAIR: LONDON, "orders-2": second}, "paris": paris})

    for second in (other, replace(SILENT, pair="orders-2")):
        monkeypatch.setattr(watched, "read", lambda second=second: read(second))
        monitor.sample()

    assert on_disk(tmp_path) == ["serving"] * 4


@dataclass
class Glanced(Watched):
    """A topology that can look at its outflows alone too."""

    clock: Ticking = field(default_factory=lambda: Ticking(system().now()))
    glances: int = 0
    took_s: float = 0.001

    def poll(self, *, full: bool = False) -> TimedReading[MirrorSnapshot] | None:
        if full:
            self.clock.sleep(self.took_s)
            return TimedReading(self.read(), 0.0, self.took_s)
        self.glances += 1
        views = [
            view if isinstance(view, Silent) else replace(view, queues=tuple(q for q in view.queues if q.internal))
            for view in (self.view, PARIS)
        ]
        return TimedReading(snapshot(*views), 0.0, 0.001)


@pytest.fixture
def glanced(installation: Installation) -> Iterator[tuple[Monitor, Glanced]]:
    topology = Glanced()
    with closing(Monitor(installation, topology, every_s=5.0)) as monitor:
        yield monitor, topology


@pytest.mark.parametrize(
    ("took_s", "looks", "glances"),
    [(0.001, 20, 0), (0.0125, 20, 0), (0.017, 15, 0), (0.1, 3, 17), (1.68, 1, 13)],
    ids=["one queue", "no more than every 250 ms", "a hundred queues", "six hundred", "ten thousand"],
)
def test_looks_at_everything_take_a_twentieth_of_the_time(
    glanced: tuple[Monitor, Glanced], took_s: float, looks: int, glances: int
) -> None:
    """Within the five seconds of a reading that is told; where there is room, outflows are looked at alone in
    between."""
    monitor, topology = glanced
    topology.took_s = took_s
    monitor.sample()

    monitor.wait(None)

    assert (len(topology.looks), topology.glances) == (looks, glances)
    assert monitor.rows == 6 * looks + 4 * glances, "what a reading of outflows alone found is kept too"
    assert monitor.cost_s == pytest.approx(took_s)
    board = Board()
    board.shown = served_state(monitor, monitor.sample())
    assert registry_of(board).get_sample_value("dr_ctl_monitor_reading_seconds") == took_s
    assert (board.shown.good_for_s, board.shown.is_ready) == (60.0, True)
    topology.clock.sleep(40)
    board.shown = served_state(monitor, monitor.sample())
    assert 40 < registry_of(board).get_sample_value("dr_ctl_monitor_gap_seconds") < 43
    topology.clock.sleep(GAPS_WITHIN_S)
    monitor.sample()
    monitor.wait(None)
    assert monitor.gap_s == pytest.approx(GAPS_WITHIN_S, abs=10), "the last of that time alone"


def test_the_last_minute_is_whole_and_in_the_files_once_a_site_is_silent(
    tmp_path: Path, glanced: tuple[Monitor, Glanced]
) -> None:
    monitor, topology = glanced
    for _ in range(15):
        monitor.sample()
        monitor.wait(None)
    full = {row["ts"] for row in tail_rows(tmp_path / "history") if row["kind"] == "queue"}
    assert len(topology.looks) - 4 <= len(full) <= len(topology.looks), "the last minute is whole"
    kept = Counter(row["kind"] for row in rows_of(tmp_path.glob("history/date=*/site=london/2*.parquet")))
    assert (kept["queue"], kept["mixed"]) == (pytest.approx(12, abs=1), pytest.approx(240, abs=4))
    topology.view = REFUSED
    monitor.wait(None)

    rows = rows_of(tmp_path.glob("history/date=*/site=london/2*.parquet"))
    moments = {row["ts"] for row in rows if row["kind"] == "mixed"}
    last = sorted(moments)[-200:]
    assert {row["ts"] for row in rows if row["kind"] == "queue"} >= {*last}
    assert tail_rows(tmp_path / "history") == []


def test_a_second_monitor_on_one_history_says_so_at_once_and_records_nothing(
    tmp_path: Path, installation: Installation, watched: Watched
) -> None:
    clock = Ticking(system().now())
    with closing(Monitor(installation, watched)) as first:
        first.sample()
        clock.sleep(TAIL_EVERY_S)
        first.sample()

        with pytest.raises(AnotherMonitor, match=f"process {os.getpid()} on "):
            Monitor(installation, watched)
        first.sample()

    with closing(Monitor(installation, watched)) as after:
        after.sample()
    assert on_disk(tmp_path) == ["serving"] * 4


def tail_rows(history: Path) -> list[dict[str, Any]]:
    return [row for tail in Sources(history).tails("london") for row in tail.read()[0].to_pylist()]


def test_a_change_between_two_looks_is_on_disk_at_once(tmp_path: Path, glanced: tuple[Monitor, Glanced]) -> None:
    monitor, topology = glanced
    monitor.sample()
    topology.view = REFUSED

    monitor.wait(None)

    assert on_disk(tmp_path) == ["serving", "down"]


def test_a_topology_that_cannot_glance_is_looked_at_whole_only(monitor: Monitor, watched: Watched) -> None:
    monitor.sample()

    monitor.wait(0.0)

    assert len(watched.looks) == 1


def test_a_look_that_waited_for_a_late_site_is_as_old_as_the_answers_in_it(
    tmp_path: Path, glanced: tuple[Monitor, Glanced], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, topology = glanced
    late = TimedReading(snapshot(LONDON, SILENT_PARIS), 0.75, 0.01)
    monkeypatch.setattr(topology, "poll", lambda *, full=False: late)
    before = system().now()

    look = monitor.sample()

    assert before - timedelta(seconds=0.75) <= look.at < before
    monitor.close()
    assert {row["ts"] for row in rows_of(tmp_path.glob("history/date=*/site=london/*.parquet"))} == {look.at}


def test_a_defect_in_the_tidying_of_the_history_is_not_kept_by_its_thread(
    installation: Installation, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Upkeep, "step", lambda self, now: 1 // 0)
    clock = Ticking(system().now())
    monitor = Monitor(installation, watched)
    monitor.sample()
    clock.sleep(3600)
    monitor.sample()

    with pytest.raises(ZeroDivisionError):
        monitor.close()


def test_a_death_that_a_full_disk_does_not_take_is_on_disk_once_it_can(
    tmp_path: Path, installation: Installation, watched: Watched
) -> None:
    Ticking(system().now())
    monitor = Monitor(installation, watched, every_s=5.0)
    monitor.sample()
    watched.view = REFUSED
    with full_disk():
        look = monitor.sample()
        assert look.trouble is not None
        assert look.waiting == 10
        assert not served_state(monitor, look).well
        for _ in range(20):
            monitor.wait(None)
            monitor.sample()
        assert on_disk(tmp_path) == []
    for _ in range(2):
        monitor.wait(None)
        look = monitor.sample()

    assert (look.trouble, look.dropped) == (None, 0)
    assert served_state(monitor, look).well
    monitor.close()
    assert on_disk(tmp_path) == ["serving", *["down"] * (monitor.readings - 1)]


def test_what_a_disk_does_not_take_in_the_end_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path, capsys)
    urls = ("http://127.0.0.1:1/console/jolokia", "http://127.0.0.1:2/console/jolokia")
    (tmp_path / "history").write_text("a file where the history should be")
    words = ("--config", str(shell.settings(*urls)), "--state-dir", str(shell.state))

    ended = shell(*words, "monitor", "--for", "100ms", "--json")

    assert ended.code != 0
    [end] = [line for line in ended.out.splitlines() if '"schema"' in line]
    assert "row(s) are lost" in end


def test_a_trouble_is_said_once_and_so_is_its_end_with_what_it_cost() -> None:
    heard: list[str] = []
    recorded = Recorded(SimpleNamespace(say=heard.append))  # type: ignore[arg-type]
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for trouble, dropped in ((None, 0), ("full", 0), ("full", 5), (None, 5), ("full", 5), (None, 5)):
        recorded.report(Sample(at, {"london": Role.SERVING}, {"london": 0}, None, trouble, 7, dropped))  # type: ignore[arg-type]

    assert [said.partition(";")[0] for said in heard] == ["full", "the history is written again"] * 2
    assert "5 row(s) were dropped" in heard[1]
    assert "nothing was lost" in heard[3]
    assert [finding.id for finding in recorded.troubles.values()] == ["DR-MON-001"]


REQUEST = Request(history=Path("h"), store=True)
ANSWERS = "import sys\nfor line in sys.stdin: print('{answer}', flush=True)"
WITHIN_S = 20.0


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Put a script in the place of the worker; gives the scripts that were started."""
    started: list[str] = []

    def instead(script: str) -> list[str]:
        def command() -> list[str]:
            started.append(script)
            return [sys.executable, "-c", script]

        monkeypatch.setattr(request, "command", command)
        return started

    return instead


def answered(refresher: Refresher) -> str | None:
    """Ask, and look until the answer has come."""
    assert refresher.read() is None
    assert refresher._estimating is not None
    until = time.monotonic() + WITHIN_S
    while refresher._estimating.runs:
        assert time.monotonic() < until
        time.sleep(0.01)  # a process that stays cannot be waited for
    return refresher.read()


@pytest.mark.parametrize(("stays", "processes"), [(False, 3), (True, 1)])
def test_one_that_stays_is_asked(
    worker: Callable[[str], list[str]], stays: bool, processes: int, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    started = worker(
        f"import sys\nfor line in sys.stdin:\n open({str(heard)!r}, 'a').write(line); print('{{}}', flush=True)"
    )
    refresher = Refresher(REQUEST, stays=stays, every_s=0.0)

    for _ in range(3):
        refresher._next = 0.0
        assert answered(refresher) is None
    refresher._next = time.monotonic() + 1000  # it is not asked before its time
    for _ in range(3):
        assert refresher.read() is None

    assert len(started) == processes
    assert [Request.from_json(line) for line in heard.read_text().splitlines()] == [REQUEST] * 3
    refresher.close()


def test_one_that_has_ended_is_started_again(worker: Callable[[str], list[str]]) -> None:
    started = worker("import sys; sys.stdin.readline(); print('{}')")
    refresher = Refresher(REQUEST, stays=True, every_s=0.0)

    for _ in range(2):
        refresher._next = 0.0
        assert answered(refresher) is None
        if refresher._estimating is not None:
            refresher._estimating._process.wait(WITHIN_S)

    assert len(started) == 2
    refresher.close()


def test_a_long_one_is_made_more_seldom(worker: Callable[[str], list[str]]) -> None:
    worker(ANSWERS.format(answer="{}"))
    refresher = Refresher(REQUEST, stays=True, every_s=0.0)

    began = time.monotonic()
    answered(refresher)
    took = time.monotonic() - began

    assert 0 < refresher._next - time.monotonic() <= ESTIMATE_FACTOR * took
    refresher.close()


@pytest.mark.parametrize("stays", [False, True])
def test_a_reason_is_told_once(worker: Callable[[str], list[str]], stays: bool) -> None:
    why = json.dumps({"error": "no java", "remedy": ""})
    worker(ANSWERS.format(answer=why))
    refresher = Refresher(REQUEST, stays=stays, every_s=0.0)

    first = answered(refresher)
    refresher._next = 0.0
    second = answered(refresher)
    refresher.close()
    worker("pass")
    refresher._next = 0.0
    third = answered(refresher)

    assert (first, second) == ("no estimate: no java", None)
    assert str(third).startswith("no estimate: the estimate ended without an answer. Run `dr-ctl --verbose rpo")
    refresher.close()


def test_the_end_of_the_monitor_ends_it(worker: Callable[[str], list[str]]) -> None:
    worker("import os, time\nos.setpgid(0, 0) if os.getpgrp() != os.getpid() else None\ntime.sleep(600)")
    refresher = Refresher(REQUEST, stays=True)
    refresher.read()
    assert refresher._estimating is not None
    process = refresher._estimating._process

    refresher.close()

    assert process.poll() is not None


LIMIT_MIB = 143  # 150 MB


@pytest.mark.deep
def test_ten_thousand_queues_at_two_sites_stay_below_150_mb(tmp_path: Path) -> None:
    """In seconds, too: what looks at all queues for each of them takes minutes."""
    command = [sys.executable, "-m", "tests.agents.memory", str(tmp_path / "history")]
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}  # as the monitor has it

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], env=env, timeout=60
    )

    assert int(done.stdout) < LIMIT_MIB
    assert len(list(tmp_path.glob("history/date=*/site=*/*.parquet"))) >= 4


def test_its_memory_is_given_back_by_the_allocator_of_the_system(tmp_path: Path) -> None:
    """Arrow reads which to take when it is loaded: nothing before the command may have loaded it."""
    missing = tmp_path / "none.yaml"
    code = (
        f"from dr_ctl.cli.app import run; run(['--config', {str(missing)!r}, 'monitor']);"
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split()[-1] == "system"


class Cleaner:
    """Implements `Cleaner`: says what it is told to."""

    def __init__(self) -> None:
        self.kept = Progress([QueueProgress("orders-1", "orders.in", deleted=7)])

    def step(self, held: Callable[[], str | None]) -> Progress:
        return self.kept

    def go_on(self) -> None:
        self.kept = Progress([QueueProgress("orders-1", "orders.in")])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def cleaner() -> Cleaner:
    return Cleaner()


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "state")


@pytest.fixture
def agent(cleaner: Cleaner, notes: Notes) -> SyncAgent:
    notes.state.mkdir()
    return SyncAgent(cleaner, Runs(notes.state), notes, {"primary": "london", "standby": "paris"})


VANISHED = Progress([QueueProgress("orders-1", "orders.in", vanished=3)])


def test_an_open_run_holds_it_until_it_has_ended(agent: SyncAgent, notes: Notes) -> None:
    run = Runs(notes.state).create("swapover", "paris")
    run.journal.touch()

    assert (agent.step().phase, notes.read()["held_by"]) == (Phase.HELD, run.name)
    assert agent.held() is not None

    run.result.touch()
    assert (agent.step().phase, agent.held()) == (Phase.RUNNING, None)


PERSON, OWN = ("an operator", "a purge to come"), (BY_AGENT, "3 message(s)")


@pytest.mark.parametrize(
    ("acts", "phase", "by"),
    [
        ([PERSON], Phase.HELD, PERSON),
        ([PERSON, VANISHED], Phase.HELD, PERSON),
        ([VANISHED], Phase.HELD, OWN),
        # Its own hold tells what the later looks found.
        (
            [VANISHED, Progress([QueueProgress("orders-1", "orders.in", vanished=42)])],
            Phase.HELD,
            (BY_AGENT, "42 message(s)"),
        ),
        # One of the same moment does not outlive a person's word; a person's that comes after it counts.
        (["word", OWN], Phase.RUNNING, None),
        (["word", PERSON], Phase.HELD, PERSON),
        (["unreadable"], Phase.HELD, ("somebody", "cannot be read")),
    ],
)
def test_a_hold_holds_it_until_somebody_answers_for_it(
    agent: SyncAgent, cleaner: Cleaner, notes: Notes, acts: list[Any], phase: Phase, by: tuple[str, str] | None
) -> None:
    for act in acts:
        if isinstance(act, Progress):
            cleaner.kept = act
            agent.step()
        elif isinstance(act, tuple):
            notes.put_hold(Hold(*act, stamp(system().now())))
        elif act == "word":
            notes.go_on(system().now())
        else:
            (notes.state / "sync-hold.json").write_text("{")

    assert agent.step().phase is phase
    assert (agent.held() is None) is (phase is Phase.RUNNING)
    hold = notes.hold()
    if by is not None:
        assert hold is not None
        assert (hold.by, by[1] in hold.reason) == (by[0], True), hold


def test_its_end_is_written_down(agent: SyncAgent, cleaner: Cleaner, notes: Notes) -> None:
    cleaner.kept = Progress(over="london is lost")

    assert agent.step().phase is Phase.FINISHED
    assert (notes.read()["phase"], notes.read()["why"]) == ("finished", "london is lost")


def test_there_is_one_agent_for_a_state(notes: Notes) -> None:
    with notes.only_agent(), pytest.raises(Locked), notes.only_agent():
        pass
    with notes.only_agent():
        pass


def test_figures_and_health_are_served() -> None:
    port = closed_port().port
    with exposing(f"127.0.0.1:{port}") as board:
        with pytest.raises(HTTPError) as refused:
            _get(port, "/health")
        assert refused.value.code == 503
        refused.value.close()

        problems, figures = [found("DR-MON-002.never", more=["      a"])], [Metric("one", "a figure", 1)]
        board.shown = ServedState(well=True, health={"phase": "running"}, metrics=figures, problems=problems)

        assert json.loads(_get(port, "/health")) == {"phase": "running"}
        assert [row["text"] for row in json.loads(_get(port, "/ready"))["problems"]] == [f"{problems[0].text}; a"]
        assert "one 1.0" in _get(port, "/metrics")
        head = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", method="HEAD")
        with urllib.request.urlopen(head, timeout=5) as answer:
            assert (answer.status, answer.read()) == (200, b"")

        for board.shown in (
            ServedState(well=True, health={}, metrics=[], ready=False),
            ServedState(well=True, health={}, metrics=[], good_for_s=0.0),
        ):
            with pytest.raises(HTTPError) as refused:
                _get(port, "/ready")
            assert (refused.value.code, _get(port, "/health")) == (503, "{}")
            refused.value.close()


@pytest.mark.parametrize("address", ["9410", "127.0.0.1:", "127.0.0.1:many"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError), exposing(address):
        pass


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())
