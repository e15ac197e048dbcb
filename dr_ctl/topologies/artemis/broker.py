"""What one look at an Artemis broker told, whatever joins it to its peer: how it is asked to do what a recipe means.

A broker keeps security settings in its journal, above what broker.xml says. Taking one away again is enough for a match
that broker.xml does not have; one that it has, as `#`, is only read again with the whole file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.operations import (
    LET_IN,
    RELOAD,
    SHUT_OUT,
    SHUT_OUT_WITH_VIEWS,
    ArtemisRequests,
    request,
)
from dr_ctl.topologies.artemis.papers import IN_USER, Papers
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.view import Broker

STILL_OUT: Final = "the broker still keeps them out"
# In the order of the operation's arguments.
_WORDS: Final = (
    "send", "consume", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue",
    "manage", "browse", "createAddress", "deleteAddress",
)  # fmt: skip
_VIEWS: Final = ("view", "edit")


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    """One Artemis broker as it answered."""

    @property
    def papers(self) -> Papers:
        """How documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def requests(self) -> ArtemisRequests:
        return ArtemisRequests(self.broker, self.papers)

    @property
    def fenced(self) -> Sequence[str]:
        """The matches that a lasting fence is for."""
        return self.config.lasting.matches if self.config.lasting is not None else ()

    def shutting_out(self, when: str | None = None) -> list[Call]:
        return self.keeping_out(self.fenced, when)

    def admitting(self, when: str | None = None) -> list[Call]:
        return self.letting_in(self.fenced, when)

    def keeping_out(self, matches: Sequence[str], when: str | None = None) -> list[Call]:
        """Take from the clients' roles what they may do; every other role keeps what it has. Without `when`, only where
        they may do something now."""
        lasting = self.config.lasting
        if lasting is None:
            return []
        calls, server = [], beans.server(self.broker)
        for match in matches:
            if when is None and not self.lets_in(match):
                continue
            others = {role: words for role, words in self.grants[match].items() if role not in lasting.roles}
            views = any(word in _VIEWS for words in others.values() for word in words)
            listed = [
                ",".join(role for role, words in others.items() if word in words)
                for word in (*_WORDS, *(_VIEWS if views else ()))
            ]
            operation = SHUT_OUT_WITH_VIEWS if views else SHUT_OUT
            about = f"keep role {', '.join(lasting.roles)} out of {match}"
            calls.append(call(self, Goal.SHUT_OUT, match, request(server, operation, (match, *listed)), about, when))
        return calls

    def letting_in(self, matches: Sequence[str], when: str | None = None) -> list[Call]:
        """Give it back. Without `when`, only where it is taken away now."""
        lasting = self.config.lasting
        if lasting is None:
            return []
        server, roles = beans.server(self.broker), ", ".join(lasting.roles)
        calls = [
            call(self, Goal.ADMIT, match, request(server, LET_IN, (match,)), f"let role {roles} in to {match}", when)
            for match in matches
            if when is not None or not self.lets_in(match)
        ]
        if calls:
            calls.append(call(self, Goal.ADMIT, ALL, request(server, RELOAD), "read broker.xml again", STILL_OUT))
        return calls


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
