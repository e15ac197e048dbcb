"""The tools of acts in one command: eyes, a sender, the doors, the gate, and what they remember."""

from collections.abc import Sequence
from typing import Any, Final, Generic

from dr_ctl.core.model import some
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.effects import holds, still, to_undo
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.seen import V_co
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.verifier import Verifier

ROLES: Final = (Goal.ADMIT, Goal.RESTORE)


class Tools(Generic[V_co]):
    """An instance serves one command. `opened` is True once a call that opens the target has gone out, `cut_off` where
    a hook was to cut the lost site off. `opening_s`: for how long a broker that was told to let clients in may keep
    them waiting."""

    opening_s = 0.0

    def __init__(
        self, observer: Observer[V_co, Access[V_co]], recipe: Recipe[V_co], sender: Sender, gate: Verifier[Any]
    ) -> None:
        self.observer, self.recipe, self.sender, self.gate = observer, recipe, sender, gate
        self.rules, self.patience = recipe.rules, observer.patience
        self.doors = Doors(observer)
        self.opened = self.cut_off = False

    def by_hand(self, site: str, by_console: str) -> str:
        """What a person does where dr-ctl could not open a site again."""
        return f"in the console of {site}: {by_console}, and resume its paused queues"

    def change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self.sender.send)

    def views(self, *sites: str) -> list[V_co]:
        """Every broker of these sites, looked at now. Raises `BrokerError`."""
        return [view for site in sites for view in self.observer.look_at(site)]

    def views_of(self, calls: Sequence[Call]) -> list[V_co]:
        """Look now at the brokers of these calls, and at no other. Raises `BrokerError`."""
        sites = sorted({call.site for call in calls})
        return [
            view
            for site in sites
            for view in self.observer.look_at(site, {call.unit for call in calls if call.site == site})
        ]

    def make(self, calls: Sequence[Call], hand: Hand, *sites: str) -> Refused | None:
        """Make the calls whose effect does not hold, and look again; returns None where every effect holds."""
        views = self.views(*sites)
        self.change([call for call in calls if not holds(call, views)], hand)
        return still(calls, self.views(*sites))

    def let_in(self, calls: Sequence[Call], seen: Sequence[V_co], hand: Hand) -> None:
        """Give the clients' roles back what a lasting fence took, where they are `seen` to be kept out; broker.xml is
        read again in the same request where nothing less lets them in. What came of it has to be looked at."""
        gives = {(call.site, call.unit) for call in calls if _gives(call) and not holds(call, seen)}
        again = {(view.site, view.pair) for view in seen if view.fence.stays_out} & gives
        self.change(
            [
                call
                for call in calls
                if (_gives(call) and not holds(call, seen)) or (_reads(call) and (call.site, call.unit) in again)
            ],
            hand,
        )

    def admit(self, site: str, calls: Sequence[Call], hand: Hand, *, again: bool = False) -> str | None:
        """Give the clients' roles back what a lasting fence took; broker.xml is read again only where the roles are
        still kept out. A match with rights of its own gets these back where the file has others. Returns why clients
        are still kept out; returns None where they are let in. `again`: a call that did nothing is made once more."""
        gives = [call for call in calls if _gives(call)]
        restores = [call for call in calls if call.goal is Goal.RESTORE]
        if missing := self._missing(gives, site):
            self.change(missing, hand)
            missing = self._missing(gives, site)
            if again and missing:
                self.change(missing, hand)
                missing = self._missing(gives, site)
        if missing:
            units = {call.unit for call in missing}
            self.change([call for call in calls if _reads(call) and call.unit in units], hand)
            missing = self._missing(gives, site)
        if restores and (lacking := self._missing(restores, site)):
            self.change(lacking, hand)
            missing = self._missing([*gives, *restores], site)
        return f"{site}: has not come true: {some([call.about for call in missing])}" if missing else None

    def _missing(self, calls: Sequence[Call], site: str) -> list[Call]:
        views = self.observer.rights_at(site, {call.unit for call in calls})
        return [call for call in calls if not holds(call, views)]

    def put_back(self, step: PlannedStep, site: str, hand: Hand) -> Outcome:
        """Undo a step all of whose inverse is at one site."""
        mine = [call for call in step.inverse if call.site == site]
        if not (calls := to_undo(mine, self.views_of(mine))):
            return NotNeeded("as it was")
        self.change(calls, hand)
        return still(mine, self.views_of(mine)) or Done("as it was")

    def taken_back(self, move: Move) -> set[str]:
        """The pairs at the target that something else closes again, where the topology has such a thing."""
        del move
        return set()


def _gives(call: Call) -> bool:
    return call.goal is Goal.ADMIT and call.thing != ALL


def _reads(call: Call) -> bool:
    return call.goal is Goal.ADMIT and call.thing == ALL
