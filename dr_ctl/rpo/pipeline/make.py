"""Answers one request for an estimate: sums up the hours that changed, and makes figures of all hours."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.core.system import in_background
from dr_ctl.rpo.core.arrays import DAY_US, HOUR_US, SECOND_US
from dr_ctl.rpo.core.cut import LONGEST_GAP_US
from dr_ctl.rpo.core.hour import HORIZON_US, HourQuery
from dr_ctl.rpo.core.rows import REACH
from dr_ctl.rpo.core.scope import Facts
from dr_ctl.rpo.estimate.estimate import LoadedHistory, nothing_of
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.files import NAMED, Source, Store, rows_of, with_retries
from dr_ctl.rpo.history.newest import only_begun
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.hours import UNREADABLE, UNSEEN, Hours, backtest_of, facts_of, figures_of
from dr_ctl.rpo.pipeline.session import master, session
from dr_ctl.rpo.pipeline.sql import SUMMED, folder
from dr_ctl.rpo.pipeline.tables import AHEAD_US, Files, History, Ledger, SummaryTables

Say = Callable[[str], None]
_EVERY_S: Final = 0.5


def say_nothing(_text: str) -> None:
    """Drop the progress."""


@contextmanager
def counted(spark: SparkSession, say: Say, hours: int, tasks: int) -> Iterator[None]:
    """Report, until the block ends, how many hours are done, by the finished tasks of Spark's stage with that many."""
    over = threading.Event()

    def count() -> None:
        tracker, first, most = spark.sparkContext.statusTracker(), None, 0
        while not over.wait(_EVERY_S):
            stages = [stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage is not None]
            if stages:
                last = max(stages, key=lambda stage: stage.stageId)
                first = last.stageId if first is None else first
                if last.stageId > first and last.numTasks == tasks:
                    most = max(most, last.numCompletedTasks * hours // tasks)
                say(f"summing up: {most} of {hours} hour(s)")

    say(f"summing up: 0 of {hours} hour(s)")
    has_scheduler = hasattr(spark, "sparkContext")  # a client of Spark Connect has none
    counting = in_background(count, "progress of Spark") if say is not say_nothing and has_scheduler else None
    try:
        yield
    finally:
        over.set()
        if counting is not None:
            counting.result()


SHORT_WORK_BYTES: Final = 4 << 20
"""About two million readings: with more, a thorough compiler of Java saves more than it costs."""
CELLS: Final = 24 * 8
_FILE: Final = re.compile(f"({UNREADABLE}|{UNSEEN}) (\\S+)")
REACHABLE: Final = "Each worker has to reach the history at the path, or URL, that the settings name."
_FOLDER: Final = re.compile(r"PATH_NOT_FOUND.*((?:date=|summary/)\S*[^\s.])")


def made(spark: SparkSession, request: Request, now_us: int, say: Say = say_nothing) -> LoadedHistory | Finding:
    """Answer the request. If a file disappears meanwhile, start again. Files that are corrupt inside are left out; only
    reading them shows that."""
    torn: set[str] = set()
    store = Store.of(request.history)

    def ask() -> LoadedHistory | Finding:
        while True:
            try:
                return _Question(spark, request, now_us, torn, say).made()
            except FileNotFoundError:
                raise
            except OSError as error:
                raise store.fault(error) from error
            except (PySparkException, Py4JError) as error:
                text = str(error)
                folder = _FOLDER.search(text)
                # A folder that exists and that Spark does not see is another fault.
                if "FILE_NOT_EXIST" in text or (folder and not store.listed(folder[1], recursive=False, folders=True)):
                    raise FileNotFoundError from error
                if (file := _FILE.search(text)) is None:
                    raise
                name = unquote(file[2])
                if file[1] == UNSEEN:
                    if name in store.listed(name.rpartition("/")[0]):
                        raise EnvironmentFault(
                            f"a task of Spark does not see {name} of the history", remedy=REACHABLE
                        ) from error
                    raise FileNotFoundError(name) from error
                torn.add(name)

    return with_retries(ask)


class _Question:
    def __init__(self, spark: SparkSession, request: Request, now_us: int, torn: set[str], say: Say) -> None:
        self._spark, self._request, self._now_us, self._torn, self._say = spark, request, now_us, torn, say
        spark.catalog.clearCache()  # of the question before
        self._history = History(request.history)
        self._classes = () if request.objectives is None else tuple(of.queues for of in request.objectives.classes)

    def made(self) -> LoadedHistory | Finding:
        request, history = self._request, self._history
        if not history.sites:
            return no_history(request)
        since_us = 0 if request.since is None else micros(request.since)
        serving = history.serving(since_us, None if request.until is None else micros(request.until), self._now_us)
        site = request.site or serving
        if site is None or site not in history.sites:
            return nothing_of(site, set(history.sites))
        self._say(f"looking through the files of {site}")
        is_usual = request.from_summaries and not request.is_backtest
        tables = SummaryTables(
            self._spark, request.history, folder([request.include, request.exclude, self._classes], site)
        )
        files = Files.of(history, site, tables.ledger if is_usual else Ledger(), self._torn)
        if not files.read:
            return nothing_of(site, set(history.sites))
        query, is_cut = self._query(files)
        is_kept = request.store and request.since is None and request.until is None and not request.is_backtest
        if is_kept:
            tables.tidy(query.begin_us, query.end_us, self._now_us)
        span = range(query.from_us - query.from_us % HOUR_US, query.to_us, HOUR_US)
        kept = tables.cached() if is_usual else {}
        touched = files.touched(query.begin_us, query.end_us, {us: summary.least for us, summary in kept.items()})
        todo = [hour_us for hour_us in span if hour_us in touched or hour_us not in kept or is_cut(hour_us)]
        hours = Hours(self._spark, request.history, files.read, query, todo)
        fresh = hours.rows() if todo else None
        others = tables.hours({hour_us: kept[hour_us] for hour_us in set(span) & kept.keys() - {*todo}})
        parts = [part for part in (fresh, others) if part is not None]
        rows = sql.union(part.select(*SUMMED.names).where(f"kind <> '{REACH}'") for part in parts)
        with counted(self._spark, self._say, len(todo), hours.tasks):  # the hours are summed up once they are asked for
            if is_kept:
                tables.keep(fresh, files, self._now_us)
            facts = facts_of(rows)
        self._say("adding up")
        if facts.flows and request.horizon_s * SECOND_US != HORIZON_US and not request.is_backtest:
            rows = rows.unionByName(self._custom_horizon(files, query, facts))
        torn = (
            file for file in files.all if file.why and file.first_us < query.to_us and query.from_us <= file.last_us
        )
        findings = [found("DR-RPO-002", name=file.name, why=file.why) for file in torn]
        whose = partial(figures_of, rows, facts, len(self._classes)), partial(backtest_of, rows)
        ahead = (len(files.ahead), max(file.last_us for file in files.ahead)) if files.ahead else None
        return LoadedHistory(site, serving, query.end_us, facts, *whose, tuple(findings), ahead)

    def _custom_horizon(self, files: Files, query: HourQuery, facts: Facts) -> DataFrame:
        """Return changes within another horizon than the usual one, of the last day."""
        (first, last), horizon_us = facts.span_us, int(self._request.horizon_s * SECOND_US)
        from_us = max(first, last - DAY_US - horizon_us)
        day = replace(query, from_us=from_us, horizons_us=(horizon_us,))
        hours = [*range(from_us - from_us % HOUR_US, query.to_us, HOUR_US)]
        return Hours(self._spark, self._request.history, files.read, day, hours).rows().where("kind = 'change'")

    def _query(self, files: Files) -> tuple[HourQuery, Callable[[int], bool]]:
        """Return the query for each hour, and a test for hours that the requested time covers only in part."""
        request, read = self._request, files.read
        begin_us = min(file.first_us for file in read)
        limit_us = (
            self._now_us + AHEAD_US if begin_us <= self._now_us + AHEAD_US else max(file.last_us for file in read)
        )
        ahead = [file for file in read if file.last_us > limit_us]
        ends = [file.last_us for file in read if file.last_us <= limit_us]
        if partly := [file.name for file in ahead if file.first_us <= limit_us]:
            within = pc.field("ts") <= moment(limit_us)
            rows = rows_of((Source(self._history.store, name) for name in partly), [], ["ts"], within)
            ends.append(pc.max(rows["ts"].cast(pa.int64())).as_py())
        last_us = max(ends)
        files.ahead = ahead
        until_us = last_us if request.until is None else min(last_us, micros(request.until))
        first_us = begin_us - begin_us % HOUR_US
        since_us = first_us if request.since is None else max(first_us, micros(request.since))
        cell_us = max(SECOND_US, (until_us + 1 - max(since_us, begin_us)) // CELLS) if request.is_backtest else 0
        span, patterns = (begin_us, until_us + 1, since_us, until_us + 1), (request.include, request.exclude)
        horizons_us = tuple(int(horizon_s * SECOND_US) for horizon_s in request.horizons_s)
        query = HourQuery(*span, *patterns, self._classes, horizons_us, cell_us)

        def is_cut(hour_us: int) -> bool:
            return hour_us < since_us or (until_us < last_us and hour_us + HOUR_US + LONGEST_GAP_US > until_us + 1)

        return query, is_cut


def no_history(request: Request) -> Finding:
    return only_begun(request.location) or found("DR-RPO-001.nothing", place=request.location.shown)


@contextmanager
def reading(say: Say = say_nothing) -> Iterator[Callable[[Request, int], LoadedHistory | Finding]]:
    """Read histories in a session that is started once there is something to read, and ends with the block. `say` gets
    the progress. Raises EnvironmentFault."""
    with ExitStack() as opened:
        started: list[SparkSession] = []

        def make(request: Request, now_us: int) -> LoadedHistory | Finding:
            bytes_ = _unread(request)
            if bytes_ is None:
                return no_history(request)
            if not started:
                say(f"starting Spark ({master(request.master)})")
                is_busy = bytes_ > SHORT_WORK_BYTES
                started.append(opened.enter_context(session(master=request.master, conf=request.conf, is_busy=is_busy)))
            return made(started[0], request, now_us, say)

        yield make


def _unread(request: Request) -> int | None:
    """Return about how many bytes of the history are not summed up yet, or None if there is no history."""
    store = Store.of(request.history)
    try:
        files = store.listed()
    except OSError as error:
        raise store.fault(error) from error
    sizes = [info.size for name, info in files.items() if NAMED.fullmatch(name)]
    is_summed = any(name.startswith("summary/") for name in files)
    return (0 if is_summed and request.from_summaries and not request.is_backtest else sum(sizes)) if sizes else None
