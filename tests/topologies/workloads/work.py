"""Workloads for tests: real commands whose state is a file, with a switch for each way in which they fail."""

from pathlib import Path
from typing import Any

# Builtins of the shell only: the tests' PATH is empty. A switch is a file that is not empty.
_STATE = """#!/bin/sh
[ -s "$0.broken" ] && exit 9
read -r now < "$0.now"
[ "$now" = running ] && exit 0
[ "$now" = draining ] && exit 0
exit 3
"""
_CHANGE = """#!/bin/sh
echo "{verb} $DR_CTL_WORKLOAD at $DR_CTL_SITE" >> "{log}"
[ -s "$0.fails" ] && {{ echo "it will not"; exit 1; }}
[ -s "$0.drains" ] && echo draining > "{state}.now"
[ -s "$0.drains" ] && while :; do :; done
[ -s "$0.hangs" ] && while :; do :; done
echo {to} > "{state}.now"
"""


class Work:
    """One workload at one site, as its settings name it."""

    def __init__(self, folder: Path, site: str, name: str, *, running: bool) -> None:
        self.folder, self.site, self.name = folder / f"{name} at {site}", site, name
        self.folder.mkdir(parents=True)
        self.log = folder / "workloads.log"
        self._script("state", _STATE)
        for verb, to in (("start", "running"), ("stop", "stopped")):
            self._script(verb, _CHANGE.format(verb=verb, to=to, log=self.log, state=self.folder / "state"))
        self.set(running=running)

    def told(self, **more: Any) -> dict[str, Any]:
        """Its part of the settings."""
        words = {verb: [str(self.folder / verb)] for verb in ("start", "stop", "state")}
        return {"name": self.name, "kind": "command", **words, "timeout": "5s", **more}

    @property
    def runs(self) -> bool:
        return (self.folder / "state.now").read_text(encoding="utf-8").strip() == "running"

    def drain(self) -> None:
        """Let a stop that was asked for, and has not been taken back, take effect now."""
        if (self.folder / "state.now").read_text(encoding="utf-8").strip() == "draining":
            self.set(running=False)

    def set(self, *, running: bool) -> None:
        (self.folder / "state.now").write_text("running\n" if running else "stopped\n", encoding="utf-8")

    def switch(self, name: str, *, on: bool = True) -> None:
        """As `stop.fails`, `stop.hangs`, `stop.drains` (says that it runs meanwhile), `start.fails`, `state.broken`."""
        (self.folder / name).write_text("on" if on else "", encoding="utf-8")

    def _script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700)
