"""Histories whose answer is known by hand: nothing is `met` that was not read, and nothing unknown passes for zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dr_ctl.rpo.core.quantities import Quantity
from dr_ctl.rpo.estimate.result import EstimateAnswer, LossClass, LossLimit, Objectives, Verdict
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import at
from tests.rpo.test_estimate import estimated
from tests.rpo.test_transforms import outflow, queue

NOTHING_MAY_BE_LOST = Objectives(LossLimit(), (LossClass(("payments.#",), LossLimit(messages=0, age_s=1.0)),))


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., EstimateAnswer]:
    def ask(rows: Iterable[Row], now_s: float, **more: object) -> EstimateAnswer:
        write(rows, tmp_path)
        return estimated(tmp_path, now_s=now_s, **more)

    return ask


Ask = Callable[..., EstimateAnswer]


def site(second: float, role: str = "serving", *, name: str = "london", pair: str | None = "p") -> Row:
    return Row(site=name, ts=at(second), pair=pair, kind="site", name=role)


def look(second: float, *, put: int, shipped: int, pair: str = "p") -> list[Row]:
    """A queue that nobody consumes from, and its outflow."""
    told = queue(pair, "payments.a", second, added=put, acked=0)
    return [site(second, pair=pair), told, outflow(pair, second, put=put, shipped=shipped, kind="mirror")]


def figures(told: Quantity) -> tuple[object, ...]:
    return told.now, told.p50, told.p95, told.p99, told.max


UNKNOWN = (None,) * 5


def test_a_class_whose_queues_were_never_read_is_not_met(asked: Ask) -> None:
    rows = [[site(s), outflow("p", s, put=10 * s, shipped=0, kind="mirror")] for s in range(0, 2010, 10)]

    answer = asked([row for each in rows for row in each], 2000, objectives=NOTHING_MAY_BE_LOST)

    assert answer.verdict is Verdict.UNKNOWN
    assert answer.estimate is not None
    assert figures(answer.estimate.classes[0].figures.loss) == UNKNOWN
    assert [each.id for each in answer.findings if "payments.#" in each.text] == ["DR-RPO-025"]


def test_a_class_whose_queue_is_read_no_more_is_bounded_by_the_outflow(asked: Ask) -> None:
    rows = [row for s in range(0, 2410, 10) for row in look(s, put=s, shipped=min(s, 300))]
    rows = [row for row in rows if row.kind != "queue" or row.ts <= at(600)]

    answer = asked(rows, 2400, objectives=NOTHING_MAY_BE_LOST)

    assert answer.verdict is Verdict.MISSED
    assert answer.estimate is not None
    assert answer.estimate.classes[0].figures.loss.now == 2100
    assert answer.estimate.total.loss.now == 2100


def test_a_queue_that_was_removed_loses_nothing_where_the_others_explain_the_outflow(asked: Ask) -> None:
    rows = []
    for s in range(0, 2410, 10):
        rows += [site(s), queue("p", "orders.a", s, added=s, acked=0)]
        rows += [queue("p", "payments.a", s, added=5, acked=5)] if s <= 600 else []
        rows.append(outflow("p", s, put=s + 5, shipped=max(5, s - 50), kind="mirror"))

    answer = asked(rows, 2400, objectives=NOTHING_MAY_BE_LOST)

    assert answer.estimate is not None
    assert figures(answer.estimate.classes[0].figures.loss) == (0, 0, 0, 0, 0)
    assert answer.estimate.total.loss.now == 55


@pytest.mark.parametrize(("until", "verdict"), [(2360, Verdict.UNKNOWN), (4000, Verdict.MISSED)])
def test_looks_that_come_late_meet_no_objective(asked: Ask, until: int, verdict: Verdict) -> None:
    """The broker is buried for some time, and answers every 90 s instead of every 10."""
    rows, s = [], 0
    while s < 6000:
        buried = 2000 <= s < until
        rows += look(s, put=10 * s, shipped=20_000 if buried else 10 * s)
        s += 90 if buried else 10

    answer = asked(rows, 6000, objectives=Objectives(LossLimit(messages=200)))

    assert answer.verdict is verdict
    told = [each.text for each in answer.findings if each.id == "DR-RPO-024"]
    assert verdict is Verdict.MISSED or "because looks came late" in told[0]


def test_looks_that_become_rarer_are_covered_time_again(asked: Ask) -> None:
    times = [*range(0, 3600, 5), *range(3600, 7201, 60)]

    answer = asked([row for s in times for row in look(s, put=s, shipped=s if s < 3600 else max(3600, s - 600))], 7200)

    assert answer.estimate is not None
    assert answer.estimate.total.loss.now == 600
    assert answer.estimate.total.loss.p99 is not None
    assert answer.estimate.total.loss.p99 >= 600


def test_drain_is_not_known_while_a_backlog_has_no_rate(asked: Ask) -> None:
    answer = asked([row for s in range(0, 1010, 10) for row in look(s, put=max(0, s - 500), shipped=0)], 1000)

    assert answer.estimate is not None
    told = answer.estimate.total.drain_s
    assert figures(told) == (None, 0.0, None, None, None)


def test_drain_goes_by_the_rate_of_the_link_not_of_the_traffic(asked: Ask) -> None:
    """Some fifteen are always on the wire; a quiet night ships one a second; the link can do five thousand."""
    rows, put, shipped = [], 0, 0
    for k in range(1000):
        put += 10 if 400 <= k < 600 else 3000
        shipped = shipped if 800 <= k < 811 else max(shipped, min(put - 15, shipped + 50_000))
        rows += look(10 * k, put=put, shipped=shipped)

    answer = asked(rows, 9990)

    assert answer.estimate is not None
    assert answer.estimate.total.drain_s.max == pytest.approx(33_015 / 3600, rel=0.2)


@pytest.mark.parametrize("pair", ["p", None])
def test_a_role_without_a_pair_is_that_of_all(asked: Ask, pair: str | None) -> None:
    rows = []
    for s in range(0, 1010, 10):
        waits = s < 800
        rows += [site(s, "standby" if waits else "serving", pair=pair), *look(s, put=1000 + s, shipped=500 + s)[1:]]
        rows += [site(s, "serving" if waits else "standby", name="paris", pair=pair)]

    answer = asked(rows, 1000)

    assert answer.estimate is not None
    assert (answer.estimate.site, answer.estimate.window.covered_s) == ("london", 200.0)


@pytest.mark.parametrize("last", [5, 495])
def test_nothing_is_met_by_a_few_looks(asked: Ask, last: int) -> None:
    rows = [row for s in range(0, last + 5, 5) for row in look(s, put=s, shipped=s)]

    answer = asked(rows, last, objectives=Objectives(LossLimit(messages=100, age_s=60)))

    assert answer.verdict is Verdict.UNKNOWN


def test_an_hour_of_looks_meets_an_objective_and_less_does_not(asked: Ask) -> None:
    rows = [row for s in range(0, 3605, 5) for row in look(s, put=s, shipped=s)]
    objectives = Objectives(LossLimit(messages=100, age_s=60))

    answer, less = asked(rows, 3600, objectives=objectives), asked((), 3600, objectives=objectives, until=at(3590))

    assert (answer.verdict, less.verdict) == (Verdict.MET, Verdict.UNKNOWN)
    assert answer.findings == ()


def test_many_excursions_tell_within_less_than_an_hour_that_an_objective_is_met(asked: Ask) -> None:
    """Within fifty minutes 250 short stalls, all alike: nobody needs an hour to see how much each loses."""
    rows = [row for s in range(3000) for row in look(s, put=10 * s, shipped=10 * (s - (s % 12 < 4)))]

    answer = asked(rows, 2999, objectives=Objectives(LossLimit(messages=100, age_s=60)))

    assert answer.verdict is Verdict.MET


@pytest.mark.parametrize("role", [None, "unknown", "sick"])
def test_time_without_an_answer_counts_as_above_every_limit(asked: Ask, role: str | None) -> None:
    """For 400 of 8000 seconds the broker answers nothing, and has caught up when it answers again."""
    rows = []
    for s in range(0, 8005, 5):
        if not 2003 <= s < 2403:
            rows += look(s, put=s, shipped=s)
        elif role is not None:
            rows.append(site(s, role))

    answer = asked(rows, 8000, objectives=Objectives(LossLimit(messages=100)))

    assert answer.estimate is not None
    assert answer.estimate.total.loss.p99 == 5
    assert answer.verdict is Verdict.UNKNOWN
    assert "DR-RPO-024" in [each.id for each in answer.findings]


def test_an_upper_bound_misses_no_objective(asked: Ask) -> None:
    """The link ships within the second; looks each minute cannot show it, and all of a minute may have been there."""
    rows = [row for s in range(0, 7260, 60) for row in look(s, put=10 * s, shipped=10 * s)]

    answer = asked(rows, 7200, objectives=Objectives(LossLimit(messages=100)))

    assert answer.estimate is not None
    assert (answer.estimate.total.loss.likely.p99, answer.estimate.total.loss.p99) == (0, 600)
    assert answer.verdict is Verdict.UNKNOWN


def test_a_minute_after_a_swapover_nothing_is_met(asked: Ask) -> None:
    rows = []
    for s in range(0, 3610, 10):
        rows += [*look(s, put=s, shipped=s)[1:], site(s, "serving" if s < 3550 else "standby")]
        there = max(0, s - 3550)
        rows += [replace(row, site="paris") for row in look(s, put=there, shipped=there)[1:]]
        rows += [site(s, "standby" if s < 3550 else "serving", name="paris")]

    answer = asked(rows, 3600, objectives=Objectives(LossLimit(messages=50)))

    assert answer.estimate is not None
    assert answer.estimate.site == "paris"
    assert answer.verdict is Verdict.UNKNOWN


def test_a_pair_that_is_gone_leaves_the_objective_unknown(asked: Ask) -> None:
    rows = [row for s in range(0, 4010, 10) for row in look(s, put=s, shipped=s, pair="p1")]
    rows += [row for s in range(0, 1000, 10) for row in look(s, put=s, shipped=s, pair="p2")]

    answer = asked(rows, 4000, objectives=Objectives(LossLimit(messages=100)))

    assert answer.verdict is Verdict.UNKNOWN
    assert "DR-RPO-024" in [each.id for each in answer.findings]


@pytest.mark.parametrize("kinds", [("mirror",), ("mirror", "acks")])
def test_a_first_stall_grows_at_the_usual_rate(asked: Ask, kinds: tuple[str, ...]) -> None:
    rows = []
    for s in range(0, 2000, 10):
        put = 10 * s
        rows += [site(s), queue("p", "a", s, added=put, acked=put)]
        rows += [
            outflow("p", s, put=put, shipped=put if s < 1950 or kind == "acks" else 19_400, kind=kind, name="a")
            for kind in kinds
        ]

    answer = asked(rows, 1990)

    assert answer.estimate is not None
    ahead = answer.estimate.total.horizon.loss.p99
    assert ahead is not None
    assert ahead >= 3000


def test_one_pair_that_has_moved_risks_nothing_and_the_other_counts(asked: Ask) -> None:
    rows = []
    for s in range(0, 2010, 10):
        rows += look(s, put=10 * s, shipped=max(0, 10 * s - 500), pair="p1")
        there = min(10 * s, 10_000)
        rows += [*look(s, put=there, shipped=there, pair="p2")[1:]]
        rows += [site(s, "standby" if s >= 1000 else "serving", pair="p2")]

    answer = asked(rows, 2000, site="london")
    since = asked((), 2000, site="london", since=at(1010))

    assert answer.estimate is not None
    assert since.estimate is not None
    assert answer.estimate.window.covered_s == 2000.0
    assert since.estimate.window.covered_s == 990.0
    assert since.estimate.total.loss.p99 is not None


def test_an_age_across_a_clock_that_was_put_back_is_at_least_that(asked: Ask) -> None:
    rows = []
    for k in range(200):
        clock = 10 * k - (20 if k >= 100 else 0)
        rows += [replace(row, ts=at(clock)) for row in look(0, put=10 * k, shipped=min(10 * k, 900))]

    answer = asked(rows, 1970)

    assert "DR-RPO-007" in [each.id for each in answer.findings]


def test_two_monitors_whose_clocks_differ_are_told(asked: Ask) -> None:
    rows = []
    for k in range(400):
        t, skew = 5 * k, 6 * (k % 2)
        rows += [replace(row, ts=row.ts - timedelta(seconds=skew)) for row in look(t, put=10 * t, shipped=10 * t)]

    answer = asked(rows, 2000, objectives=Objectives(LossLimit(messages=100_000)))

    assert answer.verdict is Verdict.UNKNOWN
    assert "DR-RPO-024" in [each.id for each in answer.findings]


def test_a_side_that_is_gone_leaves_out_no_later_look(asked: Ask) -> None:
    rows = []
    for s in range(0, 3010, 10):
        rows += [site(s), queue("p", "a", s, added=s, acked=s // 2)]
        rows.append(outflow("p", s, put=s, shipped=max(0, s - 50), kind="mirror"))
        rows += [outflow("p", s, put=s // 2, shipped=s // 2, kind="acks")] if s < 900 else []

    answer = asked(rows, 3000)

    assert answer.estimate is not None
    assert answer.estimate.read_at == at(3000)
    assert answer.estimate.total.loss.now == 50
    assert answer.estimate.total.duplicates.p99 is None


def test_more_classes_than_an_integer_has_bits(asked: Ask) -> None:
    classes = tuple(LossClass(("payments.#", f"other-{n}"), LossLimit(10**6)) for n in range(70))
    rows = [row for s in range(0, 7200, 20) for row in look(s, put=s, shipped=max(0, s - s % 60))]

    answer = asked(rows, 7200, objectives=Objectives(LossLimit(), classes))

    assert answer.estimate is not None
    total = answer.estimate.total.loss
    assert {each.figures.loss.likely.p99 for each in answer.estimate.classes} == {total.likely.p99}


def test_a_queue_that_is_gone_makes_nothing_of_the_outflow_lost(asked: Ask) -> None:
    """A queue of few messages lived for an hour beside a busy one; both counters have the noise of looks between. Later
    the link is down for a while, and consumers keep up."""
    rows: list[Row] = []
    shipped = 0
    for n in range(4 * 9000):
        s = n / 4
        sent, small = 5 * n + (7 * n) % 5, 3 * int(min(s, 3500))
        put = 2 * (sent + small)
        shipped = shipped if 6000 <= s < 6400 else put
        rows += [site(s), outflow("p", s, put=put, shipped=shipped)]
        for name, count in (("orders", sent), ("small", small)) if n % 20 == 0 else ():
            rows += [queue("p", name, s, added=count, acked=count)] if name == "orders" or s < 3500 else []

    answer = asked(rows, 9000)

    assert answer.estimate is not None
    total = answer.estimate.total
    assert total.unexplained == pytest.approx(0, abs=0.001)
    assert total.loss.likely.p99 is not None
    assert total.loss.likely.p99 <= 5
    assert total.loss.p99 is not None
    assert total.loss.p99 <= 200


def test_an_outage_of_the_link_in_which_consumers_keep_up_ages_nothing_likely(asked: Ask) -> None:
    rows = []
    for s in range(0, 8000, 5):
        rows += [site(s), queue("p", "payments.a", s, added=10 * s, acked=10 * s - 2)]
        rows.append(outflow("p", s, put=20 * s, shipped=20 * (2000 if 2000 <= s < 2400 else s)))

    answer = asked(rows, 8000, objectives=Objectives(LossLimit(age_s=30)))

    assert answer.estimate is not None
    age_s = answer.estimate.total.age_s
    assert age_s.likely.p99 is not None
    assert age_s.p99 is not None
    assert age_s.likely.p99 <= 5
    assert age_s.p99 > 300
    assert answer.verdict is Verdict.UNKNOWN
