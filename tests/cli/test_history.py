"""`history`: turns of runs, turns that no run made, and what neither tells. No broker is asked."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.clock import stamp
from dr_ctl.core.system import system
from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.cli.conftest import Shell
from tests.cli.installation import Sites
from tests.cli.moving import ACCEPTED, failover
from tests.report import scribe
from tests.report.scribe import NAME, Scribe, call

BEGIN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)


def looks(dr_ctl: Shell, site: str, *spells: tuple[str, datetime, datetime]) -> None:
    """Write looks each second, from the first moment to the last of each spell."""
    write(_rows(site, spells), dr_ctl.folder / "history")


def _rows(site: str, spells: tuple[tuple[str, datetime, datetime], ...]) -> Iterator[Row]:
    for role, first, last in spells:
        for each in range(int((last - first).total_seconds()) + 1):
            yield Row(site=site, ts=first + timedelta(seconds=each), kind="site", name=role, pair="orders-1")
    yield Row(site=site, ts=spells[0][1], kind="queue", name="orders.in", pair="orders-1", depth=1)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def told(dr_ctl: Shell, *words: str) -> list[dict[str, Any]]:
    ended = dr_ctl("history", "--json", *words)
    assert ended.code == 0, ended.document
    turns: list[dict[str, Any]] = ended.document["data"]["history"]
    return turns


def failed_over(path: Path) -> Scribe:
    """London was lost; Paris lets clients in 5 s after the run began."""
    decided = scribe.plan(ask=Ask("failover", "paris", reason="INC-7"))
    run = Scribe(path).begin(replace(decided, source="london"))
    run.did("observe", 3.0).did("check", 1.5).start("activate")
    run.sent("activate", call("open acceptor clients at paris", "paris"), took=0.5).stop("activate")
    return run.end(0, "ok", "paris serves", pairs=[{"name": "orders-1", "serving": "paris"}], command="failover")


def fencing(path: Path) -> Scribe:
    """Paris is fenced, while London serves."""
    decided = scribe.plan(ask=Ask("fence", "london"))
    run = Scribe(path).begin(
        replace(decided, source="paris", steps=(PlannedStep(1, "fence", "paris", "clients out"),), serving=("london",))
    )
    return run.start("fence").sent("fence", call("close acceptor clients at paris", "paris"), took=0.5).stop("fence")


def fenced(path: Path, code: int, outcome: str, served: dict[str, str | None]) -> None:
    pairs = [{"name": name, "serving": site} for name, site in served.items()]
    fencing(path).end(code, outcome, "paris is fenced", pairs=pairs, command="fence")


class TestRunsAlone:
    def test_a_move_says_who_why_and_how_long(self, dr_ctl: Shell) -> None:
        scribe.done(dr_ctl.run())

        [turn] = told(dr_ctl)

        assert turn == {
            "at": "2026-11-21T02:00:07.500Z",
            "about": False,
            "serving": "paris",
            "known": True,
            "out_s": {"at_least": 4.0, "at_most": 4.0},
            "run": NAME,
            "epoch": 7,
            "by": "ada@ops-1",
            "reason": "CHG-4711",
            "outcome": "ok",
            "text": f"swapover: CHG-4711 ({NAME})",
        }
        heading, row, last = dr_ctl("history").out.splitlines()
        cells = [
            row[heading.index(name) :].split("  ")[0] for name in ("since", "serves", "clients out", "epoch", "by")
        ]
        assert cells == ["2026-11-21 02:00:07", "paris", "4.00 s", "7", "ada@ops-1"]
        assert last == "paris serves since 2026-11-21T02:00:07.500Z, as far as runs and looks tell"

    @pytest.mark.parametrize(
        ("served", "serving", "known", "left"),
        [
            ({"orders-1": "london"}, "london", True, ""),
            ({"orders-1": "london", "orders-2": "paris"}, "london and paris", True, ""),
            ({"orders-1": "london", "orders-2": None}, "london", True, "; orders-2 served nowhere"),
            ({"orders-1": None}, None, True, ""),
        ],
        ids=["the other serves", "each a part", "one pair nowhere", "none"],
    )
    def test_who_serves_after_a_fence_is_what_its_result_says(
        self, dr_ctl: Shell, served: dict[str, str | None], serving: str | None, known: bool, left: str
    ) -> None:
        fenced(dr_ctl.run(), 0, "ok", served)

        [turn] = told(dr_ctl)

        assert (turn["serving"], turn["known"]) == (serving, known)
        assert turn["text"].endswith(f"({NAME}){left}")

    def test_an_end_that_is_not_known_is_no_end_without_service(self, dr_ctl: Shell) -> None:
        fenced(dr_ctl.run(), 22, "unknown", {"orders-1": None})

        [turn] = told(dr_ctl)

        assert (turn["serving"], turn["known"]) == (None, False)
        assert "  not known  " in dr_ctl("history").out.splitlines()[1]


@pytest.fixture
def watched(dr_ctl: Shell) -> Shell:
    dr_ctl.settings()
    return dr_ctl


class TestLooks:
    @pytest.mark.parametrize(("lost", "at_least"), [("down", 12.0), ("unknown", None)])
    def test_a_failover_was_out_since_the_site_was_seen_to_serve_no_more(
        self, watched: Shell, lost: str, at_least: float | None
    ) -> None:
        """One that gave no answer was not seen to."""
        failed_over(watched.run())
        looks(watched, "london", ("serving", at(-60), at(-8)), (lost, at(-7), at(60)))
        looks(watched, "paris", ("standby", at(-60), at(4)), ("serving", at(6), at(60)))

        before, turn = told(watched)[-2:]

        assert (turn["run"], turn["at"]) == (NAME, "2026-11-21T02:00:05.000Z")
        assert turn["out_s"] == {"at_least": at_least, "at_most": 13.0}
        if at_least:
            assert (before["serving"], before["at"]) == (None, "2026-11-21T01:59:53.000Z")
            assert "12 s to 13 s" in watched("history").out

    def test_a_pause_of_the_looks_is_no_outage(self, watched: Shell) -> None:
        looks(watched, "london", ("serving", at(-60), at(0)), ("unknown", at(2), at(9)), ("serving", at(900), at(930)))

        assert len(told(watched)) == 1

    def test_since_leaves_out_what_was_before(self, watched: Shell) -> None:
        scribe.done(watched.run())
        looks(watched, "london", ("serving", at(-60), at(0)))
        looks(watched, "paris", ("serving", at(8), at(60)))

        assert [turn["run"] for turn in told(watched, "--since", "2026-11-21T02:00:01Z")] == [NAME]
        assert told(watched, "--since", "2026-11-21T02:10:00Z") == []

    def test_a_file_that_is_torn_is_named(self, watched: Shell) -> None:
        looks(watched, "london", ("serving", at(-60), at(0)))
        [path] = (watched.folder / "history").glob("date=*/site=london/*.parquet")
        path.with_name("torn.parquet").write_bytes(path.read_bytes()[:100])

        ended = watched("history", "--json")

        assert ended.ids == ["DR-RPO-002"]
        assert [turn["serving"] for turn in ended.document["data"]["history"]] == ["london"]


class TestOutOfALostSite:
    def test_a_failover_reads_the_looks_at_its_end(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        now = system().now()
        back = now - timedelta(seconds=60)
        served, down = back + timedelta(seconds=20), back + timedelta(seconds=23)
        looks(dr_ctl, "london", ("serving", back, served), ("down", down, now))

        ended = failover(dr_ctl, "--yes", *ACCEPTED)

        out = ended.document["data"]["out_s"]
        assert ended.code == 0, ended.document
        assert out["last_served"] == stamp(served)
        assert out["seen_down"] == stamp(down)
        assert 37 <= out["at_least"] < out["at_most"] == pytest.approx(out["at_least"] + 3, abs=0.002)
        [row] = dr_ctl("runs", "list", "--json").document["data"]["runs"]
        assert row["out_s"] == {"at_least": out["at_least"], "at_most": out["at_most"]}
        page = (dr_ctl.state / "runs" / row["run"] / "report.html").read_text(encoding="utf-8")
        assert "London was last seen to serve at " in page
        assert re.search(r"at least [\d.]+ m?s, at most [\d.]+ m?s", " ".join(page.split()))
