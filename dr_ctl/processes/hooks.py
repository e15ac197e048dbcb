"""Runs the installation's own commands, without a shell, within a time limit, with facts about the run.

A hook gets the facts in its environment as DR_CTL_… variables, and as one JSON document on its standard input.
Variables with brokers' passwords are removed from its environment, and known passwords from its output.
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

    def run(self, what: str, words: Sequence[str], timeout_s: float, facts: Mapping[str, Json]) -> Outcome:
        """Run a command to its end: done, or refused with `exit_code` and output; `exit_code` is absent if the command
        never began."""
        environment = {f"DR_CTL_{key.upper()}": _text(value) for key, value in facts.items() if value is not None}
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
        return _ended(what, timeout_s, process, json.dumps(facts).encode())


def _ended(what: str, timeout_s: float, process: subprocess.Popen[bytes], document: bytes) -> Outcome:
    late = False
    try:
        said, _ = process.communicate(document, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        late = True
        # The hook leads its own process group, so that its children end too.
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
