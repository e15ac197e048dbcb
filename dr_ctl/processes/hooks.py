"""Commands of the installation's own: run without a shell, each with its time limit, told what the run is about.

What a hook is told stands in its environment as DR_CTL_… variables, and as one JSON document on its standard input. The
variables that hold brokers' passwords are taken out of its environment, and known passwords out of what it said.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.processes.secrets import masked, variables
from dr_ctl.settings.model import Settings

_KEPT: Final = 2000  # characters of what it said, the last ones
_END_S: Final = 2.0


class HookRunner:
    """Implements `Hooks` with the settings' own; `facts` are told to each of them beside those of its step."""

    def __init__(self, settings: Settings, folder: Path, facts: Mapping[str, Json]) -> None:
        """Commands and their relative paths are looked for in `folder`."""
        self._hooks, self._facts = settings.hooks, dict(facts)
        self._place = Place(folder, variables(settings))

    def run(self, name: str, facts: Mapping[str, Json]) -> Outcome:
        hook = self._hooks.get(name)
        if hook is None:
            return Refused(f"the settings have no hook {name}")
        return self._place.run(f"hook {name}", hook.run, hook.timeout, {**self._facts, **facts, "hook": name})


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands are run: in a folder, and without the variables that are `hidden` from them."""

    folder: Path
    hidden: frozenset[str]

    def run(self, what: str, words: Sequence[str], timeout_s: float, told: Mapping[str, Json]) -> Outcome:
        """Run one to its end: done, or refused with `exit_code` and what it said; that is absent if it never began."""
        environment = {f"DR_CTL_{key.upper()}": _text(value) for key, value in told.items() if value is not None}
        try:
            process = subprocess.Popen(
                list(words),
                cwd=self.folder,
                env={key: value for key, value in os.environ.items() if key not in self.hidden} | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Refused(f"{what} could not be started: {error.strerror}: {words[0]}")
        return _ended(what, timeout_s, process, json.dumps(told).encode())


def _ended(what: str, timeout_s: float, process: subprocess.Popen[bytes], told: bytes) -> Outcome:
    late = False
    try:
        said, _ = process.communicate(told, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        late = True
        # It leads a group of its own, so that what it started ends with it.
        os.killpg(process.pid, signal.SIGKILL)
        try:
            said, _ = process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            said = b""  # something that left its group holds the pipe
    text = masked(said.decode("utf-8", "replace"))[-_KEPT:]
    evidence: dict[str, Json] = {"exit_code": process.returncode, "said": text}
    if late:
        return Refused(f"{what} took longer than {timeout_s:g} s and was ended", evidence)
    if process.returncode != 0:
        last = str(evidence["said"]).strip().rpartition("\n")[2]
        return Refused(f"{what} ended with {process.returncode}{f': {last}' if last else ''}", evidence)
    return Done(f"{what} succeeded", evidence)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
