"""Looks for who watches all the time: a broker that is late keeps nobody from what the others say."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import Unreachable
from dr_ctl.core.system import Work, all_ended, beside
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.seen import Silent

A = TypeVar("A", bound=Access[Any])
T = TypeVar("T")
LATE_S: Final = 1.0
"""For an answer of a few figures, of a broker that gave none the last time, or that is known to answer sooner."""
USUAL: Final = 3
"""So many times as long as its last look at everything a broker is waited for."""


class Watch:
    """Asks brokers again and again. A broker that is late counts as silent, with its last error if there was one. The
    next question goes out once the late one has ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late: dict[Access[Any], Work[Any]] = {}
        self._silent: dict[Access[Any], Silent] = {}
        self._took_s: dict[Access[Any], float] = {}

    def close(self) -> None:
        """Wait for those that are late."""
        for each in self._late.values():
            each.wait()

    def ask(self, of: Sequence[A], ask: Callable[[A], T | Silent], *, small: bool) -> tuple[list[T | Silent], float]:
        """The answers, and how long ago the last came that was not late. `small` asks for few figures."""
        for access in [each for each, late in self._late.items() if late.wait(0)]:
            self._noted(access, self._late.pop(access).result())
        replied: list[float] = []
        began = self._clock.monotonic()

        def timed(access: A) -> T | Silent:
            answer = ask(access)
            replied.append(self._clock.monotonic())
            if not small and not isinstance(answer, Silent):
                self._took_s[access] = replied[-1] - began
            return answer

        asked = {
            access: beside(partial(timed, access), f"watch {access.site}") for access in of if access not in self._late
        }
        known = self._took_s.keys() | self._silent.keys()
        hurried = [look for access, look in asked.items() if small or access in known]
        usual_s = [] if small else [USUAL * self._took_s.get(access, 0.0) for access in asked]
        all_ended(hurried, max([LATE_S, *usual_s]))
        for look in [each for each in asked.values() if each not in hurried]:
            look.wait()
        self._late |= {access: look for access, look in asked.items() if not look.wait(0)}
        answers = [
            self._noted(each, self._late_one(each) if each in self._late else asked[each].result()) for each in of
        ]
        return answers, self._clock.monotonic() - max(replied) if self._late and replied else 0.0

    def _noted(self, access: Access[Any], answer: T | Silent) -> T | Silent:
        if isinstance(answer, Silent):
            self._silent[access] = answer
        else:
            self._silent.pop(access, None)
        return answer

    def _late_one(self, access: Access[Any]) -> Silent:
        text = f"{access.site}/{access.pair}: no answer within {LATE_S:g} s"
        return self._silent.get(access, Silent(access.pair, access.site, Unreachable(text, refused=False)))
