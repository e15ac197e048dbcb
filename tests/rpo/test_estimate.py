"""The whole estimate, on files; the process that makes it, ended by force. Histories whose answer is known by hand:
nothing is `met` that was not read, and nothing unknown passes for zero; what is told beside the figures."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from py4j.protocol import Py4JError

from dr_ctl.application import estimates
from dr_ctl.cli.rpo import estimate_table
from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault, Stopped, UsageError
from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.quantities import Quantity
from dr_ctl.rpo.estimate.estimate import LoadedHistory, estimate
from dr_ctl.rpo.estimate.request import Request, command
from dr_ctl.rpo.estimate.result import (
    Estimate,
    EstimateAnswer,
    LossClass,
    LossLimit,
    Objectives,
    Outage,
    QueueShare,
    Verdict,
)
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.pipeline import session
from tests.clocks import FixedClock
from tests.rpo import by_hand
from tests.rpo.fifo import at
from tests.rpo.files import write
from tests.rpo.test_transforms import outflow, queue

WITHIN_S = 90.0


def history(site: str = "01", looks: int = 13, pair: str = "orders-1", offset: float = 0) -> list[Row]:
    """Ten messages arrive every ten seconds; from the seventh look on, nothing is shipped."""
    rows = []
    for n in range(looks):
        put, shipped = n * 10, min(n * 10, 60)
        told = {"ts": at(n * 10 + offset), "pair": pair}
        of_broker = {**told, "site": site, "depth": put - shipped, "added": put, "removed": shipped, "start": "1"}
        rows += [
            Row(**told, site=site, kind="site", name="serving"),
            Row(**told, site="02", kind="site", name="standby"),
            Row(**of_broker, kind="mirror", name="*", link=True),
            Row(**{**of_broker, "depth": put, "removed": 0}, kind="queue", name="audit.a"),
        ]
    return rows


def estimated(root: Path, *, now_s: float = 120, **more: Any) -> EstimateAnswer:
    FixedClock(at(now_s))
    return estimate(Request(history=root, **more), by_hand.made)


def test_an_estimate_from_files_to_verdict(tmp_path: Path) -> None:
    (first, *_) = write(history(), tmp_path)
    first.with_name("torn.parquet").write_bytes(b"PAR1")
    objectives = Objectives(LossLimit(messages=1000, age_s=30), (LossClass(("audit.#",), LossLimit(messages=70)),))

    answer = estimated(tmp_path, objectives=objectives)

    data = answer.data
    assert (data["site"], data["read_at"], data["stale_s"]) == ("01", "2026-03-01T12:02:00.000Z", 0.0)
    assert [data["total"][f"{name}_risk"] for name in ("loss", "duplicate")] == [60, None]
    assert data["window"] == {
        "from": "2026-03-01T12:00:00.000Z",
        "to": "2026-03-01T12:02:00.000Z",
        "samples": 13,
        "covered_s": 120.0,
    }
    # Seven intervals with ten on the way, then 20, 30, ... 60, and all of that as seconds too.
    loss = answer.estimate.total.loss
    assert (loss.now, loss.p50, loss.p95, loss.p99, loss.max) == (60, 10, 60, 60, 60)
    age = answer.estimate.total.age_s
    assert (age.now, age.p50, age.max) == (60.0, 10.0, 60.0)
    assert answer.estimate.total.duplicates.now is None
    assert answer.estimate.total.drain_s.now is None  # nothing was shipped while something was left
    assert [(flow.site, flow.pair, flow.name) for flow in answer.estimate.flows] == [("01", "orders-1", "*")]
    assert answer.estimate.flows[0].figures.loss == loss
    assert answer.estimate.classes[0].verdict is Verdict.UNKNOWN  # its limit holds, for two minutes
    assert answer.verdict is Verdict.MISSED  # by age, in total
    assert [finding.id for finding in answer.findings] == ["DR-RPO-002"]


def test_without_java_the_remedy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415 - Spark is imported by those who need it only

    write(history(), tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(EnvironmentFault, match="Spark needs it") as fault, reading() as make:
        estimate(Request(history=tmp_path), make)

    assert "JAVA_HOME" in fault.value.remedy


@pytest.mark.parametrize("text", ["", "[]", '{"site": "x"}', '{"history": "h", "more": 1}'])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Request.from_json(text)


def started(tmp_path: Path, *requests: Request) -> subprocess.Popen[str]:
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    worker = subprocess.Popen(command(), **pipes, text=True, env=environment)
    worker.stdin.write("".join(f"{request.to_json()}\n" for request in requests))
    worker.stdin.close()
    worker.stdin = None  # nothing is flushed to it any more
    return worker


def running(word: Path) -> list[int]:
    """Every process whose command line holds a word, or that works there: of a scratch directory, the JVM and what
    starts it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            works_there = (folder / "cwd").readlink().is_relative_to(word)
            if state != "Z" and (works_there or str(word).encode() in (folder / "cmdline").read_bytes()):
                found.append(int(folder.name))
    return found


def waited(condition: Callable[[], object]) -> None:
    """Of processes that are not its own children nothing can be waited for."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_signal_during_a_call_of_java_is_no_fault_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    def work() -> None:
        with session.session():
            with suppress(Stopped):  # as py4j does
                signal.raise_signal(signal.SIGINT)
            raise Py4JError("An error occurred while calling")

    monkeypatch.setattr(session, "_launched", lambda *_, **__: nullcontext())
    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(Stopped):
            work()
        assert signal.getsignal(signal.SIGINT) is stop
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.spark
@pytest.mark.deep
def test_a_worker_prints_one_document_for_each_request_and_nothing_else_and_begins_anew_after_an_error(
    tmp_path: Path,
) -> None:
    write(history(), tmp_path / "history")
    good = Request(history=tmp_path / "history", store=True)

    with started(tmp_path, replace(good, master="nonsense"), good, good) as worker:
        out, err = worker.communicate(timeout=WITHIN_S)

    assert (worker.returncode, err) == (0, "")
    no_master, first, again = map(json.loads, out.splitlines())
    assert "Spark did not start" in no_master["error"]
    assert set(first) == {"data", "verdict", "findings"}
    assert first["data"]["total"] == again["data"]["total"]
    assert first["data"]["total"]["loss"]["now"] == 60
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.spark
@pytest.mark.deep
def test_a_spark_whose_own_files_lie_elsewhere_reads_the_history_at_its_odd_place(tmp_path: Path) -> None:
    place = tmp_path / "a[1] {b}* ü%20? b\\c"
    write(history(), place)
    conf = {"spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"}

    with started(tmp_path, Request(history=place, conf=conf, store=True)) as worker:
        out, _ = worker.communicate(timeout=WITHIN_S)

    assert json.loads(out)["data"]["total"]["loss"]["now"] == 60


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("ready", ["launching", "running"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_is_killed_leaves_no_java_behind(tmp_path: Path, how: signal.Signals, ready: str) -> None:
    write(history(), tmp_path / "history")

    def is_ready() -> bool:
        # The session makes its block manager's directory once it is up.
        return bool(running(tmp_path / "scratch")) and (
            ready == "launching" or any((tmp_path / "scratch").glob("dr-ctl-spark-*/blockmgr-*"))
        )

    with started(tmp_path, Request(history=tmp_path / "history")) as worker:
        waited(is_ready)
        worker.send_signal(how)
        code = worker.wait(WITHIN_S)
        waited(lambda: not running(tmp_path / "scratch"))

    assert code == (143 if how is signal.SIGTERM else -signal.SIGKILL)
    if how is signal.SIGTERM:
        assert list((tmp_path / "scratch").glob("dr-ctl-spark-*")) == []


def test_of_what_a_worker_of_spark_said_the_cause_is_told() -> None:
    from dr_ctl.rpo.pipeline.session import _cause  # noqa: PLC0415 - Spark is imported by those who need it only

    said = "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File x\n  raise y\n"

    assert _cause(ValueError(f"{said}ModuleNotFoundError: No module named 'dr_ctl'\n\nat org.apache.spark")) == (
        "ModuleNotFoundError: No module named 'dr_ctl'"
    )
    assert _cause(ValueError("Job aborted\nat org.apache.spark")) == "Job aborted"


Rows = Iterator[Row]
MET, MISSED, UNKNOWN = Verdict.MET, Verdict.MISSED, Verdict.UNKNOWN


def site(second: float, role: str = "serving", *, name: str = "london", pair: str | None = "p") -> Row:
    return Row(site=name, ts=at(second), pair=pair, kind="site", name=role)


def look(second: float, *, put: int, shipped: int, pair: str = "p") -> list[Row]:
    """A queue that nobody consumes from, and its outflow."""
    told = queue(pair, "payments.a", second, added=put, acked=0)
    return [site(second, pair=pair), told, outflow(pair, second, put=put, shipped=shipped, kind="mirror")]


def looks(times: range, put: Callable[[int], int] = int, shipped: Callable[[int], int] = int) -> list[Row]:
    return [row for s in times for row in look(s, put=put(s), shipped=shipped(s))]


def limit(messages: int | None = None, age_s: float | None = None, *classes: LossClass) -> dict[str, Objectives]:
    return {"objectives": Objectives(LossLimit(messages, age_s), classes)}


NOTHING = limit(None, None, LossClass(("payments.#",), LossLimit(messages=0, age_s=1.0)))


def five(told: Quantity) -> tuple[object, ...]:
    return told.now, told.p50, told.p95, told.p99, told.max


def of_class(answer: EstimateAnswer) -> Quantity:
    return answer.estimate.classes[0].figures.loss


def total(answer: EstimateAnswer) -> Any:
    return answer.estimate.total


def texts(answer: EstimateAnswer, ident: str) -> list[str]:
    return [finding.text for finding in answer.findings if finding.id == f"DR-RPO-{ident}"]


def never_read() -> Rows:
    for s in range(0, 2010, 10):
        yield from (site(s), outflow("p", s, put=10 * s, shipped=0, kind="mirror"))


def removed() -> Rows:
    """A queue of which the others explain that it takes nothing with it."""
    for s in range(0, 2410, 10):
        yield from (site(s), queue("p", "orders.a", s, added=s, acked=0))
        yield from [queue("p", "payments.a", s, added=5, acked=5)] if s <= 600 else []
        yield outflow("p", s, put=s + 5, shipped=max(5, s - 50), kind="mirror")


def buried(until: int) -> Rows:
    """The broker is buried for some time, and answers every 90 s instead of every 10."""
    s = 0
    while s < 6000:
        is_buried = 2000 <= s < until
        yield from look(s, put=10 * s, shipped=20_000 if is_buried else 10 * s)
        s += 90 if is_buried else 10


def by_the_link() -> Rows:
    """Some fifteen are always on the wire; a quiet night ships one a second; the link can do five thousand."""
    put, shipped = 0, 0
    for k in range(1000):
        put += 10 if 400 <= k < 600 else 3000
        shipped = shipped if 800 <= k < 811 else max(shipped, min(put - 15, shipped + 50_000))
        yield from look(10 * k, put=put, shipped=shipped)


def unnamed(pair: str | None) -> Rows:
    """A role without a pair is that of all."""
    for s in range(0, 1010, 10):
        waits = s < 800
        yield from (site(s, "standby" if waits else "serving", pair=pair), *look(s, put=1000 + s, shipped=500 + s)[1:])
        yield site(s, "serving" if waits else "standby", name="paris", pair=pair)


def without_an_answer(role: str | None) -> Rows:
    """For 400 of 8000 seconds the broker answers nothing, and has caught up when it answers again."""
    for s in range(0, 8005, 5):
        if not 2003 <= s < 2403:
            yield from look(s, put=s, shipped=s)
        elif role is not None:
            yield site(s, role)


def moved_a_minute_ago() -> Rows:
    for s in range(0, 3610, 10):
        yield from (*look(s, put=s, shipped=s)[1:], site(s, "serving" if s < 3550 else "standby"))
        there = max(0, s - 3550)
        yield from (replace(row, site="paris") for row in look(s, put=there, shipped=there)[1:])
        yield site(s, "standby" if s < 3550 else "serving", name="paris")


def stalled_first(*kinds: str) -> Rows:
    for s in range(0, 2000, 10):
        put = 10 * s
        yield from (site(s), queue("p", "a", s, added=put, acked=put))
        for kind in kinds:
            shipped = put if s < 1950 or kind == "acks" else 19_400
            yield outflow("p", s, put=put, shipped=shipped, kind=kind, name="a")


def one_pair_moved() -> Rows:
    for s in range(0, 2010, 10):
        yield from look(s, put=10 * s, shipped=max(0, 10 * s - 500), pair="p1")
        there = min(10 * s, 10_000)
        yield from look(s, put=there, shipped=there, pair="p2")[1:]
        yield site(s, "standby" if s >= 1000 else "serving", pair="p2")


def put_back() -> Rows:
    for k in range(200):
        clock = 10 * k - (20 if k >= 100 else 0)
        yield from (replace(row, ts=at(clock)) for row in look(0, put=10 * k, shipped=min(10 * k, 900)))


def two_clocks() -> Rows:
    for k in range(400):
        skew = timedelta(seconds=6 * (k % 2))
        yield from (replace(row, ts=row.ts - skew) for row in look(5 * k, put=50 * k, shipped=50 * k))


def side_gone() -> Rows:
    for s in range(0, 3010, 10):
        yield from (site(s), queue("p", "a", s, added=s, acked=s // 2))
        yield outflow("p", s, put=s, shipped=max(0, s - 50), kind="mirror")
        yield from [outflow("p", s, put=s // 2, shipped=s // 2, kind="acks")] if s < 900 else []


def queue_gone() -> Rows:
    """A queue of few messages lived for an hour beside a busy one; both counters have the noise of readings between.
    Later the link is down for a while, and consumers keep up."""
    shipped = 0
    for n in range(2 * 9000):
        s = n / 2
        sent, small = 10 * n + (7 * n) % 5, 3 * int(min(s, 3500))
        put = 2 * (sent + small)
        shipped = shipped if 6000 <= s < 6400 else put
        yield from (site(s), outflow("p", s, put=put, shipped=shipped))
        for name, count in (("orders", sent), ("small", small)) if n % 10 == 0 else ():
            yield from [queue("p", name, s, added=count, acked=count)] if name == "orders" or s < 3500 else []


def link_away() -> Rows:
    """Consumers keep up meanwhile."""
    for s in range(0, 8000, 5):
        yield from (site(s), queue("p", "payments.a", s, added=10 * s, acked=10 * s - 2))
        yield outflow("p", s, put=20 * s, shipped=20 * (2000 if 2000 <= s < 2400 else s))


def by_the_plugin(alone: Callable[[int], int | None], depth: int = 40) -> Rows:
    """A queue of which nothing is under way; of `depth` messages in it so many have no copy (None: left out)."""
    for s in range(0, 3610, 10):
        asked = Row(site="london", ts=at(s), pair="p", kind="uncopied", name="*")
        counts = {"payments.a": alone(s), "orders.a": 0}
        yield from (
            site(s),
            asked,
            *(replace(asked, name=name, depth=count) for name, count in counts.items() if count is not None),
        )
        for name in counts:
            yield queue("p", name, s, added=100 + depth, acked=100, oldest_ms=5000)
            yield from (outflow("p", s, put=140, shipped=140, kind=kind, name=name) for kind in ("mirror", "acks"))


def ids(answer: EstimateAnswer) -> list[str]:
    return [finding.id for finding in answer.findings]


WAITS = [replace(row, site="02") for row in history() if row.kind == "mirror"]
SEVENTY = (LossClass(("payments.#", f"other-{n}"), LossLimit(10**6)) for n in range(70))
"""More classes than an integer has bits."""
RARER = [*looks(range(0, 3600, 5)), *looks(range(3600, 7201, 60), shipped=lambda s: max(3600, s - 600))]
GONE = [*looks(range(0, 4010, 10)), *(replace(row, pair="p2") for row in looks(range(0, 1000, 10)))]
UNREAD = looks(range(0, 2410, 10), shipped=lambda s: min(s, 300))
UNREAD = [row for row in UNREAD if row.kind != "queue" or row.ts <= at(600)]
Case = tuple[Any, float, dict[str, Any], Callable[[EstimateAnswer], Any], Any]
KNOWN: dict[str, Case] = {
    "a class whose queues were never read is not met": (never_read(), 2000, NOTHING,
        lambda it: (it.verdict, five(of_class(it)), "payments.#" in texts(it, "025")[0]), (UNKNOWN, (None,) * 5, True)),
    "a class whose queue is read no more is bounded by the outflow": (
        UNREAD, 2400, NOTHING, lambda it: (it.verdict, of_class(it).now, total(it).loss.now), (MISSED, 2100, 2100)),
    "a queue that was removed loses nothing where the others explain the outflow": (removed(), 2400, NOTHING,
        lambda it: (five(of_class(it)), total(it).loss.now), ((0,) * 5, 55)),
    "looks that come late meet no objective": (buried(2360), 6000, limit(200),
        lambda it: (it.verdict, "because samples came late" in texts(it, "024")[0]), (UNKNOWN, True)),
    "looks that come late for long miss it": (buried(4000), 6000, limit(200), lambda it: it.verdict, MISSED),
    "looks that become rarer are covered time again": (RARER, 7200, {},
        lambda it: (total(it).loss.now, total(it).loss.p99 >= 600), (600, True)),
    "drain is not known while a backlog has no rate": (
        looks(range(0, 1010, 10), lambda s: max(0, s - 500), lambda s: 0), 1000, {},
        lambda it: five(total(it).drain_s), (None, 0.0, None, None, None)),
    "drain goes by the rate of the link, not of the traffic": (by_the_link(), 9990, {},
        lambda it: total(it).drain_s.max, pytest.approx(33_015 / 3600, rel=0.2)),
    **{f"a role of {pair}": (unnamed(pair), 1000, {},
        lambda it: (it.estimate.site, it.estimate.window.covered_s), ("london", 200.0)) for pair in ("p", None)},
    **{f"nothing is met by looks of {last} s": (looks(range(0, last + 5, 5)), last, limit(100, 60),
        lambda it: it.verdict, UNKNOWN) for last in (0, 5, 495, 3590)},
    "a site that stays down for hours has the figures of before": ([*UNREAD, *(site(s, "down") for s in range(
        2410, 12_000, 60))], 12_000, {}, lambda it: (total(it).loss.now, it.estimate.outage.role), (2100, "down")),
    "an hour of readings meets an objective": (looks(range(0, 3605, 5)), 3600, limit(100, 60),
        lambda it: (it.verdict, it.findings), (MET, ())),
    # Within fifty minutes 250 short stalls, all alike: nobody needs an hour to see how much each loses.
    "many excursions tell within less than an hour that an objective is met": (
        looks(range(3000), lambda s: 10 * s, lambda s: 10 * (s - (s % 12 < 4))), 2999, limit(100, 60),
        lambda it: it.verdict, MET),
    **{f"time without an answer counts as above every limit ({role})": (without_an_answer(role), 8000, limit(100),
        lambda it: (total(it).loss.p99, it.verdict, len(texts(it, "024"))), (5, UNKNOWN, 1))
       for role in (None, "unknown", "sick")},
    # The link ships within the second; looks each minute cannot show it, and all of a minute may have been there.
    "an upper bound misses no objective": (
        looks(range(0, 7260, 60), lambda s: 10 * s, lambda s: 10 * s), 7200, limit(100),
        lambda it: (total(it).loss.likely.p99, total(it).loss.p99, it.verdict), (0, 600, UNKNOWN)),
    "a minute after a swapover nothing is met": (moved_a_minute_ago(), 3600, limit(50),
        lambda it: (it.estimate.site, it.verdict), ("paris", UNKNOWN)),
    "a pair that is gone leaves the objective unknown": (GONE, 4000, limit(100),
        lambda it: (it.verdict, len(texts(it, "024"))), (UNKNOWN, 1)),
    **{f"a first stall grows at the usual rate ({len(kinds)})": (stalled_first(*kinds), 1990, {},
        lambda it: total(it).horizon.loss.p99 >= 3000, True) for kinds in (("mirror",), ("mirror", "acks"))},
    "one pair that has moved risks nothing and the other counts": (one_pair_moved(), 2000, {"site": "london"},
        lambda it: it.estimate.window.covered_s, 2000.0),
    "and so since it moved": (one_pair_moved(), 2000, {"site": "london", "since": at(1010)},
        lambda it: (it.estimate.window.covered_s, total(it).loss.p99 is None), (990.0, False)),
    "an age across a clock that was put back is at least that": (put_back(), 1970, {},
        lambda it: len(texts(it, "007")), 1),
    "two monitors whose clocks differ are told": (two_clocks(), 2000, limit(100_000),
        lambda it: (it.verdict, len(texts(it, "024"))), (UNKNOWN, 1)),
    "a side that is gone leaves out no later reading": (side_gone(), 3000, {},
        lambda it: (it.estimate.read_at, total(it).loss.now, total(it).duplicates.p99), (at(3000), 50, None)),
    **{f"{alone} messages without a copy are lost, whatever the outflow says": (
        by_the_plugin(lambda _, alone=alone: alone), 3600, limit(39, 60),
        lambda it: (five(total(it).loss), five(total(it).loss.likely), total(it).age_s.now, it.verdict),
        ((alone,) * 5, (alone,) * 5, age_s, verdict))
       for alone, age_s, verdict in ((0, 0.0, MET), (1, 5.0, MET), (40, 5.0, MISSED))},
    "a queue that no comparison tells of may have lost all, and nobody knows what is likely": (
        by_the_plugin(lambda _: None), 3600, limit(39), lambda it: (
            five(total(it).loss), five(total(it).loss.likely), it.verdict, "for 1 h" in texts(it, "034")[0]),
        ((40,) * 5, (None,) * 5, UNKNOWN, True)),
    "and so for as long as the last comparison is too old": (
        by_the_plugin(lambda s: None if 1000 < s < 2000 else 0), 3600, limit(39), lambda it: (
            total(it).loss.now, total(it).loss.p50, total(it).loss.max, total(it).loss.likely.p99, it.verdict, ids(it)),
        (0, 0, 40, None, UNKNOWN, ["DR-RPO-034"])),
    "what lost its copy between two comparisons counts from the first on": (
        by_the_plugin(lambda s: (0 if s < 1800 else 9) if s % 100 == 0 else 0), 3600, {}, lambda it: (
            total(it).loss.max, total(it).loss.likely.max), (9, 9)),
    "seventy classes": (
        looks(range(0, 7200, 20), shipped=lambda s: max(0, s - s % 60)), 7200, limit(None, None, *SEVENTY),
        lambda it: {of.figures.loss.likely.p99 for of in it.estimate.classes} == {total(it).loss.likely.p99}, True),
    "a queue that is gone makes nothing of the outflow lost": (queue_gone(), 9000, {},
        lambda it: (total(it).unexplained, total(it).loss.likely.p99 <= 5, total(it).loss.p99 <= 200),
        (pytest.approx(0, abs=0.001), True, True)),
    "two pairs that are looked at in turn": (
        [*history(), *history(pair="orders-2", offset=5)], 1000, {},
        lambda it: (total(it).loss.now, total(it).loss.max, [flow.figures.loss.max for flow in it.estimate.flows],
                    it.verdict, ids(it)), (120, 120, [60, 60], None, ["DR-RPO-003"])),
    "a reading from the future is not taken for a fresh one": (history(), 60, {},
        lambda it: (ids(it), "60 s later than" in it.findings[0].text), (["DR-RPO-020"], True)),
    "a window leaves out what lies outside": (history(), 60, {"until": at(60)},
        lambda it: (total(it).loss.now, total(it).loss.max), (0, 10)),
    **{f"whose echoes are counted is said of a site that waits ({name})": (
        [*history(), *WAITS], 120, {"site": name}, lambda it: [each[:22] for each in texts(it, "023")], said)
       for name, said in (("01", []), ("02", ["01 serves, not 02: the"]))},
    "a site that the history does not know": (history(), 120, {"site": "paris"},
        lambda it: (it.estimate, it.verdict, ids(it), "01" in it.findings[0].text),
        (None, UNKNOWN, ["DR-RPO-005"], True)),
    "an outage of the link in which consumers keep up ages nothing likely": (link_away(), 8000, limit(None, 30),
        lambda it: (total(it).age_s.likely.p99 <= 5, total(it).age_s.p99 > 300, it.verdict), (True, True, UNKNOWN)),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known(tmp_path: Path, name: str) -> None:
    rows, now_s, more, said, expected = KNOWN[name]
    write(rows, tmp_path)

    assert said(estimated(tmp_path, now_s=now_s, **more)) == expected


def test_a_reading_that_came_while_spark_started_is_not_from_the_future(tmp_path: Path) -> None:
    write(history(), tmp_path)
    clock = FixedClock(at(60))

    def made_slowly(request: Request, now_us: int) -> LoadedHistory | Finding:
        clock.moment = at(120)
        return by_hand.made(request, now_us)

    assert estimate(Request(history=tmp_path), made_slowly).findings == ()


END_S, STALL_S = 7200, (3000, 3600)
OBJECTIVES = Objectives(LossLimit(500, 3600.0), (LossClass(("orders.#",), LossLimit(100)),))


def stalling(*, stalls: bool = True, quick: int = 20) -> list[Row]:
    """A reading every ten seconds: eight messages a second to one queue, two to another; for ten minutes the link and
    the consumers stand still, then `quick` things a second are shipped."""
    rows, shipped = [], 0
    for s in range(0, END_S, 10):
        is_still = stalls and STALL_S[0] <= s < STALL_S[1]
        sent = 10 * s
        consumed = 10 * STALL_S[0] if is_still else sent
        put = sent + consumed
        shipped = shipped if is_still else min(put, shipped + 10 * quick) if stalls and s >= STALL_S[1] else put
        common: dict[str, Any] = {"site": "london", "ts": at(s), "pair": "p", "start": "1"}
        rows += [
            Row(kind="site", name="serving", **common),
            Row(kind="mixed", name="*", depth=put - shipped, added=put, removed=shipped, link=True, **common),
        ]
        for name, share in (("orders.in", 0.8), ("other", 0.2)):
            counts = [round(share * each) for each in (sent, consumed)]
            rows.append(
                Row(kind="queue", name=name, depth=counts[0] - counts[1], added=counts[0], removed=counts[1],
                    acked=counts[1], **common)
            )  # fmt: skip
    return rows


def estimate_of(folder: Path, rows: list[Row], objectives: Objectives | None = OBJECTIVES) -> Estimate:
    write(rows, folder)
    asked = Request(history=str(folder), site="london", objectives=objectives)
    FixedClock(at(END_S + 60))
    return estimate(asked, by_hand.made).estimate


def test_what_would_shorten_it_names_the_time_the_link_and_the_queue(tmp_path: Path) -> None:
    when, link, queue, *_ = estimate_of(tmp_path, stalling()).advice

    assert when == (
        "A failure would likely have lost more than 500 once in the history, the longest time for about 9 min 20 s "
        "from 2026-03-01T12:50:40.000Z on: check link and consumers at that time."
    )
    assert link.startswith("With a backlog, the outflow of pair p shipped 20 a second")
    assert queue.startswith("80% of what was likely lost lay in orders.in of pair p, at most ")


CALM = [replace(row, added=0, removed=0, acked=None, depth=0) if row.kind != "site" else row for row in stalling()]
MANY = [
    replace(row, name=f"q{number:02}") if row.kind == "queue" else row
    for row in stalling()
    if row.kind != "queue" or row.name == "other"
    for number in range(40 if row.kind == "queue" else 1)
]
SHARES = [
    ("orders.in", pytest.approx(0.8, abs=0.01), pytest.approx(4720, abs=160)),
    ("other", pytest.approx(0.2, abs=0.01), ANY),
]
ADVICE: dict[str, tuple[list[Row], Objectives | None, Callable[[Estimate], Any], Any]] = {
    "the queues in which most was likely lost, with their share": (stalling(), OBJECTIVES,
        lambda it: it.queues, tuple(QueueShare("p", *each) for each in SHARES)),
    "a share of all queues, however many there are": (MANY, OBJECTIVES,
        lambda it: ([(queue.name, queue.share) for queue in it.queues], "likely lost lay in" in str(it.advice)),
        ([(f"q{number:02}", 1 / 40) for number in range(5)], False)),
    "the worst moment, without an objective": (stalling(), None,
        lambda it: it.advice[0].startswith("Worst moment: about 2026-03-01T12:5"), True),
    "nothing where nothing is lost and the bound is near": (CALM, OBJECTIVES,
        lambda it: (it.advice, it.queues), ((), ())),
    "that a bound is wide because looks are far apart": (stalling(stalls=False), OBJECTIVES,
        lambda it: [each[:72] for each in it.advice if "bound" in each],
        ["The bound is far above the likely value because samples are 10 s apart: "]),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "objectives", "said", "expected"), ADVICE.values(), ids=ADVICE)
def test_what_is_told_beside_the_figures(
    tmp_path: Path, rows: list[Row], objectives: Objectives | None, said: Callable[[Estimate], Any], expected: Any
) -> None:
    assert said(estimate_of(tmp_path, rows, objectives)) == expected


def seen(name: str, s: int) -> Row:
    return Row(site="london", ts=at(s), pair="p", kind="site", name=name)


@pytest.mark.parametrize(
    ("later", "outage"),
    [
        ([seen("down", END_S), seen("down", END_S + 30)], ("down", END_S + 30)),
        ([seen("unknown", END_S), seen("unknown", END_S + 30)], ("unknown", END_S + 30)),
        ([seen("unknown", END_S)], None),
        ([seen("standby", END_S), seen("down", END_S + 30)], None),
        ([seen("down", END_S), seen("standby", END_S + 30)], None),
        ([], None),
    ],
    ids=["down", "silent", "late once", "moved, then down", "down, then waiting", "alive"],
)
def test_a_site_that_is_away_is_told_with_when_it_served_last(
    tmp_path: Path, later: list[Row], outage: tuple[str, int] | None
) -> None:
    found = estimate_of(tmp_path, [*stalling(), *later])

    told = None if outage is None else Outage(at(END_S - 10), outage[0], at(outage[1]))
    assert found.outage == told
    expected = "" if outage is None else (
        "as of 2026-03-01T13:59:50.000Z, before the outage of london; not the loss bound of a failover now"
    )  # fmt: skip
    assert estimates.as_of(document(found)) == expected
    assert "what a failover costs, with what may have come since: `dr-ctl status`" in estimate_table(
        document(found), OBJECTIVES
    )


def test_in_a_terminal_likely_stands_beside_the_bound_and_the_objective_beside_both(tmp_path: Path) -> None:
    found = estimate_of(tmp_path, stalling())

    lines = estimate_table(document(found), OBJECTIVES).splitlines()

    head, likely, most = (line.split() for line in lines[:3])
    assert head == ["now", "p50", "p95", "p99", "max", "allowed", "at", "p99"]
    loss = found.total.loss
    assert likely[:3] == ["messages", "lost", "likely"]
    assert likely[3:] == [f"{getattr(loss.likely, name):g}" for name in head[:5]] + ["500"]
    assert most == ["at", "most", *(f"{getattr(loss, name):g}" for name in head[:5])]
    [of_class] = [line for line in lines if line.startswith("orders.#: messages lost")]
    assert of_class.split()[-1] == "100"
    assert "most was likely lost of orders.in 80% (at most" in "\n".join(lines)
    assert sum(line.startswith("- ") for line in lines) == len(found.advice) > 2
    assert "allowed" not in estimate_table(document(found), None)
    assert estimate_table({}, None) == ""
