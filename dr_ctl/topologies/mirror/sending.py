"""Sends calls to the brokers and says what came of each: an answer is done or refused, silence is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia.client import Answer, Change, Changer, Wire
from dr_ctl.jolokia.errors import LoginRefused, Throttled, Unreachable
from dr_ctl.processes.secrets import SecretMissing
from dr_ctl.topologies.mirror.access import Observer, changer


class Sender:
    """The only way to change a broker of this topology. A dry run has none."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._open: dict[tuple[str, str], tuple[Wire, Changer]] = {}

    def close(self) -> None:
        for wire, _ in self._open.values():
            wire.close()

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send in order, consecutive calls to one broker in one POST; one outcome each."""
        outcomes: list[Outcome] = []
        group: list[Call] = []
        for call in calls:
            if group and (call.site, call.pair) != (group[0].site, group[0].pair):
                outcomes += self._post(group)
                group = []
            group.append(call)
        return outcomes + (self._post(group) if group else [])

    def _post(self, calls: Sequence[Call]) -> list[Outcome]:
        try:
            answers = self._changer(calls[0].site, calls[0].pair).change(
                [Change(call.bean, call.operation, call.arguments) for call in calls]
            )
        except (LoginRefused, Throttled, SecretMissing) as error:
            return [Refused(str(error)) for _ in calls]
        except Unreachable as error:
            # A refused connection never carried the request; any other broken one may have.
            return [Refused(str(error)) if error.refused else Unknown(str(error)) for _ in calls]
        except BrokerError as error:
            return [Unknown(str(error)) for _ in calls]
        return [_outcome(answer) for answer in answers]

    def _changer(self, site: str, pair: str) -> Changer:
        if (site, pair) not in self._open:
            self._open[site, pair] = changer(self._observer.brokers[site][pair])
        return self._open[site, pair][1]


def _outcome(answer: Answer) -> Outcome:
    return Done("answered") if answer.error is None else Refused(str(answer.error))
