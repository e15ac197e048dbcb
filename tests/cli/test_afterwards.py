"""Commands that are told how a run ended: which, of what, and that none of them changes the end."""

from __future__ import annotations

import json
import os
import stat
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml

from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.cli.moving import swapover
from tests.cli.sites import sites

__all__ = ["sites"]  # a fixture
EXAMPLE = Path(__file__).parents[2] / "examples" / "tell.sh"
ALL = ["ok", "reverted", "incomplete", "stranded", "unknown", "interrupted", "drain_timeout", "debt"]
TELL = 'cat > told.json; env | grep ^DR_CTL_ > told.env; echo "$DR_CTL_OUTCOME" >> told.times'


def listen(dr_ctl: Shell, *after: dict[str, Any]) -> None:
    """Add commands to the settings that are told how runs end."""
    path = dr_ctl.folder / "dr-ctl.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**settings, "after": list(after)}), encoding="utf-8")


def script(folder: Path, text: str = TELL, name: str = "tell.sh") -> dict[str, Any]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"run": [f"./{name}"], "on": ALL}


def times(dr_ctl: Shell) -> list[str]:
    path = dr_ctl.folder / "told.times"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def told(dr_ctl: Shell) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dr_ctl.folder / "told.json").read_text(encoding="utf-8"))
    return document


def variables(dr_ctl: Shell) -> dict[str, str]:
    lines = (dr_ctl.folder / "told.env").read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix("DR_CTL_").split("=", 1) for line in lines)


def warned(ended: Ended) -> list[str]:
    return [each["text"] for each in ended.document["findings"] if each["id"] == "DR-HOOK-002"]


class TestTold:
    def test_it_gets_the_document_and_the_variables_of_other_hooks(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        listen(dr_ctl, script(dr_ctl.folder, f'{TELL}; flock -n "$DR_CTL_STATE_DIR/lock" touch was-free'))

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, warned(ended)) == (0, [])
        assert (dr_ctl.folder / "was-free").exists(), "the lock is free by then"
        assert told(dr_ctl) == ended.document
        run = ended.document["run"]
        expected = {"RUN": run, "INSTALLATION": "orders", "OPERATION": "swapover", "SOURCE": "london"}
        expected |= {"TARGET": "paris", "OUTCOME": "ok", "EXIT_CODE": "0", "COMMAND": "swapover"}
        assert variables(dr_ctl).items() >= expected.items()
        assert variables(dr_ctl)["STATE_DIR"] == str(dr_ctl.state)
        assert "TEST_PASSWORD" not in variables(dr_ctl)


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
        listen(dr_ctl, {"run": [str(EXAMPLE)], "on": ["ok"], "timeout": "15s"})
        with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            monkeypatch.setenv("TELL_URL", f"http://127.0.0.1:{server.server_port}/runs")

            ended = swapover(dr_ctl, "--yes")

            server.shutdown()
        assert warned(ended) == []
        assert Webhook.posted == [ended.document]

    def test_without_an_address_nobody_was_told(self, dr_ctl: Shell, installation: Installation) -> None:
        listen(dr_ctl, {"run": [str(EXAMPLE)], "on": ["ok"]})

        [text] = warned(swapover(dr_ctl, "--yes"))

        assert text.endswith("TELL_URL: is not set: nobody was told")


class TestChangesNothing:
    def test_one_that_hangs_is_a_warning(self, dr_ctl: Shell, installation: Installation) -> None:
        listen(
            dr_ctl, {**script(dr_ctl.folder, "sleep 60"), "timeout": "300ms"}, script(dr_ctl.folder, TELL, "next.sh")
        )

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
        listen(dr_ctl, slow, script(dr_ctl.folder))

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"], times(dr_ctl)) == (0, "ok", [])
        [text] = warned(ended)
        assert text.endswith("before these were told how the run ended: ./slow.sh, ./tell.sh")
        pid = int((dr_ctl.folder / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
