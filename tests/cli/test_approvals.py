"""Who is asked before a run and told after it: plans that people sign, and commands that hear its end."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from tests.cli.conftest import Ended, Shell, begun, swapover
from tests.cli.sites import Sites
from tests.report.scribe import ADA, NAME, Scribe, aborted, done, undone

PLAN = "plan.json"


class Team:
    """People with an SSH key each. Ada and Bob are among the signers of the settings, Eve is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "keys"
        self.folder.mkdir(mode=0o700)
        for name in ("ada", "bob", "eve"):
            self.make(name)
        self.list("ada@example.com", "ada")
        self.list("bob@example.com", "bob")

    def key(self, name: str) -> Path:
        return self.folder / name

    def make(self, name: str) -> None:
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.key(name))]
        subprocess.run(words, check=True, timeout=30)

    def list(self, names: str, key: str, options: str = "") -> None:
        public = self.key(f"{key}.pub").read_text("utf-8")
        with (self.folder / "signers.allowed").open("a", encoding="utf-8") as file:
            file.write(" ".join(filter(None, (names, options, public))))


@pytest.fixture
def team(dr_ctl: Shell, sites: Sites) -> Team:
    """The installation's settings ask for two people before a swapover or a failover."""
    if shutil.which("ssh-keygen") is None:
        assert not os.environ.get("CI"), "ssh-keygen is missing: the Debian package openssh-client has it"
        pytest.skip("ssh-keygen is missing: the Debian package openssh-client has it")
    asked(dr_ctl, of=["swapover", "failover"])
    return Team(dr_ctl.folder)


def asked(dr_ctl: Shell, **approvals: Any) -> None:
    dr_ctl.add(approvals={"signers": "keys/signers.allowed", **approvals})


def planned(dr_ctl: Shell) -> Path:
    ended = dr_ctl("plan", "swapover", "--to", "paris", "--reason", "CHG-1", "--out", PLAN)
    assert ended.code == 0, ended.err
    return dr_ctl.folder / PLAN


def approve(dr_ctl: Shell, team: Team, *names: str) -> list[Ended]:
    return [dr_ctl("plan", "approve", PLAN, "--key", str(team.key(name)), "--yes", "--json") for name in names]


def refused(ended: Ended) -> str:
    """The first finding of a run that was refused for its approvals, before anything was sent."""
    first = ended.document["findings"][0]
    assert (ended.code, ended.document["run"], first["severity"]) == (10, None, "error"), ended.document
    return f"{first['id']} {first['text']} {first['remedy']}"


def test_a_plan_that_was_altered_after_a_signature_has_none(dr_ctl: Shell, sites: Sites, team: Team) -> None:
    path = planned(dr_ctl)
    approve(dr_ctl, team, "ada", "bob")
    document = json.loads(path.read_bytes())
    document["ask"]["max_outage_s"] = 3600.0
    path.write_text(json.dumps(document), encoding="utf-8")

    ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

    assert "0 of 2" in refused(ended)
    assert ended.ids == ["DR-APPROVAL-001", "DR-APPROVAL-003", "DR-APPROVAL-003"]
    assert sites.changes == []


@pytest.mark.parametrize(
    ("key", "namespace", "listed"),
    [
        ("eve", "dr-ctl", None),  # of nobody here
        ("bob", "git", None),  # for something else
        ("cleo", "dr-ctl", ("cleo@example.com", 'valid-before="20200101"')),  # over
        ("cleo", "dr-ctl", ("*@example.com", "")),  # of a pattern of names
        (None, "", None),  # no signature
    ],
)
def test_what_is_no_signature_of_a_signer_does_not_count(
    dr_ctl: Shell, sites: Sites, team: Team, key: str | None, namespace: str, listed: tuple[str, str] | None
) -> None:
    path = planned(dr_ctl)
    approve(dr_ctl, team, "ada")
    beside = path.with_name(f"{PLAN}.other.sig")
    if listed is not None:
        team.make("cleo")
        team.list(listed[0], "cleo", listed[1])
    if key is None:
        beside.write_text("yes, do it\n", encoding="utf-8")
    else:
        words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(team.key(key)), "-n", namespace, str(path)]
        subprocess.run(words, check=True, timeout=30, capture_output=True)
        path.with_name(f"{PLAN}.sig").rename(beside)

    ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

    assert "1 of 2" in refused(ended)
    assert [each["text"].split(":")[0] for each in ended.document["findings"][1:]] == [str(beside.name)]


def test_without_ssh_keygen_nothing_is_signed_or_carried_out(
    dr_ctl: Shell, sites: Sites, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(dr_ctl)
    approve(dr_ctl, team, "ada", "bob")
    monkeypatch.setenv("PATH", str(dr_ctl.folder))

    assert "openssh" in refused(swapover(dr_ctl, "--yes", "--plan", PLAN)).lower()
    assert [each.code for each in approve(dr_ctl, team, "ada")] == [10]


@pytest.mark.parametrize(("before", "code"), [(None, 0), (done, 10), (undone, 0), (aborted, 0)])
def test_a_signed_plan_is_carried_out_once_and_again_where_that_was_put_back_and_its_run_names_who_signed(
    dr_ctl: Shell,
    sites: Sites,
    team: Team,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Path], Scribe] | None,
    code: int,
) -> None:
    path = planned(dr_ctl)
    approve(dr_ctl, team, "ada", "bob")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(ADA, "approved", {"plan_sha256": digest, "by": []})
    if before is not None:
        before(dr_ctl.run())

    ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

    assert ended.code == code, ended.document
    if code:
        assert "DR-APPROVAL-002" in refused(ended)
        assert f"was carried out by {NAME}, which ended ok" in ended.document["summary"]
        return
    names = ["ada@example.com", "bob@example.com"]
    assert ended.document["data"]["approved_by"] == names
    approved = dr_ctl.journal(ended.document["run"])[0]["evidence"]["by"]["approved"]
    assert ([each["name"] for each in approved["by"]], approved["plan_sha256"]) == (names, digest)
    report = (dr_ctl.state / "runs" / ended.document["run"] / "report.html").read_text("utf-8")
    assert all(words in report for words in ("Approved by", *names))


def test_an_escalation_is_a_failover_and_takes_a_plan_of_its_own(dr_ctl: Shell, sites: Sites, team: Team) -> None:
    begun(dr_ctl, sites, "quiesce", "fence")

    text = refused(dr_ctl("escalate", "--accept-loss", "9", "--reason", "it hangs", "--yes", "--json"))

    make, _, move = (shlex.split(command) for command in re.findall(r"`dr-ctl ([^`]+)`", text))
    assert dr_ctl(*make).code == 0
    approve(dr_ctl, team, "ada", "bob")
    ended = dr_ctl(*move, "--yes", "--json")
    assert (ended.code, ended.document["data"]["pairs"][0]["serving"]) == (0, "paris"), ended.document


def test_what_cannot_be_approved_is_a_mistake_of_the_command(dr_ctl: Shell, sites: Sites, team: Team) -> None:
    path = planned(dr_ctl)
    words = ("--key", str(team.key("ada")), "--yes", "--json")
    codes = [dr_ctl("plan", "approve", name, *words).code for name in ("none.json", "dr-ctl.yaml")]
    asked(dr_ctl, of=["failback"])
    codes.append(dr_ctl("plan", "approve", PLAN, *words).code)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"as_if_lost": "london"}), encoding="utf-8")
    asked(dr_ctl, of=["swapover"])
    codes.append(dr_ctl("plan", "approve", PLAN, *words).code)

    assert codes == [2, 2, 2, 2]


ALL = ["ok", "reverted", "incomplete", "stranded", "unknown", "interrupted", "drain_timeout", "debt"]
EXAMPLE = {"run": [str(Path(__file__).parents[2] / "examples" / "tell.sh")], "on": ["ok"], "timeout": "15s"}


def script(folder: Path, text: str = "touch told", name: str = "tell.sh") -> dict[str, Any]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o700)
    return {"run": [f"./{name}"], "on": ALL}


def warned(ended: Ended) -> list[str]:
    return [each["text"] for each in ended.document["findings"] if each["id"] == "DR-HOOK-002"]


class Webhook(BaseHTTPRequestHandler):
    posted: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def test_who_is_told_gets_variables_and_document(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 'env | grep ^DR_CTL_ > told.env; flock -n "$DR_CTL_STATE_DIR/lock" touch was-free'
    dr_ctl.add(after=[script(dr_ctl.folder, free), EXAMPLE])
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("TELL_URL", f"http://127.0.0.1:{server.server_port}/runs")

        ended = swapover(dr_ctl, "--yes")

        server.shutdown()
    assert (ended.code, warned(ended)) == (0, [])
    assert Webhook.posted == [ended.document]
    assert (dr_ctl.folder / "was-free").exists(), "the lock is free by then"
    lines = (dr_ctl.folder / "told.env").read_text(encoding="utf-8").splitlines()
    variables = dict(line.removeprefix("DR_CTL_").split("=", 1) for line in lines)
    told = {"RUN": ended.document["run"], "INSTALLATION": "orders", "STATE_DIR": str(dr_ctl.state)}
    assert {**variables, **told} == variables
    assert "TEST_PASSWORD" not in variables
    monkeypatch.delenv("TELL_URL")
    [text] = warned(swapover(dr_ctl, "--yes", to="london"))
    assert text.endswith("TELL_URL: is not set: nobody was told")


def test_one_that_hangs_is_a_warning_and_the_next_is_told(dr_ctl: Shell, sites: Sites) -> None:
    hangs = {**script(dr_ctl.folder, "sleep 60"), "timeout": "300ms"}
    dr_ctl.add(after=[hangs, script(dr_ctl.folder, name="next.sh")])

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.document["outcome"], (dr_ctl.folder / "told").exists()) == (0, "ok", True)
    [text] = warned(ended)
    assert text == "a command was not told how the run ended: ./tell.sh took longer than 0.3 s and was ended"
    sealed = json.loads((dr_ctl.state / "runs" / ended.document["run"] / "result.json").read_bytes())
    assert (sealed["outcome"], "DR-HOOK-002" in [each["id"] for each in sealed["findings"]]) == ("ok", False)
    assert dr_ctl("runs", "verify").code == 0


def test_ctrl_c_ends_the_telling_and_not_the_result(dr_ctl: Shell, sites: Sites) -> None:
    slow = script(dr_ctl.folder, f"echo $$ > pid; kill -INT {os.getpid()}; sleep 60", "slow.sh")
    dr_ctl.add(after=[slow, script(dr_ctl.folder)])

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.document["outcome"], (dr_ctl.folder / "told").exists()) == (0, "ok", False)
    [text] = warned(ended)
    assert text.endswith("before these were told how the run ended: ./slow.sh, ./tell.sh")
    with pytest.raises(ProcessLookupError):
        os.kill(int((dr_ctl.folder / "pid").read_text()), 0)
