"""Runs the installation's own commands, without a shell, within a time limit, with facts about the run.

A hook gets the facts in its environment as DR_CTL_… variables, and as one JSON document on its standard input.
Variables with brokers' passwords are removed from its environment. Known passwords, and values of its environment under
the name of a secret, are removed from its output.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, Self

from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import Json
from dr_ctl.core.system import in_background, system
from dr_ctl.engine.context import StopRequest
from dr_ctl.engine.ports import Done, Failed, Outcome
from dr_ctl.processes.secrets import masked, secret_values, variables
from dr_ctl.settings.model import Installation

_KEPT_CHARS: Final = 2000  # of the end of the output
_READ_BYTES: Final = 100_000  # more than is kept, so that a secret at the beginning is masked whole


def run_hook(installation: Installation, name: str, facts: Mapping[str, Json]) -> Outcome:
    if (hook := installation.settings.hooks.get(name)) is None:
        return Failed(f"the settings have no hook {name}")
    return CommandContext.of(installation).run(f"hook {name}", hook.run, hook.timeout, {**facts, "hook": name})


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The folder in which commands run, and the variables that are `hidden` from them."""

    folder: Path
    hidden: frozenset[str]

    @classmethod
    def of(cls, installation: Installation) -> Self:
        """Run commands in the folder of the settings, with passwords hidden."""
        return cls(installation.file.parent, variables(installation.settings))

    def run(
        self,
        what: str,
        words: Sequence[str],
        timeout_s: float,
        facts: Mapping[str, Json],
        document: Mapping[str, Json] | None = None,
        stop: StopRequest | None = None,
    ) -> Outcome:
        """Run a command to its end. The outcome has its output and `exit_code`, unless it never began. Its input is the
        `document`, or else the facts. A `stop` ends it, and raises `Stopped`."""
        wires = system().wires
        if wires is not None and (program := wires.program(words, self.folder)) is not None:
            work = in_background(program, what)
            late = not work.wait(timeout_s)
            return _outcome(what, timeout_s, -signal.SIGKILL if late else work.result(), "", late=late)
        values = {f"DR_CTL_{key.upper()}": value for key, value in facts.items() if value is not None}
        variables = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        environment = {key: value for key, value in os.environ.items() if key not in self.hidden}
        # Files, not pipes: a daemon of the command may keep pipes open for ever.
        with TemporaryFile() as stdin, TemporaryFile() as output:
            stdin.write(json.dumps(facts if document is None else document).encode())
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    list(words),
                    cwd=self.folder,
                    env=environment | variables,
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return Failed(f"{what} could not be started: {error.strerror or error}: {words[0]}")
            late = _is_late(process, timeout_s, stop)
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _READ_BYTES))
            text = masked(output.read().decode("utf-8", "replace"), secret_values(environment))[-_KEPT_CHARS:]
        return _outcome(what, timeout_s, process.returncode, text, late=late)


def _is_late(process: subprocess.Popen[bytes], timeout_s: float, stop: StopRequest | None) -> bool:
    """Wait for the command; end a late command with all its children."""
    try:
        # A signal breaks only this wait, because a command that is still being started cannot be ended.
        with nullcontext() if stop is None else stop.breakable():
            process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return True
    except Stopped:
        _end(process)
        raise
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    # The command has its own process group, so its children end too.
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(what: str, timeout_s: float, code: int, text: str, *, late: bool) -> Outcome:
    evidence: dict[str, Json] = {"exit_code": code, "said": text}
    if late:
        return Failed(f"{what} took longer than {timeout_s:g} s and was ended", evidence)
    if code != 0:
        last = text.strip().rpartition("\n")[2]
        return Failed(f"{what} ended with {code}{f': {last}' if last else ''}", evidence)
    return Done(f"{what} succeeded", evidence)
