"""A broker's process, through the installation's commands: only they show the state of a waiting broker."""

from shlex import join, quote
from typing import Final

from dr_ctl.core.clock import Clock
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.processes.hooks import Place
from dr_ctl.settings.topologies.classic_shared_store import Process

FRESH_S: Final = 2.0  # a word on it is believed so long: a gate looks fifty times a second
_STOPPED_EXIT: Final = 3  # exit code of `systemctl is-active`, and of every status command that keeps to the LSB


class BrokerProcess:
    def __init__(self, settings: Process | None, place: Place, name: str, site: str, clock: Clock) -> None:
        self._settings, self._place, self._name, self._clock = settings, place, name, clock
        self._facts = {"site": site, "broker": name}
        self._last: tuple[float, bool | None] | None = None

    @property
    def commands(self) -> frozenset[Goal]:
        """The goals that have a command in the settings."""
        if self._settings is None:
            return frozenset()
        words = {Goal.START: self._settings.start, Goal.STOP: self._settings.stop}
        return frozenset(goal for goal, each in words.items() if each is not None)

    @property
    def starts(self) -> str:
        """The command that starts it, as a person types it; empty where the settings name none."""
        if self._settings is None or self._settings.start is None:
            return ""
        return f"cd {quote(str(self._place.folder))} && {join(self._settings.start)}"

    def runs(self, *, fresh_s: float = FRESH_S) -> bool | None:
        """Whether the process runs, by an answer that is no older; returns None where no command says so."""
        if self._settings is None:
            return None
        if self._last is None or self._clock.monotonic() - self._last[0] >= fresh_s:
            what = f"the state command of {self._name}"
            outcome = self._place.run(what, self._settings.state, self._settings.timeout, self._facts)
            code = outcome.evidence.get("exit_code")
            known = code in (0, _STOPPED_EXIT)
            self._last = self._clock.monotonic(), code == 0 if known else None
        return self._last[1]

    def send(self, goal: Goal) -> Outcome:
        """Start or stop the process; a later look shows the effect."""
        words = (
            None if self._settings is None else {Goal.START: self._settings.start, Goal.STOP: self._settings.stop}[goal]
        )
        if self._settings is None or words is None:
            return Refused(f"the settings name no command to {goal.value} {self._name}")
        self._last = None
        return self._place.run(f"the {goal.value} command of {self._name}", words, self._settings.timeout, self._facts)
