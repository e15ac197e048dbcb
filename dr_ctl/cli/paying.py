"""Pays debts beside the monitor: takes a lost site that is back in again, by a run like any other."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.cli import operate
from dr_ctl.cli.result import Result, of_error
from dr_ctl.cli.running import How
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import DrCtlError, Stopped
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.operations import REINSTATE
from dr_ctl.engine.plan import Ask

AGAIN_S: Final = 60.0  # a run that did not end well is not repeated at every look


class Payer:
    """`runs` are those that it made, by name and outcome."""

    def __init__(self, session: Session) -> None:
        self._session = replace(session, command=REINSTATE)
        self._not_before: dict[str, float] = {}
        self.runs: list[Json] = []

    def pay(self, sites: Sequence[str]) -> None:
        """Reinstate each of these sites, unless that failed a moment ago. Says what came of it."""
        for site in sites:
            if time.monotonic() < self._not_before.get(site, 0.0):
                continue
            self._session.say(f"{site} is back: taking it in again")
            result = self._reinstate(site)
            if result.code is not ExitCode.OK:
                self._not_before[site] = time.monotonic() + AGAIN_S
            if result.run is not None:
                self.runs.append({"run": result.run, "outcome": result.code.outcome, "exit_code": int(result.code)})
            self._tell(result)

    def _reinstate(self, site: str) -> Result:
        try:
            return operate.run(self._session, Ask(REINSTATE, site), How(yes=True))
        except Stopped:
            raise
        except DrCtlError as error:
            return of_error(error)

    def _tell(self, result: Result) -> None:
        if self._session.json:
            print(json.dumps(result.envelope(REINSTATE), ensure_ascii=False), flush=True)  # noqa: T201 - a JSON line
        else:
            self._session.say(f"{result.code.outcome}: {result.summary}")
