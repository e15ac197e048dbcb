"""Who is asked before a run and told after it: plans that people sign, and commands that hear its end."""

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.cli.moving import begun, swapover
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

    @property
    def signers(self) -> Path:
        return self.folder / "signers.allowed"

    def key(self, name: str) -> Path:
        return self.folder / name

    def make(self, name: str) -> None:
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.key(name))]
        subprocess.run(words, check=True, timeout=30)

    def list(self, names: str, key: str, options: str = "") -> None:
        public = self.key(f"{key}.pub").read_text("utf-8")
        with self.signers.open("a", encoding="utf-8") as file:
            file.write(" ".join(filter(None, (names, options, public))))


@pytest.fixture
def team(dr_ctl: Shell, installation: Installation) -> Team:
    """The installation's settings ask for two people before a swapover or a failover."""
    if shutil.which("ssh-keygen") is None:
        assert not os.environ.get("CI"), "ssh-keygen is missing: the Debian package openssh-client has it"
        pytest.skip("ssh-keygen is missing: the Debian package openssh-client has it")
    asked(dr_ctl, of=["swapover", "failover"])
    return Team(dr_ctl.folder)


def asked(dr_ctl: Shell, **approvals: Any) -> None:
    dr_ctl.add(approvals={"signers": "keys/signers.allowed", **approvals})


def planned(dr_ctl: Shell, *words: str) -> Path:
    ended = dr_ctl("plan", "swapover", "--to", "paris", "--reason", "CHG-1", *words, "--out", PLAN)
    assert ended.code == 0, ended.err
    return dr_ctl.folder / PLAN


def approve(dr_ctl: Shell, team: Team, *names: str, file: str = PLAN) -> list[Ended]:
    return [dr_ctl("plan", "approve", file, "--key", str(team.key(name)), "--yes", "--json") for name in names]


def refused(ended: Ended) -> str:
    """The first finding of a run that was refused for its approvals, before anything was sent."""
    first = ended.document["findings"][0]
    assert (ended.code, ended.document["run"], first["severity"]) == (10, None, "error"), ended.document
    return f"{first['id']} {first['text']} {first['remedy']}"


class TestBefore:
    def test_a_plan_that_was_altered_after_a_signature_has_none(
        self, dr_ctl: Shell, installation: Installation, team: Team
    ) -> None:
        path = planned(dr_ctl)
        approve(dr_ctl, team, "ada", "bob")
        document = json.loads(path.read_bytes())
        document["ask"]["max_outage_s"] = 3600.0
        path.write_text(json.dumps(document), encoding="utf-8")
        installation.forget()

        ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

        assert "0 of 2" in refused(ended)
        assert ended.ids == ["DR-APPROVAL-001", "DR-APPROVAL-003", "DR-APPROVAL-003"]
        assert installation.changes == []

    @pytest.mark.parametrize(
        "how", ["of nobody here", "for something else", "over", "no signature", "of a pattern of names"]
    )
    def test_what_is_no_signature_of_a_signer_does_not_count(
        self, dr_ctl: Shell, installation: Installation, team: Team, how: str
    ) -> None:
        path = planned(dr_ctl)
        approve(dr_ctl, team, "ada")
        beside = path.with_name(f"{PLAN}.other.sig")
        if how == "over":
            team.make("cleo")
            team.list("cleo@example.com", "cleo", 'valid-before="20200101"')
        if how == "of a pattern of names":
            team.make("cleo")
            team.list("*@example.com", "cleo")
        if how == "no signature":
            beside.write_text("yes, do it\n", encoding="utf-8")
        else:
            name = {"of nobody here": "eve", "for something else": "bob"}.get(how, "cleo")
            namespace = "git" if how == "for something else" else "dr-ctl"
            words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(team.key(name)), "-n", namespace, str(path)]
            subprocess.run(words, check=True, timeout=30, capture_output=True)
            path.with_name(f"{PLAN}.sig").rename(beside)

        ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

        assert "1 of 2" in refused(ended)
        assert [each["text"].split(":")[0] for each in ended.document["findings"][1:]] == [str(beside.name)]

    def test_without_ssh_keygen_nothing_is_signed_or_carried_out(
        self, dr_ctl: Shell, installation: Installation, team: Team, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned(dr_ctl)
        approve(dr_ctl, team, "ada", "bob")
        monkeypatch.setenv("PATH", str(dr_ctl.folder))

        assert "openssh" in refused(swapover(dr_ctl, "--yes", "--plan", PLAN)).lower()
        assert [each.code for each in approve(dr_ctl, team, "ada")] == [10]


class TestApproved:
    def test_who_approved_stands_in_journal_result_list_and_report(
        self, dr_ctl: Shell, installation: Installation, team: Team
    ) -> None:
        path = planned(dr_ctl)
        first, second = approve(dr_ctl, team, "ada", "bob")
        assert (first.code, first.document["data"]["approved_by"]) == (0, ["ada@example.com"])
        assert second.document["summary"].startswith("bob@example.com has signed swapover from london to paris: 2 of 2")

        ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

        names = ["ada@example.com", "bob@example.com"]
        folder = dr_ctl.state / "runs" / ended.document["run"]
        assert (ended.code, ended.document["data"]["approved_by"]) == (0, names), ended.document
        approved = dr_ctl.journal(ended.document["run"])[0]["evidence"]["by"]["approved"]
        assert [each["name"] for each in approved["by"]] == names
        assert approved["plan_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert dr_ctl("runs", "list", "--json").document["data"]["runs"][0]["approved_by"] == names
        report = (folder / "report.html").read_text("utf-8")
        assert "Approved by" in report
        assert all(name in report for name in names)

    @pytest.mark.parametrize(("before", "code"), [(done, 10), (undone, 0), (aborted, 0)])
    def test_a_signed_plan_is_carried_out_once_and_again_where_that_was_put_back(
        self,
        dr_ctl: Shell,
        installation: Installation,
        team: Team,
        monkeypatch: pytest.MonkeyPatch,
        before: Callable[[Path], Scribe],
        code: int,
    ) -> None:
        path = planned(dr_ctl)
        approve(dr_ctl, team, "ada", "bob")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(ADA, "approved", {"plan_sha256": digest, "by": []})
        before(dr_ctl.run())

        ended = swapover(dr_ctl, "--yes", "--plan", PLAN)

        assert ended.code == code, ended.document
        if code:
            assert "DR-APPROVAL-002" in refused(ended)
            assert f"was carried out by {NAME}, which ended ok" in ended.document["summary"]

    def test_an_escalation_is_a_failover_and_takes_a_plan_of_its_own(
        self, dr_ctl: Shell, installation: Installation, team: Team
    ) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")

        text = refused(dr_ctl("escalate", "--accept-loss", "9", "--reason", "it hangs", "--yes", "--json"))

        make, _, move = (shlex.split(command) for command in re.findall(r"`dr-ctl ([^`]+)`", text))
        assert {"9", "it hangs"} < {*make}
        assert dr_ctl(*make).code == 0
        approve(dr_ctl, team, "ada", "bob")
        ended = dr_ctl(*move, "--yes", "--json")
        assert (ended.code, ended.document["data"]["pairs"][0]["serving"]) == (0, "paris"), ended.document


class TestSigning:
    def test_what_cannot_be_approved_is_a_mistake_of_the_command(
        self, dr_ctl: Shell, installation: Installation, team: Team
    ) -> None:
        path = planned(dr_ctl)
        words = ("--key", str(team.key("ada")), "--yes", "--json")
        codes = [dr_ctl("plan", "approve", name, *words).code for name in ("none.json", "dr-ctl.yaml")]
        asked(dr_ctl, of=["failback"])
        codes.append(dr_ctl("plan", "approve", PLAN, *words).code)
        lost = json.loads(path.read_bytes()) | {"as_if_lost": "london"}
        path.write_text(json.dumps(lost), encoding="utf-8")
        asked(dr_ctl, of=["swapover"])
        codes.append(dr_ctl("plan", "approve", PLAN, *words).code)

        assert codes == [2, 2, 2, 2]


EXAMPLE = Path(__file__).parents[2] / "examples" / "tell.sh"
ALL = ["ok", "reverted", "incomplete", "stranded", "unknown", "interrupted", "drain_timeout", "debt"]
TELL = 'cat > told.json; env | grep ^DR_CTL_ > told.env; echo "$DR_CTL_OUTCOME" >> told.times'


def script(folder: Path, text: str = TELL, name: str = "tell.sh") -> dict[str, Any]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"run": [f"./{name}"], "on": ALL}


def times(dr_ctl: Shell) -> list[str]:
    path = dr_ctl.folder / "told.times"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def warned(ended: Ended) -> list[str]:
    return [each["text"] for each in ended.document["findings"] if each["id"] == "DR-HOOK-002"]


class TestTold:
    def test_it_gets_the_document_and_the_variables_of_other_hooks(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        dr_ctl.add(after=[script(dr_ctl.folder, f'{TELL}; flock -n "$DR_CTL_STATE_DIR/lock" touch was-free')])

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, warned(ended)) == (0, [])
        assert (dr_ctl.folder / "was-free").exists(), "the lock is free by then"
        assert json.loads((dr_ctl.folder / "told.json").read_text(encoding="utf-8")) == ended.document
        run = ended.document["run"]
        expected = {"RUN": run, "INSTALLATION": "orders", "OPERATION": "swapover", "SOURCE": "london"}
        expected |= {"TARGET": "paris", "OUTCOME": "ok", "EXIT_CODE": "0", "COMMAND": "swapover"}
        lines = (dr_ctl.folder / "told.env").read_text(encoding="utf-8").splitlines()
        variables = dict(line.removeprefix("DR_CTL_").split("=", 1) for line in lines)
        assert variables.items() >= {**expected, "STATE_DIR": str(dr_ctl.state)}.items()
        assert "TEST_PASSWORD" not in variables


class Webhook(BaseHTTPRequestHandler):
    posted: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class TestTheExample:
    def test_it_posts_the_document_to_a_webhook(
        self, dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dr_ctl.add(after=[{"run": [str(EXAMPLE)], "on": ["ok"], "timeout": "15s"}])
        with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            monkeypatch.setenv("TELL_URL", f"http://127.0.0.1:{server.server_port}/runs")

            ended = swapover(dr_ctl, "--yes")

            server.shutdown()
        assert warned(ended) == []
        assert Webhook.posted == [ended.document]

    def test_without_an_address_nobody_was_told(self, dr_ctl: Shell, installation: Installation) -> None:
        dr_ctl.add(after=[{"run": [str(EXAMPLE)], "on": ["ok"]}])

        [text] = warned(swapover(dr_ctl, "--yes"))

        assert text.endswith("TELL_URL: is not set: nobody was told")


class TestChangesNothing:
    def test_one_that_hangs_is_a_warning(self, dr_ctl: Shell, installation: Installation) -> None:
        hangs = {**script(dr_ctl.folder, "sleep 60"), "timeout": "300ms"}
        dr_ctl.add(after=[hangs, script(dr_ctl.folder, TELL, "next.sh")])

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"]) == (0, "ok")
        assert warned(ended) == [
            "a command was not told how the run ended: ./tell.sh took longer than 0.3 s and was ended"
        ]
        assert times(dr_ctl) == ["ok"]  # the next one is told all the same
        sealed = json.loads((dr_ctl.state / "runs" / ended.document["run"] / "result.json").read_bytes())
        assert sealed["outcome"] == "ok"
        assert "DR-HOOK-002" not in [each["id"] for each in sealed["findings"]]
        assert dr_ctl("runs", "verify").code == 0

    def test_ctrl_c_ends_the_telling_and_not_the_result(self, dr_ctl: Shell, installation: Installation) -> None:
        slow = script(dr_ctl.folder, f"echo $$ > pid; kill -INT {os.getpid()}; sleep 60", "slow.sh")
        dr_ctl.add(after=[slow, script(dr_ctl.folder)])

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"], times(dr_ctl)) == (0, "ok", [])
        [text] = warned(ended)
        assert text.endswith("before these were told how the run ended: ./slow.sh, ./tell.sh")
        pid = int((dr_ctl.folder / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
