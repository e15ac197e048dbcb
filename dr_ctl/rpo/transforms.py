"""From history rows to weighted histograms: DataFrame in, DataFrame out, and nothing else.

An outflow is first in, first out. What was ever put into it stands at `removed + depth`, what was ever shipped at
`removed`; the look at which the first stood where the second stands now *cuts* history: whatever was sent up to that
look is at the other site, whatever was sent later may not be. With A for sends and K for consumption of a queue:

    loss        sent since the cut, and no more than the queue held
    age         time since the cut, while anything is lost
    duplicates  consumed since the cut of the acknowledgements, among the messages that were shipped

Between two looks the truth moves; each figure is taken from the end of the interval that makes it larger (sends at the
end, cut at the start), so that it is never below the truth anywhere in between. Where a cut is not known (just after a
restart; a queue that has just appeared) the depth of the outflow is the bound.

The steps: `outflow_looks` > `queue_looks` > `with_cut` > `contributions` (per queue and interval) > `by_flow` >
`by_scope` > `histograms`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it F
from pyspark.sql import types as T  # noqa: N812

from dr_ctl.rpo.result import pattern_regex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from pyspark.sql import Column, DataFrame, SparkSession

HISTORY_SCHEMA: Final = T.StructType(
    [
        T.StructField("ts", T.TimestampType()),
        T.StructField("pair", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("depth", T.LongType()),
        T.StructField("delivering", T.LongType()),
        T.StructField("added", T.LongType()),
        T.StructField("removed", T.LongType()),
        T.StructField("acked", T.LongType()),
        T.StructField("oldest_ms", T.LongType()),
        T.StructField("pending", T.LongType()),
        T.StructField("link", T.BooleanType()),
        T.StructField("start", T.StringType()),
        T.StructField("date", T.StringType()),
        T.StructField("site", T.StringType()),
    ]
)
SHARED: Final = "*"
TOTAL: Final = "total"
CLASS: Final = "class:"
FLOW: Final = "flow:"
NOW: Final = 0
"""The number that stands for the last look itself; intervals between looks count from 1."""
GAP_POLLS: Final = 5
"""An interval longer than this many usual ones is a gap: not covered time."""
EXACT_BELOW: Final = 64
BUCKET_GROWTH: Final = 1.02
METRICS: Final = ("loss", "age_ms", "duplicates", "drain_ms")
COVERED: Final = "covered"
AGE_FLOOR: Final = "age_floor"
SENDS_KINDS: Final = ("mirror", "mixed")
ACKS_KINDS: Final = ("acks", "mixed")
US_PER_MS: Final = 1000
_SENDS: Final = ("sends_depth", "sends_added", "sends_shipped", "sends_put")
_ACKS: Final = ("acks_depth", "acks_added", "acks_shipped", "acks_put")


def read(
    spark: SparkSession,
    paths: Sequence[str],
    root: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Read history files below `root`. Directories give `date` and `site`, always as words."""
    frame = spark.read.schema(HISTORY_SCHEMA).option("basePath", root).parquet(*paths)
    if since is not None:
        frame = frame.where(F.col("ts") >= F.lit(since))
    if until is not None:
        frame = frame.where(F.col("ts") <= F.lit(until))
    return frame.select(*HISTORY_SCHEMA.fieldNames())


def roles(history: DataFrame) -> DataFrame:
    """Say when each site was last seen in each role."""
    return (
        history.where(F.col("kind") == "site")
        .groupBy("site", F.col("name").alias("role"))
        .agg(F.max("ts").alias("last"))
        .select("site", "role", _us("last").alias("last_us"))
    )


def outflow_looks(history: DataFrame) -> DataFrame:
    """One row per outflow and look: both directions side by side, numbered by look, cut into series by restarts.

    `sends_put` is where the newest thing put in stands, on the scale of `sends_shipped`. It never falls within a
    series: counters that were not read at quite the same instant err towards more under way.
    """
    sends, acks = F.col("kind").isin(*SENDS_KINDS), F.col("kind").isin(*ACKS_KINDS)
    counters = [
        F.max(F.when(side, F.col(column))).alias(f"{prefix}_{name}")
        for prefix, side in (("sends", sends), ("acks", acks))
        for column, name in (("depth", "depth"), ("added", "added"), ("removed", "shipped"))
    ]
    flow = Window.partitionBy("site", "pair", "flow").orderBy("ts")
    counted = ("sends_added", "sends_shipped", "acks_added", "acks_shipped")
    fell = reduce(
        lambda one, other: one | other, [F.coalesce(F.col(c) < F.lag(c).over(flow), F.lit(False)) for c in counted]
    )
    restarted = fell | ~F.col("start").eqNullSafe(F.lag("start").over(flow))
    so_far = flow.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    in_series = (
        Window.partitionBy("site", "pair", "flow", "series")
        .orderBy("ts")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    pair_looks = Window.partitionBy("site", "pair").orderBy("ts")
    pair_whole = Window.partitionBy("site", "pair").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    flow_whole = Window.partitionBy("site", "pair", "flow").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    read_sides = (
        history.where(F.col("kind").isin(*SENDS_KINDS, *ACKS_KINDS))
        .groupBy("site", "pair", F.col("name").alias("flow"), "ts")
        .agg(*counters, F.max("start").alias("start"), F.min("link").alias("link"))
        .withColumn("has_sends", F.max(F.col("sends_depth").isNotNull()).over(flow_whole))
        .withColumn("has_acks", F.max(F.col("acks_depth").isNotNull()).over(flow_whole))
        # A side that was not read at this look is not an empty one: the look is left out.
        .where(~F.col("has_sends") | F.col("sends_depth").isNotNull())
        .where(~F.col("has_acks") | F.col("acks_depth").isNotNull())
    )
    return (
        read_sides.withColumn("restarted", restarted.cast("int"))
        .withColumn("series", F.sum("restarted").over(so_far))
        .withColumn("sends_put", F.max(F.col("sends_shipped") + F.col("sends_depth")).over(in_series))
        .withColumn("acks_put", F.max(F.col("acks_shipped") + F.col("acks_depth")).over(in_series))
        .withColumn("n", F.dense_rank().over(pair_looks))
        .withColumn("last_n", F.max("n").over(pair_whole))
        .withColumn("last_us", F.max(_us("ts")).over(pair_whole))
        .select(
            "site",
            "pair",
            "flow",
            "n",
            _us("ts").alias("us"),
            "start",
            "series",
            "link",
            *_SENDS,
            *_ACKS,
            "last_n",
            "last_us",
        )
    )


def outflow_facts(outflows: DataFrame) -> DataFrame:
    """Per outflow: first and last look, the usual spacing, and how fast it ships when it has something to ship.

    The rate is the 10th percentile over intervals with a backlog and a link at both ends, in things per second.
    Intervals in which nothing was shipped are stalls, not a rate. None where there is no such interval.
    """
    flow = Window.partitionBy("site", "pair", "flow").orderBy("us")
    elapsed = F.col("us") - F.lag("us").over(flow)
    same_series = F.lag("series").over(flow) == F.col("series")
    linked = F.coalesce(F.col("link"), F.lit(True)) & F.coalesce(F.lag("link").over(flow), F.lit(True))

    def rate(side: str) -> Column:
        backlogged = (F.col(f"{side}_depth") > 0) & (F.lag(f"{side}_depth").over(flow) > 0)
        shipped = F.col(f"{side}_shipped") - F.lag(f"{side}_shipped").over(flow)
        return F.when(same_series & linked & backlogged & (shipped > 0), shipped * 1_000_000 / elapsed)

    return (
        outflows.select(
            "site",
            "pair",
            "flow",
            "us",
            elapsed.alias("elapsed_us"),
            rate("sends").alias("sends_rate"),
            rate("acks").alias("acks_rate"),
        )
        .groupBy("site", "pair", "flow")
        .agg(
            F.min("us").alias("first_us"),
            F.max("us").alias("last_us"),
            F.count("us").alias("looks"),
            F.percentile_approx("elapsed_us", 0.5).alias("spacing_us"),
            F.percentile_approx("sends_rate", 0.1).alias("sends_rate"),
            F.percentile_approx("acks_rate", 0.1).alias("acks_rate"),
        )
        .select("site", "pair", "flow", "first_us", "last_us", "looks", "spacing_us", "sends_rate", "acks_rate")
    )


def queue_looks(history: DataFrame, outflows: DataFrame) -> DataFrame:
    """One row per queue and look at which its outflow was read too, and one per outflow itself (`queue` is null).

    A queue's own outflow serves it where there is one, else the one that serves all of its pair.
    """
    queues = history.where(F.col("kind") == "queue").select(
        "site",
        "pair",
        F.col("name").alias("queue"),
        _us("ts").alias("us"),
        "depth",
        "added",
        "removed",
        F.coalesce("acked", "removed").alias("consumed"),
        "oldest_ms",
        "start",
    )
    at_look = ["site", "pair", "us"]
    sends = F.when(F.col("sends_depth").isNotNull(), F.struct("flow", "series", "n", "last_n", "last_us", *_SENDS))
    acks = F.when(F.col("acks_depth").isNotNull(), F.struct("series", *_ACKS))
    shared = outflows.where(F.col("flow") == SHARED).select(
        *at_look, sends.alias("shared_sends"), acks.alias("shared_acks")
    )
    own = outflows.where(F.col("flow") != SHARED).select(
        *at_look, F.col("flow").alias("queue"), sends.alias("own_sends"), acks.alias("own_acks")
    )
    joined = (
        queues.join(shared, on=at_look, how="left")
        .join(own, on=[*at_look, "queue"], how="left")
        .withColumn("by_sends", F.coalesce("own_sends", "shared_sends"))
        .withColumn("by_acks", F.coalesce("own_acks", "shared_acks"))
        .where(F.col("by_sends").isNotNull())
        .select(
            *queues.columns,
            "by_sends.flow",
            F.concat_ws(":", "by_sends.series", "by_acks.series").alias("flow_series"),
            "by_sends.n",
            "by_sends.last_n",
            "by_sends.last_us",
            *[f"by_sends.{column}" for column in _SENDS],
            *[f"by_acks.{column}" for column in _ACKS],
        )
    )
    themselves = outflows.select(
        "site",
        "pair",
        F.lit(None).cast("string").alias("queue"),
        "us",
        F.col("sends_depth").alias("depth"),
        F.col("sends_added").alias("added"),
        F.col("sends_shipped").alias("removed"),
        F.lit(None).cast("long").alias("consumed"),
        F.lit(None).cast("long").alias("oldest_ms"),
        "start",
        "flow",
        F.col("series").cast("string").alias("flow_series"),
        "n",
        "last_n",
        "last_us",
        *_SENDS,
        *_ACKS,
    )
    return _in_series(joined.unionByName(themselves))


def _in_series(looks: DataFrame) -> DataFrame:
    """Begin a new series wherever the queue's counters or its outflow's do."""
    thing = Window.partitionBy("site", "pair", "flow", "queue").orderBy("us")
    so_far = thing.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def changed(column: str) -> Column:
        return ~F.col(column).eqNullSafe(F.lag(column).over(thing))

    def fell(column: str) -> Column:
        return F.coalesce(F.col(column) < F.lag(column).over(thing), F.lit(False))

    begins = changed("start") | changed("flow_series") | fell("added") | fell("removed") | fell("consumed")
    return looks.withColumn("begins", begins.cast("int")).select(
        *looks.columns, F.sum("begins").over(so_far).alias("series")
    )


def with_cut(looks: DataFrame, *, put: str, shipped: str, carry: Sequence[Column], into: str) -> DataFrame:
    """Add, as the struct `into`, the `carry` of the newest look of the series at which `put` had not passed `shipped`.

    One pass: both positions of every look are laid on one line, and each `shipped` takes the last `put` before it.
    None where the cut lies before the series.
    """
    thing = ("site", "pair", "flow", "queue", "series")
    kept = looks.columns
    marks = F.array(
        F.struct(F.col(put).alias("at"), F.lit(0).alias("is_shipped")),
        F.struct(F.col(shipped).alias("at"), F.lit(1).alias("is_shipped")),
    )
    line = (
        Window.partitionBy(*thing)
        # Among equals the earlier look first: a cut never lies in the future of what it cuts.
        .orderBy("mark.at", "us", "mark.is_shipped")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    is_put = (F.col("mark.is_shipped") == 0) & F.col("mark.at").isNotNull()
    newest = F.last(F.when(is_put, F.struct(*carry)), ignorenulls=True).over(line)
    return (
        looks.select(*kept, F.explode(marks).alias("mark"))
        .select(*kept, "mark", newest.alias(into))
        .where(F.col("mark.is_shipped") == 1)
        .select(*kept, into)
    )


def cut_looks(looks: DataFrame) -> DataFrame:
    """Add both cuts: `cut` of the sends (when, how many sent by then, how many sent by the look after) and `acked`."""
    thing = Window.partitionBy("site", "pair", "flow", "queue", "series").orderBy("us")
    # Sent as far as it can be told after a restart, where `added` begins anew and `depth` does not.
    sent = F.greatest(F.col("added"), F.col("removed") + F.col("depth"))
    numbered = looks.withColumn("sent", sent).withColumn("sent_after", F.lead("sent").over(thing))
    cut = with_cut(
        numbered,
        put="sends_put",
        shipped="sends_shipped",
        carry=[F.col("us"), F.col("added"), F.col("sent_after")],
        into="cut",
    )
    return with_cut(cut, put="acks_put", shipped="acks_shipped", carry=[F.col("consumed")], into="acked")


def contributions(looks: DataFrame, *, gap_us: Column) -> DataFrame:
    """Bounds per queue and interval: `n` numbers the interval by the look at its start, `NOW` is the last look itself.

    A null bound is not known: the outflow's, in the rows without a queue, then takes its place.
    """
    thing = Window.partitionBy("site", "pair", "flow", "queue").orderBy("us")
    so_far = thing.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known_from = F.last("cut.us", ignorenulls=True).over(so_far)
    measured = (
        looks.withColumn("oldest_us", F.coalesce(known_from, F.first("us").over(so_far)))
        .withColumn("is_floor", known_from.isNull())
        .withColumn("passed", F.least(F.coalesce("cut.sent_after", "sent"), "sent"))
    )
    begin = [
        "n",
        "us",
        "series",
        "flow_series",
        "depth",
        "added",
        "cut",
        "acked",
        "oldest_us",
        "oldest_ms",
        "is_floor",
        "sends_depth",
        "sends_added",
        "acks_depth",
        "acks_added",
    ]
    paired = (
        measured.withColumn("b", F.lag(F.struct(*begin)).over(thing))
        .withColumn("is_last", F.lead("us").over(thing).isNull())
        .withColumn("gap_us", gap_us)
    )
    is_outflow = F.col("queue").isNull()
    seen_lately = (F.col("last_us") - F.col("us")) <= F.col("gap_us")
    nothing = _bounds()
    appeared = F.when(~is_outflow & (F.col("n") > 1), _span(F.col("n") - 1, F.col("n"), nothing))
    between = F.when(F.col("b").isNotNull(), _span(F.col("b.n"), F.col("n"), _between()))
    vanished = F.when(
        F.col("is_last") & (F.col("n") < F.col("last_n")) & seen_lately, _span(F.col("n"), F.col("last_n"), nothing)
    )
    at_end = F.when(F.col("is_last") & (F.col("n") == F.col("last_n")), _span(F.lit(NOW), F.lit(NOW + 1), _at_look()))
    not_at_end = F.when(
        F.col("is_last") & (F.col("n") < F.col("last_n")) & seen_lately, _span(F.lit(NOW), F.lit(NOW + 1), nothing)
    )
    spans = F.array(F.coalesce(between, appeared), vanished, F.coalesce(at_end, not_at_end))
    return (
        paired.select("site", "pair", "flow", "queue", F.explode(spans).alias("span"))
        .where(F.col("span").isNotNull())
        .select(
            "site",
            "pair",
            "flow",
            "queue",
            F.explode(F.sequence(F.col("span.from_n"), F.col("span.to_n") - 1)).alias("n"),
            "span.bounds.*",
        )
    )


def _span(from_n: Column, to_n: Column, bounds: Column) -> Column:
    return F.struct(from_n.cast("int").alias("from_n"), to_n.cast("int").alias("to_n"), bounds.alias("bounds"))


def _bounds(
    loss: Column | None = None,
    age_us: Column | None = None,
    duplicates: Column | None = None,
    depths: tuple[Column, Column] | None = None,
    *,
    covered: Column | None = None,
    is_floor: Column | None = None,
) -> Column:
    unknown = F.lit(None)
    sends, acks = depths or (unknown, unknown)
    return F.struct(
        (unknown if loss is None else loss).cast("long").alias("loss"),
        (unknown if age_us is None else age_us).cast("long").alias("age_us"),
        (unknown if duplicates is None else duplicates).cast("long").alias("duplicates"),
        sends.cast("long").alias("sends_depth"),
        acks.cast("long").alias("acks_depth"),
        (F.lit(False) if covered is None else covered).alias("covered"),
        (F.lit(False) if is_floor is None else is_floor).alias("is_floor"),
    )


def _between() -> Column:
    """Bounds that hold from the look before (`b`) to this one."""
    outflow_goes_on = F.col("b.flow_series") == F.col("flow_series")
    goes_on = F.col("b.series") == F.col("series")
    elapsed = F.col("us") - F.col("b.us")
    sends_depth = F.when(outflow_goes_on, F.col("b.sends_depth") + F.col("sends_added") - F.col("b.sends_added"))
    acks_depth = F.when(outflow_goes_on, F.col("b.acks_depth") + F.col("acks_added") - F.col("b.acks_added"))
    held = F.col("b.depth") + F.col("added") - F.col("b.added")
    loss = F.when(goes_on, _loss(F.col("added") - F.col("b.cut.added"), held, sends_depth))
    # Nothing in the queue can be older than what was oldest at the start.
    in_queue = F.when(F.col("b.depth") == 0, elapsed).otherwise(F.col("b.oldest_ms") * US_PER_MS + elapsed)
    age = _age(loss, F.col("us") - F.col("b.oldest_us"), in_queue)
    return _bounds(
        loss,
        age,
        F.when(goes_on, _duplicates(F.col("b.acked.consumed"))),
        (sends_depth, acks_depth),
        covered=outflow_goes_on & (elapsed <= F.col("gap_us")),
        is_floor=(loss > 0) & F.col("b.is_floor") & in_queue.isNull(),
    )


def _at_look() -> Column:
    """Bounds at the look itself."""
    loss = _loss(F.col("added") - F.col("cut.added"), F.col("depth"), F.col("sends_depth"))
    in_queue = F.when(F.col("depth") > 0, F.col("oldest_ms") * US_PER_MS)
    return _bounds(
        loss,
        _age(loss, F.col("us") - F.col("oldest_us"), in_queue),
        _duplicates(F.col("acked.consumed")),
        (F.col("sends_depth"), F.col("acks_depth")),
        covered=F.lit(True),
        is_floor=(loss > 0) & F.col("is_floor") & in_queue.isNull(),
    )


def _loss(since_cut: Column, held: Column, outflow: Column) -> Column:
    # An outflow's own row holds nothing back: what it ships is all it knows.
    bound = F.when(F.col("queue").isNull(), outflow).otherwise(F.least(since_cut, held, outflow))
    return F.greatest(bound, F.lit(0))


def _age(loss: Column, since_cut: Column, in_queue: Column) -> Column:
    of_queue = F.when(F.col("queue").isNull(), since_cut).otherwise(F.least(since_cut, in_queue))
    return F.when(loss == 0, F.lit(0)).when(loss > 0, of_queue)


def _duplicates(acked: Column) -> Column:
    beyond = F.least(F.col("consumed"), F.col("passed")) - acked
    # `least` and `greatest` skip nulls; an unknown cut is to stay unknown.
    return F.when(acked.isNotNull() & F.col("consumed").isNotNull(), F.greatest(beyond, F.lit(0)))


def by_flow(
    parts: DataFrame,
    *,
    classes: Sequence[Sequence[str]] = (),
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    sends_rate: Column,
    acks_rate: Column,
) -> DataFrame:
    """Add the queues up per outflow, interval and scope (the total, each class), within what the outflow can hold."""
    is_queue = F.col("queue").isNotNull()
    counts = ~is_queue | (_matches(include) & ~_matches(exclude))
    scopes = F.array_compact(
        F.array(
            F.lit(TOTAL),
            *[
                F.when(~is_queue | (counts & _matches(queues)), F.lit(f"{CLASS}{number}"))
                for number, queues in enumerate(classes)
            ],
        )
    )

    def of_queues(column: str) -> Column:
        return F.when(is_queue, F.col(column))

    def of_outflow(column: str) -> Column:
        return F.max(F.when(~is_queue, F.col(column)))

    def unknown(column: str) -> Column:
        return F.max(is_queue & F.col(column).isNull())

    counted = parts.select(
        "site",
        "pair",
        "flow",
        "n",
        "queue",
        *[F.when(counts, F.col(c)).otherwise(F.lit(0)).alias(c) for c in ("loss", "age_us", "duplicates")],
        "sends_depth",
        "acks_depth",
        "covered",
        "is_floor",
        F.explode(scopes).alias("scope"),
    )
    added_up = counted.groupBy("site", "pair", "flow", "n", "scope").agg(
        F.count("queue").alias("queues"),
        F.sum(of_queues("loss")).alias("loss"),
        unknown("loss").alias("loss_unknown"),
        of_outflow("sends_depth").alias("sends_depth"),
        F.max(of_queues("age_us")).alias("age_us"),
        unknown("age_us").alias("age_unknown"),
        of_outflow("age_us").alias("flow_age_us"),
        F.sum(of_queues("duplicates")).alias("duplicates"),
        unknown("duplicates").alias("duplicates_unknown"),
        of_outflow("acks_depth").alias("acks_depth"),
        F.coalesce(of_outflow("covered"), F.lit(False)).alias("covered"),
        F.max("is_floor").alias("is_floor"),
    )
    has_queues, in_total = F.col("queues") > 0, F.col("scope") == TOTAL
    sends_depth, acks_depth = F.col("sends_depth"), F.col("acks_depth")
    acks_only = sends_depth.isNull() & acks_depth.isNotNull()
    most_lost = F.when(acks_only, F.lit(0)).otherwise(sends_depth)

    def figure(column: str, most: Column) -> Column:
        """No queue was read: all that the outflow holds, in the total. One is not known: the same. Else their sum."""
        return (
            F.when(~has_queues & in_total, most)
            .when(~has_queues, F.lit(0))
            .when(F.col(f"{column}_unknown"), most)
            .otherwise(F.least(F.col(column), most))
        )

    loss = figure("loss", most_lost)
    age = (
        F.when(loss == 0, F.lit(0))
        .when(has_queues & ~F.col("age_unknown"), F.col("age_us"))
        .otherwise(F.col("flow_age_us"))
    )
    drain = _drain_ms(sends_depth, sends_rate, acks_depth, acks_rate)
    return added_up.select(
        "site",
        "pair",
        "flow",
        "n",
        "scope",
        loss.alias("loss"),
        F.ceil(age / US_PER_MS).alias("age_ms"),
        figure("duplicates", acks_depth).alias("duplicates"),
        F.when(has_queues | in_total, drain).otherwise(F.lit(0)).alias("drain_ms"),
        "covered",
        ((loss > 0) & F.col("is_floor")).alias("is_floor"),
        acks_only.alias("acks_only"),
    )


def _drain_ms(sends_depth: Column, sends_rate: Column, acks_depth: Column, acks_rate: Column) -> Column:
    """Both directions drain side by side. Null where something is there and no rate is known."""

    def side(depth: Column, rate: Column) -> Column:
        return F.when(depth == 0, F.lit(0)).otherwise(F.ceil(depth * 1000 / rate))

    sends, acks = side(sends_depth, sends_rate), side(acks_depth, acks_rate)
    is_known = (sends_depth.isNull() | sends.isNotNull()) & (acks_depth.isNull() | acks.isNotNull())
    return F.when(is_known, F.greatest(sends, acks)).cast("long")


def _matches(patterns: Sequence[str]) -> Column:
    named = F.concat(F.lit("."), F.coalesce("queue", F.lit("")))
    return reduce(lambda one, other: one | other, [named.rlike(pattern_regex(p)) for p in patterns], F.lit(False))


def intervals(outflows: DataFrame) -> DataFrame:
    """Say when each numbered interval of a pair begins and ends."""
    pair = Window.partitionBy("site", "pair").orderBy("n")
    return (
        outflows.select("site", "pair", "n", "us")
        .distinct()
        .select("site", "pair", "n", F.col("us").alias("from_us"), F.lead("us").over(pair).alias("to_us"))
        .where(F.col("to_us").isNotNull())
    )


_FIGURES: Final = (*METRICS, "covered", "is_floor")


def by_scope(flows: DataFrame, times: DataFrame) -> DataFrame:
    """One series per flow, per class and in total: `weight_us` says how long each state held.

    Pairs are not looked at in the same instant; the total is added up anew wherever one of them changes.
    """
    timed = flows.where(F.col("n") != NOW).join(times, on=["site", "pair", "n"], how="inner")
    single = timed.where(F.col("scope") == TOTAL).select(
        flow_scope().alias("scope"), (F.col("to_us") - F.col("from_us")).alias("weight_us"), *_FIGURES
    )
    return single.unionByName(
        _overlaid(timed.groupBy("scope", "pair", "from_us", "to_us").agg(*_summed(_not_counted_twice())))
    )


def flow_scope() -> Column:
    """Name the scope of one flow; its parts are separated by what no name of a pair holds."""
    return F.concat(F.lit(FLOW), "pair", F.lit("\n"), "flow")


def _summed(has_duplicates: Column) -> list[Column]:
    """Messages add up, times run side by side. What is not known of one is not known of the sum."""

    def whole(column: str, folded: Column, counts: Column) -> Column:
        return F.when(~F.max(counts & F.col(column).isNull()), folded).alias(column)

    always = F.lit(True)
    return [
        whole("loss", F.sum("loss"), always),
        whole("age_ms", F.max("age_ms"), always),
        whole("duplicates", F.sum(F.when(has_duplicates, F.col("duplicates"))), has_duplicates),
        whole("drain_ms", F.max("drain_ms"), always),
        F.min(F.coalesce("covered", F.lit(False))).alias("covered"),
        F.max(F.coalesce("is_floor", F.lit(False))).alias("is_floor"),
    ]


def _not_counted_twice() -> Column:
    """What an outflow of acknowledgements alone holds is counted with the queues that it serves."""
    return ~F.col("acks_only")


def _overlaid(pairs: DataFrame) -> DataFrame:
    marks = pairs.select("scope", F.col("from_us").alias("us")).union(pairs.select("scope", "to_us")).distinct()
    lives = pairs.groupBy("scope", "pair").agg(F.min("from_us").alias("first_us"))
    states = pairs.select("scope", "pair", F.col("from_us").alias("us"), F.struct("to_us", *_FIGURES).alias("state"))
    pair = Window.partitionBy("scope", "pair").orderBy("us").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    state = F.last("state", ignorenulls=True).over(pair)
    cells = (
        marks.join(lives, on="scope", how="inner")
        # A pair counts from its first look on, and to the end: one that is no longer read is not known, not gone.
        .where(F.col("us") >= F.col("first_us"))
        .join(states, on=["scope", "pair", "us"], how="left")
        .select("scope", "pair", "us", state.alias("held"))
        .select("scope", "us", F.when(F.col("held.to_us") > F.col("us"), F.col("held")).alias("held"))
        .select("scope", "us", "held.*")
    )
    scope = Window.partitionBy("scope").orderBy("us")
    return (
        cells.groupBy("scope", "us")
        .agg(*_summed(F.lit(True)))
        .withColumn("weight_us", F.lead("us").over(scope) - F.col("us"))
        .where(F.col("weight_us").isNotNull())
        .select("scope", "weight_us", *_FIGURES)
    )


def at_last_look(flows: DataFrame) -> DataFrame:
    """Give the state at the last look, per flow, per class and in total: one row per scope and metric."""
    last = flows.where(F.col("n") == NOW)
    single = last.where(F.col("scope") == TOTAL).select(flow_scope().alias("scope"), *_FIGURES)
    state = single.unionByName(last.groupBy("scope").agg(*_summed(_not_counted_twice())).select("scope", *_FIGURES))
    return _by_metric(state.withColumn("weight_us", F.lit(0)), METRICS).select(
        "scope", "metric", F.lit(0).alias("weight_us"), "value", F.lit(True).alias("is_now")
    )


def _by_metric(states: DataFrame, metrics: Sequence[str]) -> DataFrame:
    each = F.array(*[F.struct(F.lit(m).alias("metric"), F.col(m).cast("long").alias("value")) for m in metrics])
    return states.select("scope", "weight_us", F.explode(each).alias("each")).select("scope", "weight_us", "each.*")


def bucket(value: Column) -> Column:
    """Number the bucket of a value: exact below 64, then 2 % wide."""
    above = EXACT_BELOW + F.ceil(F.log(value / EXACT_BELOW) / F.log(F.lit(BUCKET_GROWTH)))
    return F.when(value < EXACT_BELOW, value).otherwise(above)


def histograms(states: DataFrame) -> DataFrame:
    """How long each metric of each scope stayed in each bucket; `value` is the largest seen in it (rounded up)."""
    covered = states.where(F.col("covered")).select(
        "scope",
        "weight_us",
        *METRICS,
        F.lit(0).alias(COVERED),
        F.when(F.col("is_floor"), F.lit(0)).alias(AGE_FLOOR),
    )
    return (
        _by_metric(covered, (*METRICS, COVERED, AGE_FLOOR))
        .where(F.col("value").isNotNull())
        .groupBy("scope", "metric", bucket(F.col("value")).alias("bucket"))
        .agg(F.sum("weight_us").alias("weight_us"), F.max("value").alias("value"))
        .select("scope", "metric", "weight_us", "value", F.lit(False).alias("is_now"))
    )


def per_key(values: Mapping[tuple[str, ...], Any], *columns: str) -> Column:
    """Look up a value that was computed before by the given columns; null where there is none."""
    known = {"\n".join(key): value for key, value in values.items() if value is not None}
    if not known:
        return F.lit(None).cast("double")
    pairs = [F.lit(word) for item in known.items() for word in item]
    return F.create_map(*pairs)[F.concat_ws("\n", *columns)]


def _us(column: str) -> Column:
    return F.unix_micros(F.col(column))
