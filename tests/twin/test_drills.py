"""What a night is like: something is broken, the first screen is read, what it names is typed, and it ends well."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import tests.patience
from dr_ctl.cli.app import run
from dr_ctl.cli.session import Time
from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl.core.system import system
from dr_ctl.rpo.core.quantities import Quantity
from dr_ctl.rpo.estimate.result import EstimateAnswer, Verdict
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.model import Place
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.site import PAIR
from tests.conftest import Command
from tests.documents import no_none
from tests.patience import impatient
from tests.rpo.test_stored import answer
from tests.twin.matrix import put, serving, take
from tests.twin.subject import until

COMMAND = re.compile(r"`dr-ctl ([^`]+)`")


DOUBLES = "--accept-duplicates 100000"


@dataclass(frozen=True)
class Screen:
    """What a person reads after a command."""

    code: int
    out: str
    err: str

    def remedy(self, id_: str) -> str:
        """What is to be done about a finding, under all that it says."""
        lines = self.out.splitlines()
        [at] = [number for number, line in enumerate(lines) if f" {id_}  " in line]
        under = itertools.takewhile(lambda line: line.startswith("      "), lines[at + 1 :])
        return next(line for line in under if line.startswith("      -> "))

    def names(self, within: str | None = None) -> list[str]:
        return COMMAND.findall(self.out if within is None else within)


@dataclass
class Person:
    """Somebody at a terminal who knows `--help` and nothing else."""

    twin: PlayedTwin
    capture: pytest.CaptureFixture[str]

    def types(self, words: str, *more: str) -> Screen:
        self.capture.readouterr()
        code = run([*shlex.split(words), *more], Time(SystemClock(), tests.patience.PATIENCE))
        told = self.capture.readouterr()
        no_none(told.out + told.err)
        return Screen(code, told.out, told.err)


@pytest.fixture
def person(
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Person:
    monkeypatch.setenv("NO_COLOR", "1")
    impatient(monkeypatch, rates_s=0.05)
    return Person(twin, capsys)


def recorded(twin: PlayedTwin, role: str, *, ago_s: float, link: bool = True, rate: float = 10.0) -> datetime:
    """A minute of looks at London, the last so long ago; gives the moment of the last."""
    last = system().now() - timedelta(seconds=ago_s)
    rows = []
    for number in range(13):
        at = last - timedelta(seconds=5 * (12 - number))
        added = int(rate * 5 * number)
        more = {"pair": PAIR, "delivering": 0, "start": "1"}
        rows.append(Row(site="london", ts=at, kind="site", name=role))
        rows.append(
            Row(site="london", ts=at, kind="mixed", name="*", depth=0, added=added, removed=added, link=link, **more)
        )
        for queue in ("orders.in", "orders.out"):
            held = {"depth": 0, "added": added // 2, "removed": added // 2, "acked": added // 2}
            rows.append(Row(site="london", ts=at, kind="queue", name=queue, **held, **more))
    write(rows, Path(twin.settings_path).parent / "history")
    return last


def test_london_is_killed_and_a_limit_was_given(person: Person) -> None:
    last = recorded(person.twin, "serving", ago_s=240)
    person.twin.kill("london")

    first = person.types("status")
    asked = person.types(first.names(first.remedy("DR-ROLE-016"))[0])
    agreed = person.types(f"failover --to paris --yes --accept-loss 100 {DOUBLES}")
    ended = person.types(
        f"failover --to paris --yes --accept-loss 100 {DOUBLES} --silent-since {stamp(last + timedelta(seconds=1))} "
        "--reason 'the pager'"
    )

    assert f"nobody is served; london was last seen to serve at {stamp(last)}" in first.out
    assert re.search(r"It is refused without .*--accept-loss \d+.*likely \d+, at most \d+", first.remedy("DR-ROLE-016"))
    assert asked.code == 11
    assert "Whoever owns that limit decides" in asked.remedy("DR-LOSS-001")
    assert agreed.code == 11
    assert "With 100 accepted london must have ended by" in agreed.remedy("DR-LOSS-001")
    assert "--silent-since T --reason TEXT" in agreed.remedy("DR-LOSS-001")
    assert (ended.code, serving(person.twin)) == (0, ("paris",)), ended.out
    assert "Second copy: none until london is taken in again" in ended.out
    assert person.types("status").out.splitlines()[-1] == "paris serves"


def estimated(twin: PlayedTwin) -> None:
    """London is estimated to miss what the settings allow, which is no message."""
    made = answer(lost=7).estimate
    assert made is not None
    figures = replace(made.total, duplicates=Quantity(now=3, p99=4), drain_s=Quantity(now=0.25, p99=2))
    made = replace(made, total=figures, verdict=Verdict.MISSED)
    store(
        Place.at(Path(twin.settings_path).parent / "history"),
        EstimateAnswer(made),
        system().now() - timedelta(seconds=90),
    )


def test_what_is_at_stake_stands_on_one_screen_in_four_figures(person: Person) -> None:
    recorded(person.twin, "serving", ago_s=90)
    estimated(person.twin)

    lines = person.types("status").out.splitlines()

    [at] = [number for number, line in enumerate(lines) if line.startswith("if london died now: ")]
    assert re.match(r"if london died now: likely \d+, at most \d+ message\(s\) may be lost, the oldest ", lines[at])
    assert re.search(r"\(reading of 1 min 3\d(\.\d)? s ago\)$", lines[at])
    assert re.fullmatch(
        r"estimate of london, 1 min 3\d s old: p99 of all readings: messages lost 9, age of the oldest 1\.50 s, "
        r"duplicates 4, drain 2\.00 s; objectives missed: 9 message\(s\) lost where 0 are allowed",
        lines[at + 1],
    )


def test_a_lost_site_has_one_price_before_and_after(person: Person) -> None:
    recorded(person.twin, "serving", ago_s=90)
    estimated(person.twin)
    person.twin.kill("london")
    price = (
        r"likely \d+, at most 1[01]\d\d message\(s\) may be lost, the oldest of them up to 1 min 3\d s old, "
        r"likely \d+, at most 1[01]\d\d duplicate"
    )

    refused = person.types("failover --to paris --yes")
    dry = person.types(f"failover --to paris --accept-loss 2000 {DOUBLES} --dry-run")
    planned = person.types(f"plan failover --to paris --accept-loss 2000 {DOUBLES}")
    ended = person.types(f"failover --to paris --accept-loss 2000 {DOUBLES} --yes")

    assert refused.code == 11
    assert re.search(r"DR-LOSS-001  up to 1[01]\d\d message\(s\) may be lost, the objectives allow 0; ", refused.out)
    assert re.search(price, refused.out)
    assert refused.out.count("neither shipped nor consumed at the reading of") == 1
    for screen in (dry, planned, ended):
        assert len(re.findall(price, screen.out)) == 1
        assert "if london died" not in screen.out + screen.err
    assert (dry.code, planned.code, ended.code) == (0, 0, 0)


def test_what_was_sick_a_moment_ago_is_refused_as_sick_and_a_word_on_it_is_told_back(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = recorded(person.twin, "sick", ago_s=10)
    settings = Path(person.twin.settings_path)
    port = person.twin.host("london").broker.console_port
    away = settings.with_name("away.yaml")  # what stands there is no management: nothing is known of the site
    away.write_text(settings.read_text(encoding="utf-8").replace(f":{port}/console/jolokia", f":{port}/"), "utf-8")
    monkeypatch.setenv("DR_CTL_CONFIG", str(away))
    for site in ("london", "paris"):
        person.twin.cut(site)
    until(lambda: not any(person.twin.host(site).broker.attached for site in ("london", "paris")))

    asked = person.types("failover --to paris --dry-run")

    assert asked.code == 12
    assert f"; it was sick, and so alive, at {stamp(last)}" in asked.out
    assert "End that process for certain, or cut its host off; only then:" in asked.remedy("DR-ALIVE-002")
    powered_off = f"--presume-down london --reason 'powered off' --accept-loss 5000 {DOUBLES}"
    ended = person.types(f"failover --to paris --yes {powered_off}")
    assert (ended.code, serving(person.twin)[-1]) == (0, "paris")
    assert f"london was sick, and so alive, at {stamp(last)}: that it serves nobody now rests on your word" in ended.out


def test_a_site_that_is_back_says_why_it_still_ships_and_what_of_it_came_twice(person: Person) -> None:
    london, paris = (person.twin.host(site).broker for site in ("london", "paris"))
    put(person.twin, "london", "orders.in", 3)
    person.twin.wait_mirrored()
    person.twin.cut("london")
    until(lambda: not london.attached)
    take(person.twin, "london", "orders.in")
    person.twin.kill("london")
    assert person.types("failover --to paris --yes --accept-loss unknown --accept-duplicates unknown").code == 0
    for _ in range(2):  # the first was done at London already, and nobody could tell
        take(person.twin, "paris", "orders.in")
    person.twin.heal()
    person.twin.start("london")
    until(lambda: paris.attached and paris.even)

    first = person.types("status")
    taken_in = person.types("reinstate london --yes")

    assert "paris keeps it out on purpose until `dr-ctl reinstate london`; it grows by echoes of what" in first.out
    assert "the link is down" not in first.out
    assert taken_in.code == 0
    assert "0 message(s) and 2 acknowledgement(s), 1 of these written since it is back" in taken_in.err
    assert "; 1 message(s) done at london before the loss were not here any more: each was known" in taken_in.err
    assert "; 1 acknowledgement(s) that london wrote since it is back are echoes, harmless" in taken_in.err
    assert "keeps it out" not in person.types("status").out
    [report] = re.findall(r"report: (\S+)", taken_in.out)
    assert "none; no delivery for" in Path(report).read_text(encoding="utf-8")


def test_the_return_says_what_it_is_made_of(person: Person) -> None:
    said = " ".join(person.types("failback --help").out.split())

    assert "take it in (as `reinstate`), ask, then move the service back to it (as `swapover`)" in said


@pytest.mark.parametrize("saved", [False, True])
def test_a_reason_is_kept_in_the_journal(person: Person, saved: bool) -> None:
    more = ""
    if saved:
        path = Path(person.twin.settings_path).with_name("plan.json")
        assert person.types(f"plan swapover --to paris --out {path}").code == 0
        more = f" --plan {path}"

    assert person.types(f"swapover --to paris --yes --reason rehearsal{more}").code == 0
    [journal] = Path(person.twin.settings_path).parent.parent.glob("state/runs/*/journal.jsonl")
    assert '"reason":"rehearsal"' in journal.read_text(encoding="utf-8").splitlines()[0]
