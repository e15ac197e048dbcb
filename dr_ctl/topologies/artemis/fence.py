"""A fence by listeners and, where the settings name them, by the rights of the clients' roles, which outlast a restart.

A broker keeps security settings in its journal, above broker.xml. Removing a setting is enough for a match that
broker.xml lacks; a match in the file, as `#`, is only read again with the whole file. A match has one entry: a fence
replaces rights that somebody set through management, so the fence's entry keeps a copy of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.operations import (
    LET_IN,
    RELOAD,
    SHUT_OUT,
    SHUT_OUT_WITH_VIEWS,
    START_LOCK,
    STOP_LOCK,
)
from dr_ctl.topologies.common.calls import Request, arguments_of, call, request
from dr_ctl.topologies.common.fence import Fence
from dr_ctl.topologies.common.view import Acceptor, Grants, Peer

if TYPE_CHECKING:
    from dr_ctl.topologies.artemis.broker import ArtemisBroker

STILL_OUT: Final = "the broker still keeps them out"
OTHERWISE: Final = "its own file gives them others"
# A role that nobody has: under it a fence keeps what a client's role may do by somebody's own word.
ASIDE: Final = "dr-ctl.kept-out."
EVERY: Final = "#"
# In the order of the operation's arguments.
_WORDS: Final = (
    "send", "consume", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue",
    "manage", "browse", "createAddress", "deleteAddress",
)  # fmt: skip
_VIEWS: Final = ("view", "edit")


class ListenersAndRoles(Fence):
    view: ArtemisBroker

    @property
    def matches(self) -> Sequence[str]:
        """The matches that a lasting fence is for."""
        return self.view.config.lasting.matches if self.view.config.lasting is not None else ()

    @property
    def contends(self) -> Sequence[str]:
        return [coordinator.name for coordinator in self.view.coordinators if coordinator.contends]

    @property
    def awaits(self) -> Sequence[str]:
        return [each.name for each in self.view.coordinators if each.contends and not each.holds]

    @property
    def rests(self) -> Sequence[str]:
        return [coordinator.name for coordinator in self.view.coordinators if not coordinator.contends]

    def yielding(self, when: str | None = None) -> list[Call]:
        """Where a lock opens acceptors, stopping one of these would hand the lock over."""
        names = self.contends if when is None else [coordinator.name for coordinator in self.view.coordinators]
        return [self._of_lock(Goal.STOP, name, when) for name in names if self.view.drives_locks]

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        return (*self.yielding(when), *super().closing(listeners, when))

    def opening(self, listeners: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        """The coordinators first: an acceptor that is told to open while its lock is not held opens with it."""
        opens = super().opening(listeners, peer, when)
        names = [coordinator.name for coordinator in self.view.coordinators if opens and self.view.drives_locks]
        return (*(self._of_lock(Goal.START, name, when) for name in names), *opens)

    def _of_lock(self, goal: Goal, name: str, when: str | None) -> Call:
        operation = START_LOCK if goal is Goal.START else STOP_LOCK
        asked = self.view.requests.of_server((operation, (name,)))
        return call(self.view, goal, name, asked, f"{goal.value} lock coordinator {name}", when)

    def shutting_out(self, when: str | None = None) -> list[Call]:
        return self.keeping_out(self.matches, when)

    def admitting(self, when: str | None = None) -> list[Call]:
        return self.letting_in(self.matches, when)

    @property
    def stays_out(self) -> bool:
        """A match that is taken away leaves what is said of all addresses, until broker.xml is read again."""
        return self.view.usual is not None and not self.view.lets_in_by(self.view.usual)

    def keeping_out(self, matches: Sequence[str], when: str | None = None) -> list[Call]:
        """Take from the clients' roles what they may do; every other role keeps what it has. Without `when`, only where
        they may do something now."""
        lasting = self.view.config.lasting
        if lasting is None:
            return []
        calls = []
        for match in matches:
            if when is None and not self.view.lets_in(match):
                continue
            aside = self._noted(match)
            words = {
                f"{ASIDE}{role}" if role in lasting.roles else role: may
                for role, may in self.view.grants.get(match, {}).items()
                if role not in lasting.roles or aside
            }
            about = f"keep role {', '.join(lasting.roles)} out of {match}"
            calls.append(call(self.view, Goal.SHUT_OUT, match, self._saying(match, words), about, when))
        return calls

    def letting_in(self, matches: Sequence[str], when: str | None = None) -> list[Call]:
        """Give it back. Without `when`, only where it is taken away now."""
        lasting = self.view.config.lasting
        if lasting is None:
            return []
        view, roles = self.view, ", ".join(lasting.roles)
        server = beans.server(view.broker)
        calls = [
            call(
                self.view, Goal.ADMIT, match, request(server, LET_IN, (match,)), f"let role {roles} in to {match}", when
            )
            for match in matches
            if when is not None or not view.lets_in(match)
        ]
        if calls:
            calls.append(call(view, Goal.ADMIT, ALL, request(server, RELOAD), "read broker.xml again", STILL_OUT))
        for match in [each.thing for each in calls if each.thing != ALL and self._noted(each.thing)]:
            about = f"give the roles at {match} the rights from before the fence"
            calls.append(
                call(self.view, Goal.RESTORE, match, self._saying(match, self._before(match)), about, OTHERWISE)
            )
        return calls

    def holds(self, call: Call) -> bool | None:
        if call.goal in (Goal.START, Goal.STOP):
            return (call.thing in self.contends) is (call.goal is Goal.START)
        if call.goal is not Goal.RESTORE:
            return super().holds(call)
        wanted = self._saying(call.thing, self.view.grants.get(call.thing, {}))
        return _by_word(wanted) == _by_word(call.request)

    def _before(self, match: str) -> Grants:
        """The rights of each role there while no fence stands: a fence keeps the clients' words under other names."""
        grants = self.view.grants.get(match, {})
        own = {role.removeprefix(ASIDE): may for role, may in grants.items() if role.startswith(ASIDE)}
        return own | {role: may for role, may in grants.items() if not role.startswith(ASIDE)}

    def _noted(self, match: str) -> bool:
        """True if somebody gave a match rights of its own: only a note can give those back. For the match of all
        addresses, broker.xml is the only other source."""
        noted = any(role.startswith(ASIDE) for role in self.view.grants.get(match, {}))
        narrower = (
            self.view.usual is not None and match != EVERY and _words(self._before(match)) != _words(self.view.usual)
        )
        return noted or (narrower and self.view.lets_in(match))

    def _saying(self, match: str, words: Grants) -> Request:
        """The request that sets what each role may do there."""
        views = any(word in _VIEWS for may in words.values() for word in may)
        listed = [
            ",".join(role for role, may in words.items() if word in may)
            for word in (*_WORDS, *(_VIEWS if views else ()))
        ]
        return request(beans.server(self.view.broker), SHUT_OUT_WITH_VIEWS if views else SHUT_OUT, (match, *listed))


def _words(grants: Grants) -> dict[str, frozenset[str]]:
    """The rights of each role, without roles that have none."""
    return {role: frozenset(may) for role, may in grants.items() if may}


def _by_word(asked: Request) -> list[frozenset[str]]:
    """The roles of each word in a request that sets rights, in the order of the words; words that nobody has are left
    out at its end, as versions differ in how many there are."""
    roles = [frozenset(filter(None, str(each).split(","))) for each in arguments_of(asked)[1:]]
    while roles and not roles[-1]:
        roles.pop()
    return roles
