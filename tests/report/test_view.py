"""The page's values, for runs that ended in every way, and for those that did not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.clock import stamp
from dr_ctl.core.loose import moment, number
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.engine.states import StepEvent
from dr_ctl.report.reading import read_run
from dr_ctl.report.story import Mark
from dr_ctl.report.values import clock, count, seconds
from dr_ctl.report.verdict import Tone
from dr_ctl.report.view import Page, view
from tests.report import scribe
from tests.report.scribe import Scribe, call, flows, plan


def page_of(run: Scribe) -> Page:
    return view(read_run(run.files))


def plain(told: str) -> str:
    """Without the spaces that hold figures and units together."""
    return told.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ")


def facts(told: tuple[Any, ...]) -> dict[str, str]:
    return {fact.name: plain(fact.text) for fact in told}


@pytest.mark.parametrize(
    ("told", "written"),
    [(None, "not known"), (0, "0 s"), (0.0001, "under 1 ms"), (0.25, "250 ms"), (300, "5 min"), (61, "1 min 1 s")],
)
def test_seconds_for_people(told: object, written: str) -> None:
    assert plain(seconds(told)) == written


@pytest.mark.parametrize(("told", "written"), [(None, "not known"), (0, "0"), (12345, "12 345"), (True, "not known")])
def test_counts_for_people(told: object, written: str) -> None:
    assert plain(count(told)) == written


def test_odd_json_is_not_known() -> None:
    assert number(float("inf")) is None
    assert moment("yesterday") is None
    assert moment(7) is None


def test_a_run_that_went_well(tmp_path: Path) -> None:
    page = page_of(scribe.done(tmp_path))

    assert page.title == "Swapover from london to paris"
    assert (page.verdict.tone, page.verdict.exit_code) == (Tone.GOOD, "0")
    assert [(unit.name, unit.serving) for unit in page.verdict.units] == [("orders-1", "paris")]
    assert plain(page.outage.figure) == "4.00 s"
    assert "when the fence of london began" in page.outage.sentence
    assert "Delivery had stopped 2.00 s before that fence" in plain(page.outage.sentence)
    assert plain(page.calls_sentence) == "3 calls went out: 3 done"
    assert facts(page.asked)["Begun"] == "2026-11-21T02:00:00.000Z"
    assert facts(page.asked)["Timeout of the drain"] == "as the settings say"
    assert facts(page.journal)["Seal in result.json"] == "the same count and last hash"
    assert page.problems == ()
    assert page.not_begun == ()


def test_a_take_in_tells_how_long_it_held_delivery(tmp_path: Path) -> None:
    told = scribe.plan(ask=Ask("reinstate", "london"), steps=(PlannedStep(1, "reinstate", "paris", "residue in"),))
    held, freed = (replace(scribe.call("orders at paris", "paris"), goal=goal) for goal in (Goal.PAUSE, Goal.RESUME))
    run = scribe.Scribe(tmp_path, plan=told).begin().start("reinstate").sent("reinstate", held, took=0.5).let(4)
    run.sent("reinstate", freed, took=0.5).let(1).stop("reinstate").end(
        0, "ok", "london is taken in", command="reinstate"
    )

    page = page_of(run)

    assert plain(page.outage.figure) == "none; no delivery for 5.00 s"
    assert "none got a message while the lost site's residue came in" in page.outage.sentence


def test_time_line_of_a_run_that_went_well(tmp_path: Path) -> None:
    (chapter,) = page_of(scribe.done(tmp_path)).chapters

    assert [row.label for row in chapter.rows][:3] == ["01 observe", "02 check", "03 estimate"]
    assert chapter.rows[2].mark is Mark.NOT_NEEDED
    fence = chapter.rows[5]
    assert (fence.label, plain(fence.took), fence.began) == ("06 fence", "500 ms", "02:00:03.500Z")
    # 7.9 s in all: the fence begins at 3.5, the point of no return lies at 7.0, the activation ends at 7.5.
    assert fence.bar.left == pytest.approx(100 * 3.5 / 7.9, abs=0.01)
    assert chapter.no_return == pytest.approx(100 * 7.0 / 7.9, abs=0.01)
    assert chapter.band is not None
    assert chapter.band.left + chapter.band.width == pytest.approx(100 * 7.5 / 7.9, abs=0.01)
    assert not chapter.band.after
    assert all(0 <= row.bar.left <= row.bar.left + row.bar.width <= 100.001 for row in chapter.rows)


def test_drain_timeout_and_its_undo(tmp_path: Path) -> None:
    page = page_of(scribe.undone(tmp_path))

    assert page.verdict.tone is Tone.UNDONE
    assert page.verdict.words == (
        "Not moved from london to paris, because the drain did not finish in time: put back, and verified"
    )
    assert len(page.chapters) == 1
    rows = page.chapters[0].rows[-3:]
    assert [(row.label, row.mark) for row in rows] == [
        ("07 drain", Mark.REFUSED),
        ("06 undo fence", Mark.UNDONE),
        ("05 undo quiesce", Mark.UNDONE),
    ]
    assert "when the fence was undone: 61.3 s" in page.outage.sentence
    assert page.not_begun == ("08 verify", "09 point of no return", "10 activate", "11 probe")
    drain = page.charts[-1]
    assert "The link of london was not attached in 20 of 40 samples." in drain.caption
    assert plain(drain.lines[0].course) == "5 000 → 4 220"


def test_an_undo_that_failed_is_not_called_undone(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().to_fence().start("drain").stop("drain", StepEvent.FAILED, "paris is open")
    run.undo("fence", 0.5, StepEvent.UNDO_FAILED, "paris is open: london stays closed")
    run.end(23, "stranded", "stranded", pairs=[{"name": "orders-1", "serving": None}], undone=False)
    page = page_of(run)
    assert page.verdict.tone is Tone.BAD
    assert page.verdict.units[0].serving == "no site was seen to serve it"
    assert page.chapters[0].rows[-1].mark is Mark.NOT_UNDONE
    assert page.outage.figure == "no end written"


def test_what_is_delivered_later_than_clients_get_in_is_no_outage(tmp_path: Path) -> None:
    run = scribe.Scribe(tmp_path).begin().to_fence().drained().did("verify", 1.0).did("point-of-no-return", 0)
    run.start("activate").let(0.5)
    let_in = run.at
    page = page_of(run.let(7.0).stop("activate", let_in_at=stamp(let_in)).end(0, "ok", "paris serves"))
    assert plain(page.outage.figure) == "4.00 s"
    assert f"to {clock(let_in)}, when paris let them in." in page.outage.sentence
    assert f"What was held back there is delivered since {clock(run.at)}." in page.outage.sentence


def test_resumed_run_has_two_parts_and_one_outage(tmp_path: Path) -> None:
    page = page_of(scribe.resumed(tmp_path))

    first, second = page.chapters
    assert (first.title, second.title) == ("Part 1 of 2: begun", "Part 2 of 2: resumed")
    assert plain(second.gap) == "Nothing was written for 1 h."
    assert first.rows[-1].mark is Mark.NO_END
    assert first.rows[-1].bar.after
    assert first.band is not None
    assert second.band is not None
    assert (first.band.before, first.band.after) == (False, True)
    assert (second.band.before, second.band.after) == (True, False)
    # The executor of the second part knows only of its own stretch; clients were out for the whole of it.
    assert plain(page.outage.figure) == "1 h"
    assert ": 3605.4 s" in page.outage.sentence
    assert plain(page.took) == "9.30 s"


def test_run_that_was_cut_off(tmp_path: Path) -> None:
    page = page_of(scribe.cut_off(tmp_path))

    assert (page.verdict.tone, page.verdict.outcome) == (Tone.OPEN, "open")
    assert "`dr-ctl abort` undoes it" in page.verdict.advice
    assert page.problems == ("the last line of the journal is torn, as a crash leaves it: it is left out",)
    row = page.calls[0].rows[0]
    assert (row.outcome, row.text, row.took) == ("unknown", "the journal holds no result", "not known")
    assert page.outage.figure == "no end written"
    assert page.findings_note.startswith("The run has not ended")
    assert [finding.id for finding in page.findings] == ["DR-TLS-001"]


def test_an_open_run_whose_activating_call_went_out_is_not_offered_an_undo(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().to_fence().start("activate")
    run.journal.intents(run.step("activate"), [call("open", "paris")])
    page = page_of(run.close())
    assert "cannot be undone" in page.verdict.advice
    assert "abort" not in page.verdict.advice


def test_abort_by_another_process_is_a_part_of_its_own(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().to_fence().start("drain").let(1).sample("drain", flows(9)).close()
    run = run.again().let(60).undo("fence", 0.5).undo("quiesce", 0.1)
    run.end(0, "ok", "aborted; undone: london serves again", command="abort", undone=True)
    page = page_of(run)
    assert [chapter.title for chapter in page.chapters] == ["Part 1 of 2: begun", "Part 2 of 2: aborted"]
    assert (page.verdict.tone, page.verdict.words[:8]) == (Tone.UNDONE, "Aborted:")


def test_signal_is_on_the_time_line(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().to_fence()
    run.journal.signal("interrupted")
    run.undo("fence", 0.5).end(130, "interrupted", "stopped by a signal; undone", undone=True)
    page = page_of(run)
    assert page.verdict.words == "Stopped by a signal; undone"
    assert "signal: interrupted" in [row.label for row in page.chapters[0].rows]
    assert len(page.chapters) == 1


def test_a_failover_does_not_say_that_clients_were_out_only_since_it_began(tmp_path: Path) -> None:
    asked = scribe.plan()
    run = Scribe(tmp_path)
    run.begin(replace(asked, ask=replace(asked.ask, operation="failover", accept_loss=500, reason="london burns")))
    run.to_fence().activated().end(0, "ok", "paris serves; at most 5 message(s) may be lost")

    page = page_of(run)

    assert page.outage.figure == "not known"
    assert "since london was lost" in page.outage.sentence
    asked_for = {fact.name: fact.text for fact in page.asked}
    assert asked_for["Loss accepted"] == "500"
    assert facts(page.of_what)["Reason, or number of the change"] == "london burns"
    assert "Timeout of the drain" not in asked_for


def test_no_fence_no_outage(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().did("observe", 0.1).start("check").stop("check", StepEvent.FAILED, "both serve")
    run.end(10, "precheck_failed", "both serve; nothing was changed", undone=True)
    page = page_of(run)
    assert page.outage.figure == "none"
    assert page.calls == ()
    assert page.calls_sentence == "none went out"
    assert page.charts == ()
    assert page.chapters[0].band is None


def test_never_begun(tmp_path: Path) -> None:
    run = Scribe(tmp_path).close()
    run.files.journal.unlink()
    page = page_of(run)
    assert page.verdict.words == "Never begun"
    assert page.title == scribe.NAME
    assert page.chapters == ()


def test_a_line_that_was_altered_ends_what_is_believed(tmp_path: Path) -> None:
    run = scribe.done(tmp_path)
    lines = run.files.journal.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[4] = lines[4].replace("check ended", "check went well")
    run.files.journal.write_text("".join(lines), encoding="utf-8")
    page = page_of(run)
    assert page.problems[0].startswith("line 5 of the journal does not fit")
    assert facts(page.journal)["Entries"] == "4"
    assert facts(page.journal)["Seal in result.json"].startswith("ANOTHER")


def test_end_without_result_is_taken_from_the_journal(tmp_path: Path) -> None:
    run = scribe.done(tmp_path)
    run.files.result.unlink()
    page = page_of(run)
    assert page.verdict.exit_code == "0"
    assert page.problems == ("the journal holds the end of the run, but result.json was not written",)


def test_a_clock_that_went_back_is_told(tmp_path: Path) -> None:
    page = page_of(Scribe(tmp_path).begin().did("observe", 1).let(-30).did("check", 1).close())
    assert facts(page.journal)["The clock went back"].startswith("at entry 4:")


UNREAD = {"outflow": None, "pending": None}


@pytest.mark.parametrize(
    ("samples", "note", "caption"),
    [
        ([flows(900, 4)],
         "Only 1 sample, too few for a curve.; london: outflow 900, paris: not settled 4; all else 0.", ""),
        # A drain that was empty all along has no curve.
        ([flows(0)] * 5, "5 samples: 0 every time. There is no curve to draw.", ""),
        # A look without an answer is a gap and not a zero.
        ([flows(300), flows(200), {**flows(0), "london": {"unknown": "timed out"}}, flows(100), flows(50)],
         "", "london did not answer in 1 of 5 samples.; On average 125 a second."),
        # A figure that was never read is not told as zero.
        ([{**flows(left), "paris": {**UNREAD, "attached": None}} for left in (300, 200, 100)],
         "0 in every sample: london: not settled. Never read: paris: outflow, paris: not settled.", ""),
        ([{"paris": UNREAD}] * 3, "3 samples: no figure was read.", ""),
    ],
)  # fmt: skip
def test_what_is_drawn_of_a_wait_and_what_is_said(tmp_path: Path, samples: Any, note: str, caption: str) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    for each in samples:
        run.sample("drain", each).let(0.5)
    (chart,) = page_of(run.stop("drain").close()).charts
    assert all(words in chart.note for words in note.split("; ", 1))
    assert all(words in chart.caption for words in caption.split("; "))
    assert "not attached" not in chart.caption
    assert [(len(line.pieces), len(line.dots)) for line in chart.lines] == (
        [(2, 4)] if caption else [(1, 3)] if "Never read" in note else []
    )


def test_many_samples_keep_their_peak(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    for place in range(3000):
        run.sample("drain", flows(99_000 if place == 1234 else 3000 - place)).let(0.02)
    (chart,) = page_of(run.stop("drain").close()).charts
    points = chart.lines[0].pieces[0].split()
    assert len(points) < 500
    assert min(float(point.split(",")[1]) for point in points) == pytest.approx(1, abs=0.1)
    assert plain(chart.lines[0].course) == "3 000 → 1, at most 99 000"


def quantity(**told: Any) -> dict[str, Any]:
    return {"now": None, "p50": None, "p95": None, "p99": None, "max": None, "ci95": {}} | told


def estimate() -> dict[str, Any]:
    total = {
        "loss": quantity(now=3, p99=1890, ci95={"p99": [1200, 2600]}),
        "age_s": quantity(now=0.4),
        "duplicates": quantity(now=0),
        "drain_s": quantity(),
        "horizon": {"seconds": 300.0, "loss": quantity(p50=7), "age_s": quantity()},
        "unexplained": 0.03,
    }
    return {
        "site": "london",
        "read_at": "2026-11-21T02:00:00.000Z",
        "stale_s": 3.2,
        "window": {"from": "A", "to": "B", "samples": 1209, "covered_s": 60.0},
        "verdict": "missed",
        "total": total,
        "flows": [{"from": "london", "pair": "orders-1", "name": "*", **total}],
        "classes": [{"queues": ["audit.#"], "verdict": "met", **total}],
    }


def test_estimate_says_not_known_and_never_zero_for_null(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().start("estimate").stop("estimate", estimate=estimate()).close()

    told = page_of(run).forecast

    assert told is not None
    assert plain(told.sentence).startswith(
        "If london died: the objectives are missed. From 1 209 samples between A and B"
    )
    rows = {plain(row.name): [plain(cell.figure) for cell in row.cells] for row in told.rows}
    assert rows["Loss, messages"] == ["3", "not known", "not known", "1 890", "not known"]
    assert rows["Duplicates, messages"][0] == "0"
    assert rows["Time to drain"] == ["not known"] * 5
    assert rows["Loss within the next 5 min, messages"][1] == "7"
    assert plain(told.rows[0].cells[3].interval) == "1 200 to 2 600"
    assert [scope.name for scope in told.scopes] == ["audit.#", "london/orders-1: all queues"]
    assert told.note.startswith("3% of the outflow")


def test_bounds_of_a_failover(tmp_path: Path) -> None:
    bounds = {
        "lost": {"at_most": 12, "read_at": "2026-11-21T02:00:00.000Z"},
        "duplicates": {"at_most": None, "read_at": None},
        "queues": [{"name": "orders", "lost": 12, "duplicates": None}],
    }

    page = page_of(Scribe(tmp_path).begin().end(0, "ok", "paris serves", bounds=bounds))

    assert page.bounds is not None
    assert page.bounds.rows[1] == ("Duplicates, at most", "not known", "not known")
    assert page.bounds.queues == (("orders", "12", "not known"),)
    assert page.verdict.tone is Tone.OWED
    assert page.verdict.words.endswith(
        "; at most 12 message(s) may be lost, an unknown number of duplicates are possible"
    )


def test_a_failover_that_lost_nothing_is_as_good_as_a_move(tmp_path: Path) -> None:
    bounds = {"lost": {"at_most": 0}, "duplicates": {"at_most": 0}, "queues": []}
    assert page_of(Scribe(tmp_path).begin().end(0, "ok", "paris serves", bounds=bounds)).verdict.tone is Tone.GOOD


def test_who_began_it_where_the_journal_says_so(tmp_path: Path) -> None:
    run = Scribe(tmp_path)
    told = {"user": "ada", "host": "ops-1", "version": "0.1.0", "command": "dr-ctl swapover --to paris"}
    run.journal._append([("run", None, None, None, {"plan": plan().as_json(), "by": told})])
    assert facts(page_of(run.close()).of_what)["By"] == "ada"


def test_it_names_installation_settings_brokers_versions_and_who(tmp_path: Path) -> None:
    basis: dict[str, Any] = {"brokers": {"london": {"orders-1": {"version": "2.44.0"}}, "paris": {}}}
    run = Scribe(tmp_path).begin(plan(basis=basis)).end(0, "ok", "paris serves")
    assert facts(page_of(run).of_what) == {
        "Run": scribe.NAME,
        "Installation": "orders",
        "Topology": "artemis-mirror",
        "Settings": f"dr-ctl.yaml, SHA-256 `{'5e' * 32}`",
        "Brokers of london": "orders-1 at https://london-1:8161, version 2.44.0",
        "Brokers of paris": "orders-1 at https://paris-1:8161, version not known",
        "Version of dr-ctl": "0.1.0",
        "Command": "`dr-ctl swapover --to paris --yes --reason CHG-4711`",
        "By": "ada",
        "On host": "ops-1",
        "Reason, or number of the change": "CHG-4711",
    }


def test_who_undid_it_stands_beside_who_began_it_and_an_older_journal_does_not_say(tmp_path: Path) -> None:
    told = facts(page_of(scribe.aborted(tmp_path / "aborted")).of_what)
    assert (told["By"], told["On host"]) == ("ada; then bob", "ops-1; then ops-2")
    assert told["Command"].endswith("; then `dr-ctl abort --yes`")
    run = Scribe(tmp_path / "older")
    run.journal.run(plan(), {})
    told = facts(page_of(run.close()).of_what)
    assert {told[key] for key in ("Installation", "By", "Command")} == {"the journal does not say"}


def judged(page: Page) -> list[tuple[str, str, str, str]]:
    return [(plain(row.objective), plain(row.result), row.judged, row.sign) for row in page.measured]


@pytest.mark.parametrize(
    ("operation", "code", "outcome", "undone", "says"),
    [
        ("swapover", 0, "ok", None, "Moved from london to paris; verified"),
        ("failback", 0, "ok", None, "Moved from london to paris; verified"),
        ("failover", 0, "ok", None, "Failed over from london to paris; verified"),
        ("reinstate", 0, "ok", None, "Took paris in again; verified"),
        ("fence", 0, "ok", None, "Fenced london; verified"),
        ("swapover", 20, "reverted", True, "Not moved from london to paris: put back, and verified"),
        ("swapover", 21, "incomplete", None, "Moved from london to paris, but something is left to do"),
        ("failover", 22, "unknown", None, "Not known to have failed over from london to paris: the end could not be"),
        ("failover", 23, "stranded", False, "Not failed over from london to paris: nobody is served, and it could not"),
        ("failover", 11, "loss_refused", None, "Not failed over from london to paris: refused: more may be lost"),
    ],
)
def test_the_headline_says_what_happened(
    tmp_path: Path, operation: str, code: int, outcome: str, undone: bool | None, says: str
) -> None:
    more = {} if undone is None else {"undone": undone}
    run = Scribe(tmp_path).begin(plan(ask=Ask(operation, "paris"))).end(code, outcome, "so it ended", **more)
    assert page_of(run).verdict.words.startswith(says)


class TestObjectives:
    def test_a_move_by_its_time_and_one_that_was_put_back_kept_none(self, tmp_path: Path) -> None:
        runs = [Scribe(tmp_path / name).begin().to_fence() for name in ("back", "long")]
        back = runs[0].undo("fence", 0.5).undo("quiesce", 0.1)
        back.end(20, "reverted", "refused; undone: london serves again", outage_s=4.0, undone=True)
        long = runs[1].drained(200.0).activated().end(0, "ok", "paris serves", outage_s=202.0)
        pages = [page_of(each) for each in (scribe.done(tmp_path / "done"), long, back)]
        assert judged(pages[0]) == [("within 2 min", "4.00 s", "kept", "good")]
        assert judged(pages[1]) == [("within 2 min", "3 min 22 s", "not kept", "owed")]
        assert [each[2:] for each in judged(pages[2])] == [("not kept: put back", "owed")]
        assert [each.verdict.tone for each in pages[:2]] == [Tone.GOOD, Tone.OWED]
        assert plain(pages[1].verdict.words).endswith("; clients were out for longer than the 2 min planned")

    @pytest.mark.parametrize(
        ("at_least", "at_most", "figure", "said"),
        [
            (2.7, 3.0, "at least 2.70 s, at most 3.00 s", ("kept", "good")),
            (100, 140, "at least 1 min 40 s, at most 2 min 20 s", ("cannot tell", "open")),
            (130, 140, "at least 2 min 10 s, at most 2 min 20 s", ("not kept", "owed")),
            (None, 140, "at most 2 min 20 s", ("cannot tell", "open")),
            (130, None, "at least 2 min 10 s", ("not kept", "owed")),
            (None, None, "not known", ("cannot tell", "open")),
        ],
    )
    def test_a_failover_by_what_looks_tell(
        self, tmp_path: Path, at_least: float | None, at_most: float | None, figure: str, said: tuple[str, str]
    ) -> None:
        looks = {"last_served": "2026-11-21T01:59:59.000Z", "seen_down": "2026-11-21T01:59:59.300Z"}
        run = Scribe(tmp_path).begin(plan(ask=Ask("failover", "paris"))).activated()
        page = page_of(run.end(0, "ok", "paris serves", out_s={"at_least": at_least, "at_most": at_most, **looks}))

        assert plain(page.outage.figure) == figure
        assert judged(page)[0] == ("within 2 min", figure, *said)
        assert page.outage.sentence == (
            "London was last seen to serve at 01:59:59.000Z, first seen down at 01:59:59.300Z; "
            "let in at 02:00:01.500Z by paris."
        )

    @pytest.mark.parametrize(
        ("lost", "accepted", "said"),
        [
            ({"at_most": 0}, None, ("at most 0", "at most 0", "kept", "good")),
            ({"at_most": 94, "likely": 2}, 100,
             ("at most 0", "at most 94, likely 2", "not kept; a person accepted 100 messages", "owed")),
            ({"at_most": 94, "likely": 0}, None, ("at most 0", "at most 94, likely 0", "cannot tell", "open")),
            ({"at_most": None, "likely": None}, "unknown",
             ("at most 0", "not known", "cannot tell; a person accepted unknown", "open")),
        ],
    )  # fmt: skip
    def test_a_loss_against_what_is_allowed(
        self, tmp_path: Path, lost: dict[str, Any], accepted: Any, said: tuple[str, ...]
    ) -> None:
        run = Scribe(tmp_path).begin(plan(ask=Ask("failover", "paris", accept_loss=accepted)))
        page = page_of(run.end(0, "ok", "paris serves", bounds={"lost": lost, "duplicates": {"at_most": 3}}))
        assert judged(page)[-2:] == [said, ("none is set", "at most 3", "no objective", "info")]


def test_a_step_that_a_signal_stopped_was_interrupted_and_not_refused(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().to_fence().start("drain")
    run.stop("drain", StepEvent.FAILED, "stopped by a signal")
    [drain] = [row for row in page_of(run.close()).chapters[0].rows if row.label == "07 drain"]
    assert (drain.mark, drain.mark.value) == (Mark.INTERRUPTED, "interrupted")


def test_a_run_that_was_gone_on_with_or_undone_by_another_says_so_beside_its_verdict(tmp_path: Path) -> None:
    [resumed], [undone] = (
        page_of(each).verdict.notes for each in (scribe.resumed(tmp_path / "r"), scribe.aborted(tmp_path / "a"))
    )
    assert plain(resumed) == (
        "The run was interrupted, and gone on with (ada): nothing was written for 1 h, from 02:00:05.000Z to "
        "03:00:05.000Z."
    )
    assert undone.startswith("The run was undone by another process (bob): nothing was written for ")


def test_the_sentence_of_an_estimate_stands_under_its_own_heading(tmp_path: Path) -> None:
    figures = {key: {"now": 1} for key in ("loss", "age_s", "duplicates", "drain_s")}
    run = Scribe(tmp_path).begin()
    run.did("estimate", 0.1, text="if london died: " + "a sentence " * 30, estimate={"total": figures})
    page = page_of(run.close())
    [row] = page.chapters[0].rows
    assert row.text == "told below, under its own heading"
    assert page.forecast is not None


def test_findings_are_told_once_and_by_weight(tmp_path: Path) -> None:
    info = {"id": "A", "severity": "info", "text": "a", "remedy": ""}
    error = {"id": "B", "severity": "error", "text": "b", "remedy": "Look."}
    page = page_of(Scribe(tmp_path).begin().end(10, "precheck_failed", "no", [info, error, info]))
    assert [finding.id for finding in page.findings] == ["B", "A"]
