"""Sends calls to the brokers and says what came of each: an answer is done or refused, silence is unknown."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError, LoginRefused, Throttled, Unreachable
from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import together
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.outcome import Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call
from dr_ctl.processes.secrets import SecretMissing
from dr_ctl.topologies.common.access import CHANGE_S, Channel
from dr_ctl.topologies.common.calls import queues_of
from dr_ctl.topologies.common.observer import AnyObserver

MOST_AT_ONCE: Final = 8
# Calls in one POST, which has one time limit: a broker may sync its journal for each of them.
MOST_IN_A_POST: Final = 500


class Sender:
    """The only way to change a broker of this topology. A dry run has none."""

    def __init__(self, observer: AnyObserver, lease: Lease | None = None) -> None:
        """Without a lease nothing but this machine's own lock keeps two runs apart."""
        self._observer, self._lease = observer, lease
        self._open: dict[tuple[str, str], Channel] = {}

    @property
    def epoch(self) -> int:
        """The epoch of the lock that calls go out under; 0 without a lock."""
        return self._lease.epoch if self._lease is not None else 0

    def close(self) -> None:
        for channel in self._open.values():
            channel.close()

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send the calls to one broker in their order, in one POST or as few as their number needs, and several brokers
        side by side; Returns an outcome for each call, in the order of the calls."""
        groups: dict[tuple[str, str], list[int]] = {}
        for number, call in enumerate(calls):
            groups.setdefault((call.site, call.unit), []).append(number)
        numbers = list(groups.values())
        posts = [partial(self._post, [calls[number] for number in mine]) for mine in numbers]
        groups_outcomes = together(posts, "change", most=MOST_AT_ONCE)
        outcomes = {
            number: each
            for mine, group in zip(numbers, groups_outcomes, strict=True)
            for number, each in zip(mine, group, strict=True)
        }
        return [outcomes[number] for number in range(len(calls))]

    def barred(self) -> Refused | None:
        """Say why an undo gets no lock: a lock that ran out is taken again before any look."""
        why = self._lease.regain() if self._lease is not None else None
        return Refused(why, code=ExitCode.STRANDED) if why is not None else None

    def _why_locked(self, calls: Sequence[Call]) -> str | None:
        """Say why the lock lets no call go out now. Queues to pause are written into the lock before."""
        if self._lease is None:
            return None
        site, pair = calls[0].site, calls[0].unit
        if (why := self._lease.why_not(site, pair, CHANGE_S)) is not None:
            return why
        view = self._observer.brokers[site][pair].names()
        pausing = [name for call in calls if call.goal is Goal.PAUSE for name in queues_of(call, view)]
        return self._lease.paused(site, pair, pausing) if pausing else None

    def paused_too(self, site: str, pair: str, names: Collection[str]) -> str | None:
        """Write down what a call for many queues has paused beside those that were known; says why not where that
        cannot be done."""
        return self._lease.paused(site, pair, names) if self._lease is not None else None

    def _post(self, calls: Sequence[Call]) -> list[Outcome]:
        """Calls after a POST without an answer are not sent."""
        outcomes: list[Outcome] = []
        for start in range(0, len(calls), MOST_IN_A_POST):
            outcomes += self._post_some(calls[start : start + MOST_IN_A_POST])
            if isinstance(outcomes[-1], Unknown):
                break
        return outcomes + [Refused(f"not sent: {outcomes[-1].text}") for _ in calls[len(outcomes) :]]

    def _post_some(self, calls: Sequence[Call]) -> list[Outcome]:
        if (why := self._why_locked(calls)) is not None:
            return [Refused(why) for _ in calls]
        try:
            return self._channel(calls[0].site, calls[0].unit).send(calls)
        except (LoginRefused, Throttled, SecretMissing) as error:
            return [Refused(str(error)) for _ in calls]
        except Unreachable as error:
            # A refused connection never carried the request; any other broken one may have.
            return [Refused(str(error)) if error.refused else Unknown(str(error)) for _ in calls]
        except BrokerError as error:
            return [Unknown(str(error)) for _ in calls]

    def _channel(self, site: str, pair: str) -> Channel:
        if (site, pair) not in self._open:
            self._open[site, pair] = self._observer.brokers[site][pair].channel()
        return self._open[site, pair]
