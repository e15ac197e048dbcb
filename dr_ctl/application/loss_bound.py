"""The bounds on the loss of a failover: by the present counts of a closed site that answers, else by the last samples
of the history. Contacts no broker, needs neither Java nor Spark."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from dr_ctl.application.estimates import objectives
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.lost_site import LostSiteOutage, last_served, missing_package, out_of_lost
from dr_ctl.core.document import document
from dr_ctl.core.errors import Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Role, Severity, brief, total
from dr_ctl.core.notation import duration, matches
from dr_ctl.core.system import boottime_s, in_background, stamp, system
from dr_ctl.engine.ending import bounds_text
from dr_ctl.engine.plan import Accepted, Spec
from dr_ctl.rpo.bounds.result import QUOTED_FOR_S, Bound, Bounds, ClassBound, Loss, LostSite, QueueBound
from dr_ctl.rpo.estimate.result import Objectives
from dr_ctl.rpo.history.row import Row, micros, moment
from dr_ctl.topologies.registry import Snapshot

SKEW: Final = timedelta(seconds=2)


def _load_bounds() -> None:
    # `_read_history` reports missing packages.
    with suppress(ModuleNotFoundError):
        if find_spec("numpy") and find_spec("pyarrow"):
            import_module("dr_ctl.rpo.bounds.bounds")


class LossBound:
    """Implements `LossExposure`. The bounds may grow until the site is seen down, so read them again each time."""

    def __init__(
        self, opened: OpenInstallation, lost: str, silent_since: str | None, *, begun: bool = False, once: bool = False
    ) -> None:
        """`begun` is for a resumed run, which has its own options. With `once` all answers use one reading."""
        self.site, self._begun, self._once = lost, begun, once
        self._silent_since = datetime.fromisoformat(silent_since) if silent_since is not None else None
        self._ahead = timedelta(0)  # the least lead of a broker's clock over this machine's
        self._installation, self._runs = opened.installation, opened.runs
        self._fence_ends = not opened.topology.recipe.moves_parts  # nobody can send to a fenced site
        self._limits = objectives(opened.installation)
        self._supposed = False
        self._down_since: datetime | None = None
        self._read: tuple[Snapshot, datetime] | None = None
        self._by_history: tuple[object, Bounds] | None = None  # keyed by the time of the loss and the clocks
        self._differing = set[str]()  # these queues may differ between the sites without a fault
        self._own: Sequence[Row] = ()  # of a reading in which all brokers of the site answered
        self._live: Sequence[Row] = ()  # the counts of the other site's queues while no client works there
        self._host_lives = False
        # A run that accepted `unknown` began while the bound was not known.
        self._was_unknown = dict.fromkeys(("lost", "duplicates"), begun)
        self._kept_at: datetime | None = None  # the time of a reading with one store for both sites
        # Loading the Parquet reader takes a tenth of a second: load it during the first reading.
        in_background(_load_bounds, "load bounds")

    def saw(self, snapshot: Snapshot, *, supposed: bool = False) -> None:
        """Use a reading. The bounds of a site that is down stop growing. A closed site that answers counts the messages
        still to ship. `supposed` says that the site is treated as down, but lives."""
        self._supposed |= supposed
        role, now, own = snapshot.roles[self.site], system().now(), snapshot.brokers_at(self.site)
        # A broker's time must be earlier than now; any lead is a clock's fault.
        clocks = [moment(reading.now_ms * 1000) - now for reading in snapshot.locks if reading.site != self.site]
        self._ahead = max([self._ahead, *clocks])
        # Any reading that does not show it down starts the time again.
        self._down_since = (self._down_since or now) if role is Role.DOWN else None
        whole = role is Role.STANDBY and all(broker.silent is None for broker in own)
        self._read = (snapshot, now) if whole else None
        self._kept_at = now if snapshot.one_store else None
        self._differing |= {*snapshot.differing()}
        # Without a link that ships, producers themselves go on sending to the standby.
        waits = all(role is not Role.SERVING for role in snapshot.roles.values())
        is_shipped = waits and any(link.outflow is not None for link in snapshot.links())
        rows = snapshot.rows(now) if is_shipped else ()
        self._live = [row for row in rows if row.site != self.site and row.kind == "queue"]
        made = snapshot.made or snapshot
        if made.asked_s is not None and all(broker.silent is None for broker in made.brokers_at(self.site)):
            answered = {broker.site for broker in made.brokers if broker.silent is None}
            self._own = [row for row in made.recorded(now, boottime_s() - made.asked_s) if row.site in answered]
        self._host_lives = role is Role.DOWN and all(
            isinstance(broker.silent, Unreachable) and broker.silent.refused for broker in own
        )

    def bounds(self) -> Mapping[str, Json]:
        bounds: Mapping[str, Json] = document(self.now())
        return bounds

    def findings(self) -> Sequence[Finding]:
        bounds = self.now()
        because = [] if bounds.because is None else [found("DR-LOSS-002", because=bounds.because)]
        ahead = f"{self._ahead.total_seconds():.1f}"
        clocks = [found("DR-LOSS-003", seconds=ahead)] if self._ahead > SKEW and self._read is None else []
        return (*because, *bounds.findings, *clocks)

    def differ(self) -> Sequence[Finding]:
        """Return the findings that the two sites differ by more than the messages under way."""
        return [finding for finding in self.now().findings if finding.id == "DR-PARITY-001"]

    def _above(self, now: Bounds, spec: Spec) -> tuple[Sequence[str], str | None]:
        """Say why the loss, and why the duplicates, exceed the accepted figures."""
        reasons = now.exceeds(self._limits, self._accepted("lost", now.lost, spec.accept_loss))
        return reasons, now.doubles(self._limits, self._accepted("duplicates", now.duplicates, spec.accept_duplicates))

    def too_high(self, spec: Spec) -> Finding | None:
        now = self.now()
        reasons, doubles = self._above(now, spec)
        if not reasons and doubles is None:
            return None
        if not reasons:
            accepting = f"{_accepting(now, lost=False, duplicates=True)}{self._holds(now)}"
            details = (f"      {bounds_text(document(now))}", *_lines_below(now, doubled=True))
            return found("DR-LOSS-005", more=details, why=doubles, instead=self._instead(), accepting=accepting)
        at_most, accepting = now.lost.at_most, _accepting(now, lost=True, duplicates=doubles is not None)
        over = ""
        if isinstance(spec.accept_loss, int) and at_most is not None:
            over = f"{at_most - spec.accept_loss} above what was accepted. "
        if spec.accept_loss == "unknown":
            over = "`--accept-loss unknown` does not cover a known figure. "
        typed = f"{accepting}{self._holds(now)}"
        adds = f"add {typed}.{self._by_word(now, spec)}"
        if self._begun:
            adds = f"`dr-ctl failover --to {spec.target} {accepting} --reason TEXT` in place of the open run."
        # These lines are below the refusal, which the end of the command repeats.
        lines = [f"      {line}" for line in (now.because, bounds_text(document(now)), doubles) if line is not None]
        lines += _lines_below(now, doubled=doubles is not None)
        why, instead = "; ".join(reasons), self._instead()
        return found("DR-LOSS-001", more=lines, reasons=why, over=over, instead=instead, adds=adds)

    def refused_today(self, spec: Spec) -> Finding | None:
        """Return the refusal for a site that still serves, without remedies for a loss."""
        refusal = self.too_high(spec)
        if refusal is None:
            return None
        key = "DR-LOSS-001.today" if refusal.id == "DR-LOSS-001" else "DR-LOSS-005.today"
        return found(key, more=refusal.more, target=spec.target, why=refusal.text, accepting=self.accepting(spec))

    def accepting(self, spec: Spec) -> str:
        """Return the options, with figures, that accept the loss and the duplicates of such a failover."""
        now = self.now()
        reasons, doubles = self._above(now, spec)
        return _accepting(now, lost=bool(reasons), duplicates=doubles is not None)

    def _accepted(self, of: str, bound: Bound, asked: Accepted) -> Accepted:
        """Return the accepted figure; a bound that was accepted as unknown stays accepted once it is known."""
        self._was_unknown[of] |= bound.at_most is None
        return bound.at_most if asked == "unknown" and self._was_unknown[of] and bound.at_most is not None else asked

    def _instead(self) -> str:
        """Name an alternative that may lose nothing. If its host refuses connections, only the broker has ended."""
        if self._read is not None:
            if last_served(self._installation, self._runs)[1] not in ("", self.site):
                return "open the site that served last (`dr-ctl status` names the command)"
            command = f"`dr-ctl abort` where a run is open, else `dr-ctl unfence {self.site}`"
            return f"open {self.site} again, which loses nothing ({command})"
        if self._host_lives:
            return f"start the broker of {self.site} again (its host answers, its ports refuse), which may lose nothing"
        return f"bring {self.site} back, which may lose nothing"

    def _holds(self, now: Bounds) -> str:
        until = system().now() + timedelta(seconds=QUOTED_FOR_S)
        return f" (good until {stamp(until)})" if any(now.growing) else ""

    def _by_word(self, now: Bounds, spec: Spec) -> str:
        """Ask a person for the time when the site ended, if that would help."""
        helps, why = self._break_even(now, spec)
        question = (
            f" Where somebody knows when the service of {self.site} ended (UTC): --silent-since T --reason TEXT; if "
            "unsure, give the later time."
        )
        return f"{why}{question}" if helps else why

    def _break_even(self, now: Bounds, spec: Spec) -> tuple[bool, str]:
        """Say whether the time of the end helps, and the latest such time for an allowed loss."""
        most = self._limits.loss.messages if self._limits is not None else 0
        most = spec.accept_loss if isinstance(spec.accept_loss, int) else most
        if self._read is not None:
            return False, ""  # the site's own counts are known, whenever it ended
        if now.lost.at_most is None:
            return now.because is None, ""  # the time does not explain why the sites differ
        if most is None or now.lost.at_most <= most:
            return True, ""
        from dr_ctl.rpo.bounds.bounds import latest_end  # noqa: PLC0415 - as above

        ended = latest_end(self._installation.history, self._asked(), most)
        if ended is None:
            return False, f" Even if {self.site} had ended right after the last reading, more than {most} may be lost."
        return True, (
            f" With {most} accepted {self.site} must have ended by {stamp(ended)}: its log shows that, and the first "
            "refused connection or the last confirmed send in the logs of its clients."
        )

    def out(self, let_in: datetime) -> LostSiteOutage:
        return out_of_lost(self._installation, self.site, self._pairs(), self._down_since, let_in)

    def contradiction(self) -> Finding | None:
        """Report a reading that saw the lost site serve after the time that the operator gave."""
        if self._silent_since is None:
            return None
        from dr_ctl.rpo.history.newest import recent  # noqa: PLC0415 - loaded during the first reading

        readings = recent(self._installation.history, self.site, self._pairs())
        served_us = int(max(readings.saw(Role.SERVING), default=0))
        if micros(self._silent_since) >= served_us:
            return None
        later = duration((moment(served_us) - self._silent_since).total_seconds())
        return found("DR-LOSS-004", site=self.site, served_at=stamp(moment(served_us)), later=later)

    def now(self) -> Bounds:
        if self._kept_at is not None:
            return self._of_history().without_loss(self._kept_at)
        if self._read is None:
            return self._of_history()
        snapshot, at = self._read  # in which all brokers of the site answered
        return _of_closed(self._asked(), self._limits, snapshot, at)

    def _of_history(self) -> Bounds:
        known = self._down_since, self._ahead
        is_read = self._by_history is not None and (self._once or self._by_history[0] == known)
        if self._by_history is None or not is_read or (self._down_since is None and not self._once):
            self._by_history = known, self._read_history()
        return self._by_history[1]

    def _read_history(self) -> Bounds:
        try:
            from dr_ctl.rpo.bounds.bounds import bounds  # noqa: PLC0415 - loaded by then, beside the first reading
            from dr_ctl.rpo.history.files import keep  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            # The bounds are not known, and a finding names the missing package.
            return Bounds(self.site, Loss(None, None), Bound(None, None), findings=(missing_package(error),))
        keep(self._installation.history.near, self._own)
        return bounds(
            self._installation.history,
            self._asked(),
            down_at=self._down_since + self._ahead if self._down_since is not None else None,
            supposed=self._supposed,
            fence_ends=self._fence_ends,
            silent_since=self._silent_since,
            objectives=self._limits,
            live=self._live,
        )

    def _asked(self) -> LostSite:
        settings = self._installation.settings
        return LostSite(
            site=self.site,
            now=system().now() + self._ahead,
            include=settings.queues.include,
            exclude=settings.queues.exclude,
            may_differ=self._differing,
            pairs=self._pairs(),
            other=self._installation.other(self.site),
        )

    def _pairs(self) -> list[str]:
        return [broker.name for broker in self._installation.settings.sites[self.site].brokers]


def _accepting(now: Bounds, *, lost: bool, duplicates: bool) -> str:
    most_lost, most_duplicates = now.quoted()
    words = [f"--accept-loss {most_lost}"] if lost else []
    return " ".join([*words, f"--accept-duplicates {most_duplicates}"] if duplicates else words)


def _lines_below(now: Bounds, *, doubled: bool) -> Iterator[str]:
    """Write the lines below a refusal: a store that did not answer, and why a bound is not known; for duplicates, the
    queues with the most, and copies of processed messages at the other site."""
    if doubled and (most := now.most_duplicates()):
        yield f"      duplicates by queue, at most: {most}"
    kinds = ("DR-RPO-011", "DR-RPO-032", *(("DR-RPO-022", "DR-RPO-021") if doubled else ()))
    yield from (f"      {finding.text}" for finding in now.findings if finding.id in kinds)


def _of_closed(of: LostSite, limits: Objectives | None, snapshot: Snapshot, at: datetime) -> Bounds:
    """Make the bounds by the counts of a closed site, if all its brokers answered."""
    differences, stakes = _differences(of, snapshot, at), snapshot.stake(of.site)
    by_broker = [broker.depths for broker in snapshot.brokers_at(of.site)]
    names = {name for depths in by_broker for name in depths if of.selects(name)}
    depths_at_site = {name: total(depths.get(name, 0) for depths in by_broker) for name in names}
    stake_lost = total([stake.lost for stake in stakes])
    stake_duplicates = total([stake.duplicates for stake in stakes])
    by_queue = [stake.queues for stake in stakes if stake.queues is not None]
    # A stream for all queues does not count by queue; the depths of the queues do.
    is_stream = len(by_queue) < len(stakes)
    more_at_site = {name: count for name, count in differences.items() if count > 0}
    more_at_other = {name: -count for name, count in differences.items() if count < 0 and is_stream}
    unexplained = set[str]()
    if is_stream:
        above = {*_exceeding(more_at_site, stake_lost), *_exceeding(more_at_other, stake_duplicates)}
        unexplained = above - {*snapshot.differing()}
    for_loss, for_doubles = unexplained & more_at_site.keys(), unexplained & more_at_other.keys()
    lost = None if for_loss else _at_least(stake_lost, sum(more_at_site.values()))
    duplicates = None if for_doubles else _at_least(stake_duplicates, sum(more_at_other.values()))

    def of_queue(name: str) -> QueueBound:
        # Without outflows of its own, a queue has at most the site's total and its own depth.
        counts = [queues.get(name, (0, 0)) for queues in by_queue]
        own_lost: int | None = sum(loss for loss, _ in counts)
        own_duplicates = total([doubles for _, doubles in counts])
        if is_stream:
            own_lost, own_duplicates = _least(lost, depths_at_site.get(name, 0)), duplicates
        return QueueBound(
            name,
            None if name in for_loss else _at_least(own_lost, more_at_site.get(name, 0)),
            None if name in for_doubles else _at_least(own_duplicates, more_at_other.get(name, 0)),
        )

    classes = [
        ClassBound(
            loss_class.queues,
            _least(lost, total([n for name, n in depths_at_site.items() if matches(loss_class.queues, name)])),
            loss_class.loss.messages,
        )
        for loss_class in (limits.classes if limits is not None else ())
    ]
    findings: tuple[Finding, ...] = ()
    if unexplained:
        listed, key = brief(sorted(unexplained)), "DR-PARITY-001.at_lost_site"
        findings = (found(key, severity=Severity.WARNING, site=of.site, differences=listed),)
    queues = tuple(map(of_queue, sorted({*depths_at_site, *differences})))
    return Bounds(of.site, Loss(lost, at), Bound(duplicates, at), queues, tuple(classes), findings)


def _differences(of: LostSite, snapshot: Snapshot, at: datetime) -> Mapping[str, int]:
    """Return by queue how many more messages the site has than the other site, if that was read."""
    if any(broker.silent is not None for broker in snapshot.brokers):
        return {}
    rows = [row for row in snapshot.rows(at) if of.selects(row.name)]
    staged = {row.name: row for row in rows if row.kind == "staged" and row.site == of.site}
    surplus = Counter[str]({name: -(row.depth or 0) for name, row in staged.items()})
    for row in rows:
        if row.kind == "queue" and row.site == of.site:
            surplus[row.name] += row.depth or 0
        elif row.kind == "queue" and row.name not in staged:
            surplus[row.name] -= row.depth or 0
    return {name: count for name, count in surplus.items() if count}


def _exceeding(counts: Mapping[str, int], under_way: int | None) -> set[str]:
    return {name for name, count in counts.items() if under_way is not None and count > under_way}


def _at_least(bound: int | None, count: int) -> int | None:
    return None if bound is None else max(bound, count)


def _least(lost: int | None, depth: int | None) -> int | None:
    return lost if lost is None or depth is None else min(lost, depth)
