"""Past runs as `runs`, `history` and a bundle show them, and a run that is followed; and that neither a bundle nor a
screen tells a password or lets a name command the terminal."""

import base64
import getpass
import hashlib
import html
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import yaml

from dr_ctl.core.errors import Stopped
from dr_ctl.core.system import ThisMachine, running_on, system
from dr_ctl.engine.plan import PlannedStep, Spec
from dr_ctl.engine.record import record
from dr_ctl.engine.runs import RunFiles
from dr_ctl.rpo.history.row import Row
from dr_ctl_lab.twin.console import ADMIN
from tests.cli.conftest import ACCEPTED, Shell, failover
from tests.cli.sites import NOT_NOW, Sites
from tests.report import scribe
from tests.report.scribe import NAME, Scribe, aborted, call, cut_off, done
from tests.report.test_page import Form, plain
from tests.rpo.files import write

OTHER = "20261122T020000Z-swapover-paris-1b2c"


def test_a_run_that_two_people_worked_on_names_both_and_a_damaged_result_hides_no_other(dr_ctl: Shell) -> None:
    aborted(dr_ctl.run())
    done(dr_ctl.run(OTHER))
    result = dr_ctl.state / "runs" / OTHER / "result.json"
    for text in ("", "[]", '{"outcome": "ok"}', "\udcff"):
        result.write_bytes(text.encode(errors="surrogateescape"))

        undone, damaged = dr_ctl("runs", "list", "--json").document["data"]["runs"]

        assert (undone["by"], undone["took_s"], undone["outcome"]) == ("ada@ops-1, bob@ops-2", 65.0, "aborted")
        assert damaged["outcome"] == "unknown"
        assert "result.json cannot be read" in damaged["summary"]


def test_signals_refusals_and_undone_steps_are_shown(dr_ctl: Shell) -> None:
    scribe = Scribe(dr_ctl.run()).begin().start("fence")
    scribe.sent("fence", call("close acceptor clients at london"), outcome="refused", text="no such acceptor")
    scribe.journal.signal("interrupted")
    scribe.undo("fence", 0.5).end(130, "interrupted", "stopped by a signal; undone")

    out = dr_ctl("runs", "show").out

    assert "refused: no such acceptor" in out
    assert "signal: interrupted" in out
    assert "06-fence: undone: put back" in out


def test_a_run_says_of_which_installation_it_was_and_how_it_was_asked_for(dr_ctl: Shell, sites: Sites) -> None:
    words = ["swapover", "--to", "paris", "--yes", "--reason", "change 4711"]

    run = dr_ctl(*words, "--json").document["run"]

    kept = record(RunFiles(run, dr_ctl.state / "runs" / run))
    [author] = kept.authors
    typed = dr_ctl.journal(run)[0]["evidence"]["by"]["command"]
    assert typed == "dr-ctl swapover --to paris --yes --reason 'change 4711' --json"
    assert author == f"{getpass.getuser()}@{socket.gethostname()}"
    digest = hashlib.sha256((dr_ctl.folder / "dr-ctl.yaml").read_bytes()).hexdigest()
    assert kept.installation == {
        "name": "orders",
        "topology": "artemis-mirror",
        "settings": {"file": "dr-ctl.yaml", "sha256": digest},
        "brokers": {site: [f"orders-1 at {url}"] for site, url in sites.urls.items()},
        "objectives": None,
    }
    assert kept.let_in is not None
    assert kept.let_in.site == "paris"
    assert (kept.reason, kept.epoch, kept.outcome) == ("change 4711", 1, "ok")


def test_the_index_leads_to_the_reports_beside_it_and_elsewhere_nowhere(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    (dr_ctl.folder / "sent").mkdir()
    report, index = dr_ctl("runs", "report", "--json"), ("runs", "report", "--index", "--since", "2026-11-01")

    beside, sent = dr_ctl(*index, "--json"), dr_ctl(*index, "--out", "sent/year.html")

    path = dr_ctl.state / "index.html"
    page = dr_ctl.state / "runs" / NAME / "report.html"
    assert (report.code, report.document["data"], report.document["run"]) == (0, {"report": str(page)}, NAME)
    assert (beside.code, beside.document["data"], sent.code) == (0, {"report": str(path)}, 0)
    assert f'href="runs/{NAME}/report.html"' in path.read_text("utf-8")
    text = (dr_ctl.folder / "sent" / "year.html").read_text("utf-8")
    assert ("Swapover from london to paris" in text, "href" in text) == (True, False)


@pytest.fixture
def folder(dr_ctl: Shell) -> Path:
    return dr_ctl.run()


class Waiting(ThisMachine):
    """Time passes only while somebody waits, and then a step is taken."""

    def __init__(self, steps: Iterator[object]) -> None:
        self._steps, self._passed_s = steps, 0.0

    def monotonic(self) -> float:
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        self._passed_s += seconds
        next(self._steps)


Meanwhile = Callable[[Iterator[object]], None]


@pytest.fixture
def meanwhile() -> Iterator[Meanwhile]:
    """Lets a run take its next step whenever its follower waits."""
    with ExitStack() as until_the_end:
        yield lambda steps: until_the_end.enter_context(running_on(Waiting(steps)))


def test_a_run_that_has_ended_is_shown_to_its_end_at_once(dr_ctl: Shell, folder: Path) -> None:
    done(folder)

    followed, past = dr_ctl("runs", "show", "--follow", NAME[:10]), dr_ctl("runs", "show")

    assert followed.code == 0
    assert followed.out.splitlines()[-1] == past.out.splitlines()[-1] == f"{NAME}: ok: paris serves"
    waits = [line for line in followed.out.splitlines() if "outflow" in line or "delivering" in line]
    assert [line for line in followed.out.splitlines() if line not in waits] == past.out.splitlines()
    assert waits[0].endswith("delivering 7")


def test_lines_come_as_they_are_written_and_the_end_is_told(
    dr_ctl: Shell, folder: Path, meanwhile: Meanwhile, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def run() -> Iterator[object]:
        scribe = Scribe(folder)
        yield
        for act in (
            scribe.begin,
            lambda: scribe.start("fence"),
            lambda: scribe.sent("fence", call("close acceptor clients at london")),
            lambda: scribe.stop("fence"),
            lambda: scribe.end(0, "ok", "paris serves"),
        ):
            seen.append(capsys.readouterr().out)
            yield act()

    meanwhile(run())

    ended = dr_ctl("runs", "show", "--follow")

    assert [len(out.splitlines()) for out in seen] == [0, 0, 1, 1, 1]
    assert "06-fence: started" in seen[2]
    assert "call: close acceptor clients at london" in seen[3]
    assert "06-fence: succeeded" in seen[4]
    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"{NAME}: ok: paris serves")


def test_a_line_that_is_half_written_is_waited_for(dr_ctl: Shell, folder: Path, meanwhile: Meanwhile) -> None:
    scribe = Scribe(folder).begin()
    scribe.start("fence")
    whole = scribe.files.journal.read_bytes()
    first = whole.index(b"\n") + 1

    def run() -> Iterator[object]:
        yield scribe.files.journal.write_bytes(whole[: first + 40])
        yield scribe.files.journal.write_bytes(whole)
        yield scribe.close()

    scribe.files.journal.write_bytes(whole[:first])
    meanwhile(run())

    ended = dr_ctl("runs", "show", "--follow", "--json")

    assert [json.loads(line).get("seq") for line in ended.out.splitlines()] == [1, 2, None]


def test_waits_are_told_once_a_second_to_people_and_whole_to_scripts(dr_ctl: Shell, folder: Path) -> None:
    scribe = Scribe(folder).begin().start("drain")
    for left in range(40):
        scribe.sample("drain", {"london": {"outflow": 40 - left, "attached": False}, "paris": {"outflow": 0}}).let(0.1)
    scribe.close()

    text, items = dr_ctl("runs", "show", "--follow"), dr_ctl("runs", "show", "--follow", "--json")

    waits = [line for line in text.out.splitlines() if "outflow" in line]
    assert waits[0].endswith("Z      london: outflow 40, not attached; paris: outflow 0")
    assert len(waits) == 4
    assert sum(json.loads(line).get("kind") == "sample" for line in items.out.splitlines()) == 40


def test_ctrl_c_ends_the_showing_and_not_the_run(dr_ctl: Shell, folder: Path, meanwhile: Meanwhile) -> None:
    scribe = Scribe(folder).begin()

    def stop() -> Iterator[object]:
        raise Stopped(2)
        yield

    meanwhile(stop())

    ended = dr_ctl("runs", "show", "--follow")

    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"{NAME} is no longer followed; the run goes on")
    scribe.close()


def test_a_run_that_never_begins_is_not_waited_for_for_ever(dr_ctl: Shell, folder: Path, meanwhile: Meanwhile) -> None:
    meanwhile(iter(range(1000)))

    for more in ([], ["--follow"]):
        ended = dr_ctl("runs", "show", *more)

        assert (ended.code, ended.out) == (0, f"{NAME}: none: it never began: nothing was changed by it\n")


def test_a_damaged_line_is_not_passed_over(dr_ctl: Shell, folder: Path) -> None:
    done(folder)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"seq":4,', b'"seq":;,'))

    ended = dr_ctl("runs", "show", "--follow")

    assert ended.code == 1
    assert "line 4 is not a journal line" in ended.out


def test_the_page_of_a_failover_with_a_loss_is_amber_and_its_outage_as_was_seen(dr_ctl: Shell, sites: Sites) -> None:
    sites.lose()

    ended = failover(dr_ctl, "--yes", *ACCEPTED)

    form = Form((dr_ctl.state / "runs" / ended.document["run"] / "report.html").read_text("utf-8"))
    [tone] = [attributes["class"] for _, attributes in form.tags if attributes.get("id") == "verdict"]
    assert (ended.code, tone) == (0, "verdict is-cost"), ended.document
    assert "may be lost" in form.sections["verdict"]
    assert "2 debt(s) are pending" in plain(form.text)
    assert re.match(r"Clients out: at least [\d.]+ m?s London was first seen down", form.sections["outage"])


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
    run = Scribe(path).begin(replace(scribe.plan(spec=Spec("failover", "paris", reason="INC-7")), source="london"))
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
    run.begin(replace(scribe.plan(spec=Spec("fence", "london"), steps=steps), source="paris", serving=("london",)))
    run.start("fence").sent("fence", call("close acceptor clients at paris", "paris"), took=0.5).stop("fence")
    pairs = [{"name": name, "serving": site} for name, site in served.items()]
    run.end(code, outcome, "paris is fenced", pairs=pairs, command="fence")

    [turn] = told(dr_ctl)

    assert (turn["serving"], turn["known"]) == (serving, known)
    assert turn["text"].endswith(f"({NAME}){left}")
    assert ("  not known  " in dr_ctl("history").out.splitlines()[1]) is not known


@pytest.mark.parametrize(("lost", "at_least"), [("down", 11.0), ("unknown", None)])
def test_a_failover_was_out_since_the_site_was_seen_down(dr_ctl: Shell, lost: str, at_least: float | None) -> None:
    dr_ctl.settings()
    failed_over(dr_ctl.run())
    looks(dr_ctl, "london", ("serving", -60, -8), ("unknown", -7, -7), (lost, -6, 60))
    looks(dr_ctl, "paris", ("standby", -60, 4), ("serving", 6, 60))

    before, turn = told(dr_ctl)[-2:]

    assert (turn["run"], turn["at"]) == (NAME, "2026-11-21T02:00:05.000Z")
    assert turn["out_s"] == {"at_least": at_least, "at_most": 13.0}
    if at_least:
        assert (before["serving"], before["at"]) == (None, "2026-11-21T01:59:54.000Z")
        assert "11 s to 13 s" in dr_ctl("history").out


def test_a_look_at_a_site_that_an_unfence_has_just_opened_ends_no_outage(dr_ctl: Shell) -> None:
    dr_ctl.settings()
    run, steps = Scribe(dr_ctl.run()), (PlannedStep(1, "unfence", "london", "clients in"),)
    run.begin(replace(scribe.plan(spec=Spec("unfence", "london"), steps=steps), source="london"))
    run.start("unfence").sent("unfence", call("open acceptor clients at london"), took=4.0).stop("unfence")
    run.end(0, "ok", "london serves", pairs=[{"name": "orders-1", "serving": "london"}], command="unfence")
    looks(dr_ctl, "london", ("serving", -60, -8), ("down", -6, 0), ("serving", 2, 60))

    assert told(dr_ctl)[-1].items() >= {"run": NAME, "out_s": {"at_least": 10.0, "at_most": 12.0}}.items()


def test_a_pause_of_the_looks_is_no_outage_and_a_file_that_is_torn_is_named(dr_ctl: Shell) -> None:
    dr_ctl.settings()
    looks(dr_ctl, "london", ("serving", -60, 0), ("unknown", 2, 9), ("serving", 900, 930))
    path = next((dr_ctl.folder / "history").glob("date=*/site=london/*.parquet"))
    path.with_name("torn.parquet").write_bytes(path.read_bytes()[:100])

    ended = dr_ctl("history", "--json")

    assert ended.ids == ["DR-RPO-002"]
    assert [turn["serving"] for turn in ended.document["data"]["history"]] == ["london"]


WORD = "pa55\"w&rd-über<alles>/'x"
TOKENS = ("t0ken-of-a-hook", "t0ken-of-spark", "t0ken-of-an-address", "t0ken-of-a-command")
BEGAN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)  # of the scribe's runs
WAYS: Mapping[str, dict[str, Any]] = {
    "env": {"env": "DR_CTL_TEST_WORD"},
    "file": {"file": "word"},
    "plain": {"plain": WORD},
    "command": {"command": ["sh", "-c", "cat word", TOKENS[3]]},
}
LOGIN = base64.b64encode(f"{ADMIN}:{WORD}".encode()).decode()
SEARCHED = [
    *(WORD, LOGIN, base64.b64encode(WORD.encode()).decode(), WORD.encode("ascii", "backslashreplace").decode()),
    *(json.dumps(WORD)[1:-1], json.dumps(WORD, ensure_ascii=False)[1:-1], repr(WORD)[1:-1]),
    *(quote(WORD, safe=""), html.escape(WORD)),
]


def bundled(dr_ctl: Shell, *words: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    ended = dr_ctl("runs", "bundle", *words, "--json")
    assert ended.code == 0, ended.out
    parts = {}
    with tarfile.open(dr_ctl.folder / ended.document["data"]["bundle"]) as archive:
        for member in archive.getmembers():
            assert member.mode == 0o600
            if (file := archive.extractfile(member)) is not None:
                parts[member.name.removeprefix(f"{ended.document['run']}/")] = file.read()
    return ended.document, parts


def test_the_settings_in_it_say_what_they_may(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    more = {"spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}}, "drain": {"timeout": "30s"}}
    dr_ctl.settings(password={"plain": WORD}, **more)

    settings = yaml.safe_load(bundled(dr_ctl)[1]["settings.yaml"])

    broker = settings["sites"]["london"]["brokers"][0]
    assert broker["password"] == {"plain": "***"}
    assert (broker["jolokia"], broker["username"]) == ("http://london:8161/console/jolokia", ADMIN)
    assert settings["spark"] == {"master": "local[2]", "conf": {"spark.ui.enabled": "***"}}
    assert settings["drain"] == {"timeout": 30.0}


def test_a_file_with_a_password_in_it_stays_here_and_that_is_told(dr_ctl: Shell, nobody: str) -> None:
    folder = dr_ctl.run()
    done(folder)
    dr_ctl.settings(nobody, nobody, {"plain": WORD})
    with (folder / "plan.json").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"why": f"Basic {LOGIN}"}))

    document, parts = bundled(dr_ctl)

    [text] = [finding["text"] for finding in document["findings"] if "plan.json" in finding["text"]]
    assert text == "plan.json was left out: it contains a password of the settings"
    assert "plan.json" not in parts
    assert "plan.json was left out" in " ".join(json.loads(parts["bundle.json"])["left_out"])


def test_it_can_be_verified_where_it_arrives(dr_ctl: Shell, tmp_path: Path) -> None:
    done(dr_ctl.run())

    document, parts = bundled(dr_ctl)

    manifest = json.loads(parts["bundle.json"])
    assert manifest["verified"]["verdict"] == "whole"
    assert {name: value["sha256"] for name, value in manifest["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in parts.items() if name != "bundle.json"
    }
    packed = (dr_ctl.folder / f"{NAME}.tar.gz").read_bytes()
    assert document["data"]["sha256"] == hashlib.sha256(packed).hexdigest()
    versions = json.loads(parts["versions.json"])
    assert versions["packages"]["pydantic"] is not None
    remote = tmp_path / "there"
    for name, content in parts.items():
        path = remote / "runs" / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert dr_ctl("--state-dir", str(remote), "runs", "verify", NAME).code == 0


def test_the_hour_before_the_run_goes_with_it_and_no_more(dr_ctl: Shell, nobody: str) -> None:
    done(dr_ctl.run())
    minutes = (-61, -59, -1, 0, 5)
    write([read(BEGAN + timedelta(minutes=minute)) for minute in minutes], dr_ctl.folder / "history")

    _, parts = bundled(dr_ctl)

    (name,) = [name for name in parts if name.endswith(".parquet")]
    stamps = pq.read_table(BytesIO(parts[name]))["ts"].to_pylist()
    assert name.startswith("history/date=2026-11-21/site=london/20261121T010100-")
    assert stamps == [BEGAN + timedelta(minutes=case) for case in (-59, -1, 0)]


def test_an_open_run_without_settings_that_can_be_read_is_bundled_and_what_is_missing_told(dr_ctl: Shell) -> None:
    cut_off(dr_ctl.run())

    document, parts = bundled(dr_ctl)
    (dr_ctl.folder / "dr-ctl.yaml").write_text(f"version: 1\npassword: {WORD!r}\n", encoding="utf-8")
    unread, beside = bundled(dr_ctl, "--out", "another.tar.gz")

    assert {*parts} == {"bundle.json", "plan.json", "journal.jsonl", "report.html", "versions.json"}
    assert [finding["id"] for finding in document["findings"]] == ["DR-BUNDLE-001"]
    assert json.loads(parts["bundle.json"])["verified"]["verdict"] == "open"
    assert any("settings could not be read" in finding["text"] for finding in unread["findings"])
    assert beside.keys() == parts.keys()
    assert [name for name, content in beside.items() if WORD.encode() in content] == []
    assert dr_ctl("runs", "bundle", "--out", "nowhere/b.tar.gz").code == 2


def read(at: datetime) -> Row:
    return Row(ts=at, site="london", pair="orders-1", kind="site", name="serving", start="s1")


COMMANDS = [
    ["status"],
    ["validate", "--json"],
    ["plan", "swapover", "--to", "paris", "--out", "plan.json"],
    ["swapover", "--to", "paris", "--json"],
    ["swapover", "--to", "paris", "--yes"],
    ["runs", "show", "--json"],
    ["runs", "report"],
]


def told_anywhere(dr_ctl: Shell, texts: list[str]) -> list[str]:
    kept = [path for path in (*dr_ctl.state.rglob("*"), dr_ctl.folder / "plan.json") if path.is_file()]
    places = {path.name: path.read_text(encoding="utf-8") for path in kept}
    places |= {f"output {number}": text for number, text in enumerate(texts)}
    return [place for place, text in places.items() if any(item in text for item in SEARCHED)]


def everything(dr_ctl: Shell) -> list[str]:
    printed = []
    for words in COMMANDS:
        ended = dr_ctl("--verbose", *words)
        assert "defect" not in ended.out
        printed += [ended.out, ended.err]
    return printed


@pytest.mark.parametrize("way", WAYS)
def test_it_is_used_and_not_kept(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    sites.password(WORD)
    monkeypatch.setenv("DR_CTL_TEST_WORD", WORD)
    (dr_ctl.folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    more = {
        "hooks": {"tell": {"run": ["true", "--token", TOKENS[0]]}},
        "after": [{"run": ["true", f"--auth={TOKENS[0]}"], "on": ["ok"]}],
        "spark": {"master": f"sc://ada:{TOKENS[2]}@127.0.0.1:9/;token={TOKENS[2]}", "conf": {"fs.key": TOKENS[1]}},
    }
    dr_ctl.settings(*sites.urls.values(), WAYS[way], drain={"poll": "5ms"}, **more)
    write([read(system().now() - timedelta(minutes=5))], dr_ctl.folder / "history")

    printed = everything(dr_ctl)
    document, parts = bundled(dr_ctl)

    assert sites.london.logins == sites.paris.logins == {f"Basic {LOGIN}"}
    assert told_anywhere(dr_ctl, printed) == []
    assert {"plan.json", "journal.jsonl", "result.json", "report.html", "settings.yaml"} < parts.keys()
    [looks] = [name for name in parts if name.endswith(".parquet")]
    table = pq.read_table(BytesIO(parts[looks]))  # the texts in it are packed
    parts["texts"] = repr([table.column(name).to_pylist() for name in ("pair", "kind", "name", "start")]).encode()
    parts["all"] = (dr_ctl.folder / document["data"]["bundle"]).read_bytes()
    words = [case.encode() for case in (*SEARCHED, *TOKENS)]
    assert [(name, word) for name, content in parts.items() for word in words if word in content] == []
    assert document["findings"] == []


def test_it_is_not_told_where_brokers_answer_errors_or_nothing(dr_ctl: Shell, sites: Sites, nobody: str) -> None:
    sites.password(WORD)
    for urls, says in ((sites.urls.values(), "not now"), ((nobody, nobody), "connection refused")):
        dr_ctl.settings(*urls, {"plain": WORD})
        sites.london.instead["read"] = NOT_NOW

        printed = everything(dr_ctl)

        assert any(says in text for text in printed)
        assert told_anywhere(dr_ctl, printed) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"plain": WORD, "env": "A"},
        {"plain": [WORD]},
        {"plian": WORD},
        {"command": ["sh", "-c", "cat word >&2; exit 3"]},
        {"file": "word", "command": ["cat", "word"]},
    ],
)
def test_it_is_not_told_where_the_settings_are_wrong(dr_ctl: Shell, nobody: str, damage: dict[str, Any]) -> None:
    (dr_ctl.folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    dr_ctl.settings(nobody, nobody, damage)

    printed = everything(dr_ctl)

    assert any("password" in text or "secret" in text for text in printed)
    assert told_anywhere(dr_ctl, printed) == []


FORGED = "paris serves; nothing is under way"
NAMES = [f"orders\x1b[2J\x1b]0;{FORGED}\x07", f"a\n{FORGED}\nb", "\u202eni.sredro", "größe→.in"]
SHOWING = [
    ["status"],
    ["validate"],
    ["plan", "swapover", "--to", "paris"],
    ["swapover", "--to", "paris", "--yes"],
    ["runs", "show"],
]


@pytest.fixture
def hostile(sites: Sites) -> Sites:
    """At London only, so that checks and plans name them, and paused by an administrator, so that status does."""
    for name in NAMES:
        sites.london.queue(name, paused=True)
    return sites


@pytest.mark.parametrize("words", SHOWING, ids=" ".join)
def test_no_name_commands_the_terminal_or_forges_a_line(dr_ctl: Shell, hostile: Sites, words: list[str]) -> None:
    if words[0] == "runs":
        dr_ctl("swapover", "--to", "paris", "--yes")

    ended = dr_ctl(*words)

    shown = ended.out + ended.err
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert FORGED not in [text.strip() for text in shown.splitlines()]
    assert words != ["status"] or all(name in shown for name in (r"a\npar", r"\x1b[2J", "größe→.in"))


@pytest.mark.wire
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("more", "shown"), [((), r"größe\u2192.in"), (("--json",), r"gr\u00f6\u00dfe\u2192.in")])
def test_a_stream_that_cannot_write_a_name_does_not_end_the_command(more: tuple[str, ...], shown: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-m", "dr_ctl", "status", *more]

    text = subprocess.run(words, capture_output=True, encoding="latin-1", check=False, timeout=60, env=environment)

    assert (text.returncode, shown in text.stdout) == (0, True), text.stdout + text.stderr


@pytest.mark.wire
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_modules_load_ends_the_command_in_words(number: signal.Signals, code: int) -> None:
    program = f"""
import importlib.abc, os, sys
class Struck(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "dr_ctl.cli.runs":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Struck())
sys.argv = ["dr-ctl", "status", "--json"]
from dr_ctl.__main__ import main
main()"""

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, json.loads(ended.stdout)["outcome"], ended.stderr) == (code, "interrupted", "")
