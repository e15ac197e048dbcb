"""The calls of a fence: doors closed, and, where the settings name roles, these kept out beyond a restart. Pure.

A broker keeps such a setting in its journal, above what broker.xml says. Taking it away again is enough for a match
that broker.xml does not have; one that it has, as `#`, is only read again with the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia import beans
from dr_ctl.topologies.artemis.baseline import before
from dr_ctl.topologies.artemis.operations import (
    LET_IN,
    RELOAD,
    SHUT_OUT,
    SHUT_OUT_WITH_VIEWS,
    call,
    request,
)
from dr_ctl.topologies.artemis.view import Broker, Peer

STILL_OUT: Final = "the broker still keeps them out"
# In the order of the operation's arguments.
_WORDS: Final = (
    "send", "consume", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue",
    "manage", "browse", "createAddress", "deleteAddress",
)  # fmt: skip
_VIEWS: Final = ("view", "edit")


def fence(views: Iterable[Broker]) -> list[Call]:
    """Close every door that is open and keep the clients' roles out."""
    calls: list[Call] = []
    for view in views:
        calls += view.closing(door for door in view.doors if door.started)
        calls += shut_out(view)
    return calls


def unfence(views: Iterable[Broker], move: Move) -> list[Call]:
    """Put back what `fence` changes, as it was before the run."""
    calls: list[Call] = []
    for view in views:
        was = before(move, view)
        calls += [] if was["shut_out"] else let_in(view, "they are kept out")
        calls += view.opening(
            (door for door in view.doors if was["doors"].get(door.name)), Peer.NOT_DRAINED, "it is closed"
        )
    return calls


def shut_out(view: Broker, when: str | None = None) -> list[Call]:
    """Take from the clients' roles what they may do; every other role keeps what it has. Without `when`, only where
    they may do something now."""
    lasting = view.config.lasting
    if lasting is None:
        return []
    calls, server = [], beans.server(view.broker)
    for match in lasting.matches:
        if when is None and not view.lets_in(match):
            continue
        others = {role: words for role, words in view.grants[match].items() if role not in lasting.roles}
        views = any(word in _VIEWS for words in others.values() for word in words)
        listed = [
            ",".join(role for role, words in others.items() if word in words)
            for word in (*_WORDS, *(_VIEWS if views else ()))
        ]
        operation = SHUT_OUT_WITH_VIEWS if views else SHUT_OUT
        about = f"keep role {', '.join(lasting.roles)} out of {match}"
        calls.append(call(view, Goal.SHUT_OUT, match, request(server, operation, (match, *listed)), about, when))
    return calls


def let_in(view: Broker, when: str | None = None) -> list[Call]:
    """Give it back. Without `when`, only where it is taken away now."""
    lasting = view.config.lasting
    if lasting is None:
        return []
    server, roles = beans.server(view.broker), ", ".join(lasting.roles)
    calls = [
        call(view, Goal.ADMIT, match, request(server, LET_IN, (match,)), f"let role {roles} in to {match}", when)
        for match in lasting.matches
        if when is not None or not view.lets_in(match)
    ]
    if calls:
        calls.append(call(view, Goal.ADMIT, ALL, request(server, RELOAD), "read broker.xml again", STILL_OUT))
    return calls
