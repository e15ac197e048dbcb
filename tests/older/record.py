"""Records what a version writes on a twin of its own, for `test_older` of the next one.

    PYTHONPATH=CHECKOUT-OF-THAT-VERSION python tests/older/record.py

Each recording is a folder: `state` is STATE, `history` what its monitor wrote, and `changes.json` every request that
changed something at the twin, with which another one becomes what that one was when the last process died. User and
host are made up, and no path is an absolute one: all is sealed by the journals and cannot be changed later.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dr_ctl_lab.played import PlayedTwin

HERE = Path(__file__).parent / "recorded"
LEFT_OUT = ("report.html", "journal.reserve", "estimate-request.json")
# The process of one command; with DIES_AT it ends as by SIGKILL once that step is written down as begun.
COMMAND = """
import os, signal, socket, sys
from dr_ctl.cli import app
from dr_ctl.engine.journal import Journal

socket.gethostname = lambda: "host-1"
step = Journal.step

def dying(self, planned, event, evidence):
    step(self, planned, event, evidence)
    if planned.verb == os.environ.get("DIES_AT") and event.value == "started":
        os.kill(os.getpid(), signal.SIGKILL)

Journal.step = dying
app.main()
"""


def dr_ctl(twin: PlayedTwin, *words: str, dies_at: str = "", code: int = 0) -> None:
    told = {"DR_CTL_CONFIG": str(twin.settings_path), "DR_CTL_STATE_DIR": "state", "DIES_AT": dies_at}
    told |= {"LOGNAME": "operator"}
    ended = subprocess.run([sys.executable, "-c", COMMAND, *words], env={**os.environ, **told}, check=False)
    assert ended.returncode == (-signal.SIGKILL if dies_at else code), (words, ended.returncode)


def moved(twin: PlayedTwin) -> None:
    """There and back under load while a monitor looks, an estimate, an aborted run, and one that is left open."""
    with twin.load(50):
        dr_ctl(twin, "swapover", "--to", "paris", "--yes")
        dr_ctl(twin, "swapover", "--to", "london", "--yes")
        dr_ctl(twin, "monitor", "--for", "6s")
    dr_ctl(twin, "rpo", "estimate", code=11)  # the objective is no loss at all
    left_open(twin)
    dr_ctl(twin, "abort", "--yes")
    left_open(twin)


def left_open(twin: PlayedTwin) -> None:
    """A swapover that dies behind its fence, before the point of no return."""
    dr_ctl(twin, "swapover", "--to", "paris", "--yes", dies_at="drain")


def lost(twin: PlayedTwin) -> None:
    """A failover that is done and owes a fence and a quarantine; what it may have lost is known from the history."""
    dr_ctl(twin, "monitor", "--for", "2s")
    twin.kill("london")
    dr_ctl(twin, "failover", "--to", "paris", "--yes", "--accept-loss", "unknown")


RECORDINGS = {
    "moved": ("artemis-mirror", moved),
    "left-open": ("artemis-continuity", left_open),
    "lost": ("artemis-mirror", lost),
}


def record(names: Sequence[str]) -> None:
    for name in names or RECORDINGS:
        topology, act = RECORDINGS[name]
        with tempfile.TemporaryDirectory() as folder, PlayedTwin.up(Path(folder) / "twin", topology=topology) as twin:
            os.chdir(folder)
            text = twin.settings_path.read_text(encoding="utf-8")
            twin.settings_path.write_text(text.replace('"path": "history"', '"path": "history", "every": "500ms"'))
            act(twin)
            place = HERE / name
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree("state", place / "state", ignore=shutil.ignore_patterns(*LEFT_OUT))
            if (twin.directory / "history").exists():
                shutil.copytree(twin.directory / "history", place / "history")
            done = [change for change in twin.changes() if change.status == 200]
            rows = [[change.site, change.bean, change.operation, [*change.arguments]] for change in done]
            inode = f"{(Path('state') / 'id').stat().st_ino:x}"
            told = {"topology": topology, "inode": inode, "changes": rows}
            (place / "changes.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            print(name, time.strftime("%H:%M:%S"))


if __name__ == "__main__":
    record(sys.argv[1:])
