"""Refuses a move for messages that lie at one site alone, and names them: in the finding the first, in its evidence
all."""

from collections.abc import Collection, Mapping
from shlex import quote

from dr_ctl.core.model import Json, some
from dr_ctl.engine.outcome import Refused
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES

Ids = Mapping[str, Mapping[str, Collection[str]]]
"""Ids of messages, by queue, and by what is the matter with them."""


def refused(text: str, remedy: str, ids: Ids) -> Refused:
    more = [f"{queue}, {what}: {some(sorted(each))}" for queue, by in ids.items() for what, each in by.items() if each]
    named: dict[str, Json] = {queue: {what: [*sorted(each)] for what, each in by.items()} for queue, by in ids.items()}
    return Refused(text, {"ids": named}, (SAME_COUNT_OTHER_MESSAGES(text, remedy, more=more),))


def accepting(counts: Mapping[str, int]) -> str:
    """The options that accept these differences, as one types them."""
    return " ".join(f"--accept-difference {quote(f'{queue}={count}')}" for queue, count in counts.items())
