"""`status`, `validate` and `plan`: what they say of sites; verdicts, watching, and without brokers."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.application.installation import looking
from dr_ctl.cli import screen
from dr_ctl.core.errors import Stopped
from dr_ctl.core.system import system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.topologies import registry
from tests.cli.conftest import Shell
from tests.cli.sites import Sites
from tests.cli.terminal import at_terminal
from tests.cli.test_preflight import keep
from tests.looks import looked


def test_both_sites_are_asked_before_what_tells_of_them_is_loaded() -> None:
    late = ("dr_ctl.application.status", "dr_ctl.engine.planner", "dr_ctl.rpo.estimate.result", "stomp", "rich")
    code = f"import sys, dr_ctl.cli.show; print([each for each in {late} if each in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


class Frozen:
    """A topology whose brokers answer nothing until nobody asks any more."""

    def __init__(self) -> None:
        self._closed = Event()
        self.gave_up = False

    def read(self, *, over_s: float) -> None:
        assert over_s > 0
        self.gave_up = self._closed.wait(20)

    def close(self) -> None:
        self._closed.set()


@pytest.mark.usefixtures("sites")
def test_a_message_in_traffic_was_seen_just_now(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dr_ctl.topologies.common.snapshot._traffic", lambda *_: (20.0, 19.5))
    lines = dr_ctl("status", "-o", "wide").out.splitlines()
    assert ["now" in lines[1].split(), "not known" in lines[2]] == [True, True], lines
    assert "20.0/s in, 19.5/s consumed between two readings; last message seen just now" in dr_ctl("status").out


def test_who_gives_up_waits_for_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, runs = Frozen(), SimpleNamespace(documents=None)
    caller: Any = SimpleNamespace(installation=lambda: None, timeouts=Timeouts(), runs=lambda: runs, state=Path)
    monkeypatch.setattr(registry, "opened", lambda *_: frozen)

    with pytest.raises(Stopped), looking(caller):
        raise Stopped(signal.SIGINT)

    assert frozen.gave_up


def test_a_plan_names_every_call_however_many(dr_ctl: Shell, sites: Sites) -> None:
    for number in range(20):
        sites.london.queue(f"q{number}")
        sites.paris.queue(f"q{number}")

    text, rows = (dr_ctl("plan", "swapover", "--to", "paris", *more) for more in ([], ["--json"]))

    lines = [line.strip() for line in text.out.splitlines()]
    assert {f"pause q{number} at london" for number in range(20)} <= {*lines}
    assert " more" not in text.out
    plan = rows.document["data"]["plan"]
    assert [len(step["calls"]) for step in plan["steps"] if step["verb"] == "quiesce"] == [23]
    assert plan["point_of_no_return"] == 9


SITUATIONS: dict[str, Callable[[Sites], object]] = {
    "as it is": lambda sites: None,
    "closed": lambda sites: sites.london.keep_out(),
    "moved": lambda sites: (sites.london.keep_out(), sites.paris.let_in()),
    "both": lambda sites: sites.paris.let_in(),
    "stopped": lambda sites: setattr(sites.london.broker.link, "started", False),
    "killed": lambda sites: sites.twin.kill("london"),
}


@pytest.mark.parametrize("to", ["london", "paris"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_dry_run_with_what_it_needs_says_the_verdict(dr_ctl: Shell, sites: Sites, situation: str, to: str) -> None:
    SITUATIONS[situation](sites)

    for name, item in dr_ctl("validate", "--to", to, "--json").document["data"]["operations"].items():
        site = [to] if name == "reinstate" else ["--to", to]
        needs = [word.replace("TEXT", "it is gone") for need in item["needs"] for word in need.split(" ")]
        ended = dr_ctl(name, *site, *needs, "--dry-run", "--json")
        waits = "not attached" in item["verdict"]  # the checks do not refuse that: the run would wait, and give up
        exposed = item["verdict"].startswith("refused without --")  # who owns the limit may say those words
        is_well = item["exit_code"] == 0 or waits or exposed
        assert (ended.code == 0) is is_well, (name, item, ended.document["summary"])
        assert ("ready" in item["verdict"].split(" ")[:1][0]) <= (item["exit_code"] == 0)


def test_every_check_has_a_name_a_verdict_its_evidence_and_its_age(dr_ctl: Shell, sites: Sites) -> None:
    ended = dr_ctl("validate", "--verbose", "--json")
    text = dr_ctl("validate", "--verbose").out

    checks = ended.document["data"]["checks"]
    assert len({check["name"] for check in checks}) >= 40
    assert {check["verdict"] for check in checks} <= {"holds", "warns", "fails", "not read"}
    assert all(check["evidence"] and check["age_s"] >= 0 for check in checks if check["verdict"] != "not read")
    assert all(f"{check['verdict']:<8}  {check['name']} (" in text for check in checks)
    assert f"{len(checks)} checks: " in text
    assert dr_ctl("--verbose", "validate", "--json").document["data"].keys() == ended.document["data"].keys()


def test_what_was_not_read_is_never_ready_and_what_fails_is_named(dr_ctl: Shell, sites: Sites, nobody: str) -> None:
    dr_ctl.settings(*sites.urls.values())
    sites.london.broker.link.started = False
    fails = dr_ctl("validate", "--verbose", "--json").document["data"]["checks"]
    dr_ctl.settings(nobody, sites.urls["paris"])
    content = dr_ctl("validate", "--verbose", "--json").document["data"]

    [link] = [fail for fail in fails if fail["findings"] == ["DR-LINK-003"]]
    assert (link["where"], link["name"], link["verdict"]) == ("london/orders-1", "the link is started", "fails")
    of_london = [item for item in content["checks"] if item["where"] == "london/orders-1"]
    assert len(of_london) > 20
    assert {(item["verdict"], item["evidence"], item["age_s"]) for item in of_london} == {("not read", None, None)}
    assert "ready" not in {content["operations"][name]["verdict"] for name in ("swapover", "failback", "reinstate")}


Stop = Callable[[int, int], list[float]]


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:

    def stopped(looks: int, signum: int) -> list[float]:
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == looks:
                raise Stopped(signum)

        machine = SimpleNamespace(now=system().now, monotonic=system().monotonic, sleep=sleep)
        monkeypatch.setattr(screen, "system", lambda: machine)
        return waits

    return stopped


def test_where_there_is_no_terminal_each_look_is_a_block_with_its_time(dr_ctl: Shell, sites: Sites, stop: Stop) -> None:
    waits = stop(3, signal.SIGINT)

    ended = dr_ctl("status", "--watch", "--every", "4s")

    *blocks, last = ended.out.split("\n\n")
    assert (ended.code, last) == (0, "no longer watched, after 3 reading(s)\n")
    assert len(blocks) == 3
    for block in blocks:
        first, *rest = block.splitlines()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first)
        assert (rest[0].split(), rest[-1]) == (["london", "serving"], "london serves")
    assert all(3 < wait <= 4 for wait in waits), "the time of the reading is part of the interval"


def test_as_json_each_look_is_a_document_and_the_end_is_one(dr_ctl: Shell, sites: Sites, stop: Stop) -> None:
    stop(2, signal.SIGINT)
    ended = dr_ctl("status", "--watch", "--json")
    stop(1, signal.SIGTERM)  # another signal is an interruption
    interrupted = dr_ctl("status", "--watch")

    first, second, last = ended.lines
    assert [result["summary"] for result in (first, second)] == ["london serves"] * 2
    assert (ended.code, last["outcome"], last["data"], interrupted.code) == (0, "ok", {}, 143)


@pytest.mark.wire
def test_at_a_terminal_it_is_in_place_and_its_last_look_stays(dr_ctl: Shell, sites: Sites) -> None:
    with at_terminal("status", "--watch", "--every", "100ms") as terminal:
        first = terminal.until("link london attached")
        sites.london.keep_out()
        changed = terminal.until("; before: london serves")
        terminal.type("\x03")
        code = terminal.ended()

    assert re.search(r"orders: as seen at \d\d:\d\d:\d\d UTC, 0 s ago; every 0.1 s  \(Ctrl-C ends\)", first)
    assert "DR-ROLE-015" in changed, "what is wrong stands above the sites"
    assert code == 0
    before, after = terminal.drawn.split("\x1b[?1049l")
    assert "\x1b[?1049h" in before
    assert "no site serves; start of the outage unknown" in after
    assert re.search(r"no longer watched, after \d+ reading\(s\)", after)
    assert "DR-INTERRUPTED" not in terminal.drawn


@pytest.mark.wire
def test_what_does_not_fit_is_counted_and_what_matters_fits(dr_ctl: Shell, sites: Sites) -> None:
    sites.london.keep_out()

    with at_terminal("status", "--watch", rows=8, columns=60) as terminal:
        text = terminal.until("more lines: `dr-ctl status` has all of them")

    assert "no site serves" in text
    assert "DR-ROLE-015" in text


ROOT = Path(__file__).parents[2]
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if "\ntopology:" in path.read_text("utf-8")]
PEM = re.compile(r"^ +tls: .*ca: ", re.MULTILINE)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is called, and no password is known."""

    def never(*_: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    for site in ("LONDON", "PARIS"):
        monkeypatch.delenv(f"{site}_PASSWORD", raising=False)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_stands_but_for_certificates_that_it_does_not_have(dr_ctl: Shell, example: Path) -> None:
    text = example.read_text(encoding="utf-8")

    ended = dr_ctl("--config", str(example), "validate", "--offline", "--json")

    assert (ended.code, ended.ids) == ((10, ["DR-SETTINGS-001"]) if PEM.search(text) else (0, [])), ended.document
    assert all(
        ".tls.ca" in finding["text"] for finding in ended.document["findings"]
    )  # these are the installation's own
    assert not dr_ctl.state.exists()


@pytest.mark.parametrize(("minutes", "is_told"), [(10, False), (18, True), (92 * 24 * 60, True)])
def test_an_estimate_that_no_run_would_take_is_old(dr_ctl: Shell, sites: Sites, minutes: float, is_told: bool) -> None:
    looked(dr_ctl.folder)
    keep(dr_ctl, minutes_ago=minutes)

    ended = dr_ctl("validate", "--verbose", "--json")

    [check] = [item for item in ended.document["data"]["checks"] if item["name"] == "an estimate is stored, and fresh"]
    assert ("DR-RPO-018" in ended.ids) is is_told
    assert check["verdict"] == ("warns" if is_told else "holds")
