"""`status`, `validate` and `plan`: what they say of a pair that answers, in part or whole, and of one that does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dr_ctl.application.looking import looking
from dr_ctl.core.errors import Stopped
from dr_ctl.core.patience import Patience
from dr_ctl.topologies import registry
from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.test_stored_estimate import keep
from tests.looks import looked
from tests.twin.subject import Client

NOTHING_READ = {"role": "unknown", "clients": None, "in_per_s": None, "consumed_per_s": None}


def stop_link(twin: PlayedTwin, site: str = "london") -> None:
    with twin.still():
        twin.host(site).broker.stop_link()


def test_both_sites_are_asked_before_what_tells_of_them_is_loaded() -> None:
    late = ("dr_ctl.application.status", "dr_ctl.engine.planner", "dr_ctl.rpo.estimate.result", "stomp", "rich")
    code = f"import sys, dr_ctl.cli.show; print([each for each in {late} if each in sys.modules])"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.strip() == "[]"


class Frozen:
    """A topology whose brokers answer nothing until nobody asks any more."""

    def __init__(self) -> None:
        self._closed = Event()
        self.gave_up = False

    def look(self, *, over_s: float) -> None:
        assert over_s > 0
        self.gave_up = self._closed.wait(20)

    def close(self) -> None:
        self._closed.set()


def test_who_gives_up_waits_for_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, runs = Frozen(), SimpleNamespace(documents=None)
    caller: Any = SimpleNamespace(installation=lambda: None, clock=None, patience=Patience(), runs=lambda: runs)
    monkeypatch.setattr(registry, "opened", lambda *_: frozen)

    with pytest.raises(Stopped), looking(caller):
        raise Stopped(signal.SIGINT)

    assert frozen.gave_up


def test_status_does_not_say_that_nobody_is_served_where_a_site_was_not_read(
    dr_ctl: Shell, installation: Installation, nobody: str
) -> None:
    """That site serves: it is only not reached by what the settings say."""
    dr_ctl.settings(nobody, installation.urls["paris"])

    ended = dr_ctl("status")

    assert "no site was seen to serve: london is unknown" in ended.out
    assert "nobody was seen to be served; since when is not known" in ended.out
    assert "nobody is served" not in ended.out


LOOKS = [["status"], ["validate"], ["plan", "swapover", "--to", "paris"]]


def test_status_says_who_serves_and_how_the_links_stand(dr_ctl: Shell, installation: Installation) -> None:
    installation.london.holds_back(12)

    ended = dr_ctl("status", "--json")

    assert (ended.code, ended.document["summary"]) == (0, "london serves")
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert ended.document["data"]["sites"] == {
        "london": {"role": "serving", "clients": 0, "in_per_s": 0.0, "consumed_per_s": 0.0},
        "paris": {"role": "standby", "clients": 0, "in_per_s": 0.0, "consumed_per_s": 0.0},
    }
    assert ended.document["data"]["open_run"] is None
    london, paris = ended.document["data"]["links"]
    # Nothing was shipped between the two looks: that is a rate, but no time to drain follows from it.
    assert (london["outflow"], london["rate"], london["drain_s"], london["attached"]) == (12, 0.0, None, True)
    assert (paris["outflow"], paris["drain_s"], paris["pending_acks"]) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda twin: twin.cut("london", "hang"), "link paris attached; 12 to ship at 0.0/s, time to drain not known"),
        (lambda twin: twin.cut("london"), "link paris started, not attached"),
        (stop_link, "link paris not started"),
    ],
    ids=["hangs", "refuses", "stopped"],
)
def test_status_says_it_in_words_too(
    dr_ctl: Shell, installation: Installation, cut: Callable[[PlayedTwin], None], words: str
) -> None:
    cut(installation.twin)
    installation.london.put("orders.in", 12)

    ended = dr_ctl("status")

    assert ended.code == 0
    assert "london           serving\n  orders-1: clients open; 15 message(s) in 2 queue(s)" in ended.out
    assert words in ended.out


@pytest.mark.parametrize(
    ("london", "paris", "summary", "typed"),
    [
        (False, False, "no site serves", {"DR-ROLE-015": "dr-ctl unfence"}),
        (True, True, "both sites let clients in", {"DR-ROLE-001": "dr-ctl fence"}),
        (False, True, "paris serves", {}),
    ],
)
def test_status_takes_the_doors_for_what_they_are_and_says_what_to_type(
    dr_ctl: Shell, installation: Installation, london: bool, paris: bool, summary: str, typed: dict[str, str]
) -> None:
    for site, open_ in ((installation.london, london), (installation.paris, paris)):
        (site.let_in if open_ else site.keep_out)()

    ended = dr_ctl("status", "--json")

    serving = {"no site serves": None, "both sites let clients in": None}.get(summary, "paris")
    assert (ended.code, ended.document["summary"]) == (0, summary)
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": serving}]
    assert ended.ids == [*typed]
    assert all(typed[each["id"]] in each["remedy"] for each in ended.document["findings"])


def test_where_the_serving_site_is_gone_status_and_swapover_name_the_failover(
    dr_ctl: Shell, installation: Installation, nobody: str
) -> None:
    dr_ctl.settings(nobody, installation.urls["paris"])

    looked, moved = dr_ctl("status", "--json"), dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    told = {each["id"]: each["remedy"] for each in (*looked.document["findings"], *moved.document["findings"])}
    assert (looked.code, looked.ids) == (0, ["DR-SITE-001", "DR-ROLE-016"])
    assert (moved.code, moved.ids[0]) == (10, "DR-ROLE-005")
    assert "dr-ctl failover --to paris --dry-run" in told["DR-ROLE-016"]
    assert "dr-ctl failover --to paris --dry-run" in told["DR-ROLE-005"]


def test_status_names_pauses(dr_ctl: Shell, installation: Installation) -> None:
    installation.london.queue('held, "very"', paused=True)

    [finding] = dr_ctl("status", "--json").document["findings"]

    assert (finding["id"], finding["severity"]) == ("DR-QUEUE-001", "info")
    assert finding["text"] == 'london/orders-1: paused: held, "very"'


def test_one_site_that_does_not_answer_is_named_and_the_other_shown(
    dr_ctl: Shell, installation: Installation, nobody: str
) -> None:
    dr_ctl.settings(installation.urls["london"], nobody)

    status, verdict = dr_ctl("status", "--json"), dr_ctl("validate", "--json")

    assert (status.code, status.document["data"]["sites"]["paris"]) == (0, NOTHING_READ)
    assert [link["from"] for link in status.document["data"]["links"]] == ["london"]
    [finding] = status.document["findings"]
    assert finding["id"] == "DR-SITE-001"
    assert "connection refused" in finding["text"]
    assert finding["remedy"]
    said = verdict.document["data"]["operations"]["swapover"]["verdict"]
    assert (verdict.code, said) == (22, "unknown: paris cannot take over: london is serving, paris is unknown")


def test_a_broker_whose_figures_are_errors_is_unknown_and_never_empty(
    dr_ctl: Shell, installation: Installation
) -> None:
    installation.paris.says("PendingMirrorAcks", {".error": True, "error": "No such attribute"})

    ended = dr_ctl("status", "--json")

    assert ended.document["data"]["sites"]["paris"] == NOTHING_READ
    assert "PendingMirrorAcks should be a whole number" in ended.document["findings"][0]["text"]
    assert dr_ctl("swapover", "--to", "paris", "--yes", "--json").code == 10
    assert installation.changes == []


@pytest.mark.parametrize(
    ("words", "code", "outcome"),
    [
        (["status"], 22, "unknown"),
        (["validate"], 22, "unknown"),
        (["plan", "swapover", "--to", "paris"], 10, "precheck_failed"),
        (["swapover", "--to", "paris", "--yes"], 10, "precheck_failed"),
        (["swapover", "--to", "paris", "--dry-run"], 10, "precheck_failed"),
    ],
)
def test_where_no_site_answers_nothing_is_claimed(
    dr_ctl: Shell, nobody: str, words: list[str], code: int, outcome: str
) -> None:
    ended = dr_ctl(*words, "--json")

    assert (ended.code, ended.document["outcome"]) == (code, outcome)
    assert (ended.document["summary"] == "no site answered") is (words == ["status"])
    silent = [finding for finding in ended.document["findings"] if finding["id"] == "DR-SITE-001"]
    assert [finding["text"].partition("/")[0] for finding in silent] == ["london", "paris"]
    assert all("unknown" in finding["text"] and finding["remedy"] for finding in silent)
    assert not (dr_ctl.state / "runs").exists()


def test_a_ready_pair_is_called_ready(dr_ctl: Shell, installation: Installation) -> None:
    looked(dr_ctl.folder)
    keep(dr_ctl)

    ended = dr_ctl("validate", "--json")

    told = {
        "swapover": ("ready", 0),
        "failover": ("refused while london serves; if london is lost: ready", 10),
        "failback": ("ready; nothing is owed, a swapover does the same", 0),
        "reinstate": ("nothing to do: paris is taken in already", 0),
    }
    assert ended.code == 0
    assert ended.document["summary"] == "; ".join(f"{name} to paris: {text}" for name, (text, _) in told.items())
    assert ended.document["data"]["operations"] == {
        name: {"to": "paris", "verdict": text, "exit_code": code, "needs": []} for name, (text, code) in told.items()
    }
    assert ended.document["data"]["fence"] == {"london": "lasting", "paris": "lasting"}
    assert ended.document["findings"] == []


def test_what_speaks_against_a_move_is_told_whole_with_its_remedies(dr_ctl: Shell, installation: Installation) -> None:
    installation.paris.let_in()
    client = Client(installation.twin.site("paris"), {"client-id": "early-bird"})
    client.subscribe("orders.in")
    installation.paris.broker.acceptors["clients"].started = False  # and it is still in
    stop_link(installation.twin, "paris")

    ended = dr_ctl("validate", "--for", "swapover", "--json")
    client.connection.close(politely=False)

    verdict = ended.document["data"]["operations"]["swapover"]["verdict"]
    assert (ended.code, verdict) == (10, "not ready: paris/orders-1: link london is not started")
    assert ended.ids == ["DR-LINK-003", "DR-STANDBY-001", "DR-MON-002"]
    assert all(finding["remedy"] for finding in ended.document["findings"])


def test_a_plan_shows_each_step_its_calls_and_what_undoes_them(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl("plan", "swapover", "--to", "paris")

    lines = [line.strip() for line in ended.out.splitlines()]
    assert ended.code == 0
    assert lines[0] == "swapover from london to paris"
    order = ["pause orders.in at london", "close acceptor clients at london", "open acceptor clients at paris"]
    assert [line for line in lines if line in order] == order
    hangs = "the link is not attached, or ships nothing, although the peer answers"
    assert f"(stop link paris at london, only if {hangs}; at most 3)" in lines
    [border] = [place for place, line in enumerate(lines) if "--- point of no return" in line]
    assert lines.index(order[1]) < border < lines.index(order[2])
    assert "If it fails before the point of no return, this is undone: drain, fence, quiesce, catch-up." in lines
    assert any(line.endswith("[within 60 s, stall 20 s]") for line in lines)
    assert any(line.endswith("[within 60 s, stable 3 looks]") for line in lines)
    assert "Not replicated:" in lines
    assert "What a plan cannot know:" in lines
    assert "nothing was changed" in lines[-1]


def test_a_plan_names_every_call_however_many(dr_ctl: Shell, installation: Installation) -> None:
    for number in range(20):
        installation.london.queue(f"q{number}")
        installation.paris.queue(f"q{number}")

    text, told = (dr_ctl("plan", "swapover", "--to", "paris", *more) for more in ([], ["--json"]))

    lines = [line.strip() for line in text.out.splitlines()]
    assert [f"pause q{number} at london" in lines for number in range(20)] == [True] * 20
    assert " more" not in text.out
    steps: list[dict[str, Any]] = told.document["data"]["plan"]["steps"]
    assert len(next(step for step in steps if step["verb"] == "quiesce")["calls"]) == 23
    assert told.document["data"]["plan"]["point_of_no_return"] == 9


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_looking_changes_nothing_anywhere(dr_ctl: Shell, installation: Installation, words: list[str]) -> None:
    before = installation.settable

    assert dr_ctl(*words).code == 0
    assert (installation.changes, installation.settable, dr_ctl.state.exists()) == ([], before, False)


def test_every_command_says_where_certificates_are_not_verified(dr_ctl: Shell, installation: Installation) -> None:
    path = dr_ctl.settings(installation.london.url, installation.paris.url)
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    told["sites"]["london"]["tls"] = {"verify": False}
    path.write_text(yaml.safe_dump(told), encoding="utf-8")

    for words in (["status"], ["validate"], ["plan", "swapover", "--to", "paris"]):
        ended = dr_ctl(*words, "--json")
        named = [each["text"] for each in ended.document["findings"] if each["id"] == "DR-TLS-001"]
        assert len(named) == 1, words
        assert named[0].startswith("london:"), words
