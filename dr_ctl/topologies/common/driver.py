"""The half of a topology that acts, step by step by its procedure's table; an undo is tried until it is verified.

Every step ends with a look or an attempt that shows its effect; the answer to a call is never the proof. Flags lie: an
acceptor whose port is taken by another process says that it is started.
"""

from collections.abc import Callable
from typing import Any, Generic

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.seen import Seen, V_co
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.procedure import Procedure


class Driver(Generic[V_co]):
    """An instance serves one command. `by_console` is how a person opens a site in its console."""

    def __init__(self, procedure: Procedure[Any, Any, Any], tools: Tools[V_co], by_console: str) -> None:
        self._procedure, self._tools, self._by_console = procedure, tools, by_console

    def observe(self) -> Seen[V_co]:
        return self._tools.observer.observe(least_s=self._tools.patience.last_look_s)

    def apply(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        row = self._procedure.row(step.verb, move.ask.operation)
        return _guarded(lambda: row.act(self._tools, step, move, hand))

    def undo(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Try until it is verified or the time is over: a broker may be away for a moment. Where another run has the
        lock no call goes out, and only a look can show that it is as before."""
        undo = self._procedure.row(step.verb, move.ask.operation).undo
        if undo is None:
            return NotNeeded("it changes nothing that is put back")
        patience = self._tools.patience

        def attempt() -> tuple[Outcome | None, Outcome]:
            barred = self._tools.sender.barred()
            return barred, _guarded(lambda: undo(self._tools, step, move, hand))

        waited = until(
            hand,
            attempt,
            holds=lambda tried: isinstance(tried[1], Done | NotNeeded),
            hopeless=lambda tried: tried[0] is not None or _is_stranded(tried[1]),
            within_s=patience.undo_s,
            poll_s=patience.undo_poll_s,
            most_s=patience.undo_most_poll_s,
        )
        barred, outcome = waited.look
        return outcome if waited.held else barred or outcome

    def by_hand(self, site: str) -> str:
        return self._tools.by_hand(site, self._by_console)


def _is_stranded(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.code is ExitCode.STRANDED


def _guarded(act: Callable[[], Outcome]) -> Outcome:
    """Give `Unknown` if a broker stops answering in the middle."""
    try:
        return act()
    except BrokerError as error:
        return Unknown(str(error))
