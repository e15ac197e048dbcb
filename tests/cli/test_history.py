"""`history`: what no scenario says of turns of runs, and of turns that no run made. No broker is asked."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.cli.conftest import Shell
from tests.report import scribe
from tests.report.scribe import NAME, Scribe, call

Spell = tuple[str, float, float]


def looks(dr_ctl: Shell, site: str, *spells: Spell) -> None:
    """Write looks each second, from the first second to the last of each spell, counted from where runs begin."""

    def row(second: float, kind: str, name: str, **counted: int) -> Row:
        at = Scribe.at + timedelta(seconds=second)
        return Row(site=site, ts=at, kind=kind, name=name, pair="orders-1", **counted)

    rows = [row(second, "site", role) for role, first, last in spells for second in range(int(first), int(last) + 1)]
    write([*rows, row(spells[0][1], "queue", "orders.in", depth=1)], dr_ctl.folder / "history")


def told(dr_ctl: Shell) -> list[dict[str, Any]]:
    ended = dr_ctl("history", "--json")
    assert ended.code == 0, ended.document
    turns: list[dict[str, Any]] = ended.document["data"]["history"]
    return turns


def failed_over(path: Path) -> None:
    """London was lost; Paris lets clients in 5 s after the run began."""
    run = Scribe(path).begin(replace(scribe.plan(ask=Ask("failover", "paris", reason="INC-7")), source="london"))
    run.did("observe", 3.0).did("check", 1.5).start("activate")
    run.sent("activate", call("open acceptor clients at paris", "paris"), took=0.5).stop("activate")
    run.end(0, "ok", "paris serves", pairs=[{"name": "orders-1", "serving": "paris"}], command="failover")


@pytest.mark.parametrize(
    ("code", "outcome", "served", "serving", "known", "left"),
    [
        (0, "ok", {"orders-1": "london"}, "london", True, ""),
        (0, "ok", {"orders-1": "london", "orders-2": "paris"}, "london and paris", True, ""),
        (0, "ok", {"orders-1": "london", "orders-2": None}, "london", True, "; orders-2 served nowhere"),
        (0, "ok", {"orders-1": None}, None, True, ""),
        (22, "unknown", {"orders-1": None}, None, False, ""),  # not known is no end without service
    ],
    ids=["the other serves", "each a part", "one pair nowhere", "none", "not known"],
)
def test_who_serves_after_a_fence_is_what_its_result_says(
    dr_ctl: Shell, code: int, outcome: str, served: dict[str, str | None], serving: str | None, known: bool, left: str
) -> None:
    steps = (PlannedStep(1, "fence", "paris", "clients out"),)
    run = Scribe(dr_ctl.run())
    run.begin(replace(scribe.plan(ask=Ask("fence", "london"), steps=steps), source="paris", serving=("london",)))
    run.start("fence").sent("fence", call("close acceptor clients at paris", "paris"), took=0.5).stop("fence")
    pairs = [{"name": name, "serving": site} for name, site in served.items()]
    run.end(code, outcome, "paris is fenced", pairs=pairs, command="fence")

    [turn] = told(dr_ctl)

    assert (turn["serving"], turn["known"]) == (serving, known)
    assert turn["text"].endswith(f"({NAME}){left}")
    assert ("  not known  " in dr_ctl("history").out.splitlines()[1]) is not known


@pytest.mark.parametrize(("lost", "at_least"), [("down", 12.0), ("unknown", None)])
def test_a_failover_was_out_since_the_site_was_seen_to_serve_no_more(
    dr_ctl: Shell, lost: str, at_least: float | None
) -> None:
    """One that gave no answer was not seen to."""
    dr_ctl.settings()
    failed_over(dr_ctl.run())
    looks(dr_ctl, "london", ("serving", -60, -8), (lost, -7, 60))
    looks(dr_ctl, "paris", ("standby", -60, 4), ("serving", 6, 60))

    before, turn = told(dr_ctl)[-2:]

    assert (turn["run"], turn["at"]) == (NAME, "2026-11-21T02:00:05.000Z")
    assert turn["out_s"] == {"at_least": at_least, "at_most": 13.0}
    if at_least:
        assert (before["serving"], before["at"]) == (None, "2026-11-21T01:59:53.000Z")
        assert "12 s to 13 s" in dr_ctl("history").out


def test_a_pause_of_the_looks_is_no_outage_and_a_file_that_is_torn_is_named(dr_ctl: Shell) -> None:
    dr_ctl.settings()
    looks(dr_ctl, "london", ("serving", -60, 0), ("unknown", 2, 9), ("serving", 900, 930))
    path = next((dr_ctl.folder / "history").glob("date=*/site=london/*.parquet"))
    path.with_name("torn.parquet").write_bytes(path.read_bytes()[:100])

    ended = dr_ctl("history", "--json")

    assert ended.ids == ["DR-RPO-002"]
    assert [turn["serving"] for turn in ended.document["data"]["history"]] == ["london"]
