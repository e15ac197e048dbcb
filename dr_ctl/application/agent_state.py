"""How the agent of `dr-ctl sync` stands, for every command that looks: none runs, the last one is gone, somebody holds
it, and what it said itself."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dr_ctl.agents.sync import Phase
from dr_ctl.application.installation import Opened
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.core.notation import if_known
from dr_ctl.topologies.topology import NoKeeper, Snapshot, keeper_of

START: Final = "`dr-ctl sync` on the machine of this STATE, best as a service."
GONE: Final = timedelta(seconds=10)
"""The agent writes every second; a single removal may take longer, a minute at the very most."""


def of_agent(opened: Opened, snapshot: Snapshot) -> list[Finding]:
    """What a person must know of the agent; nothing where the topology needs none."""
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    last = opened.notes.read()
    site = serving[0] if len(serving) == 1 else last.get("primary")
    try:
        keeper_of(opened.topology, next(iter(snapshot.roles)), {}).close()
    except NoKeeper:
        return []
    except UsageError as error:
        return [found("DR-AGENT-008.unusable", remedy=error.remedy, why=error)]
    if site is None:  # nobody serves, and no agent has ever worked
        return [found("DR-AGENT-008.never")]
    return [*_stands(opened, last, site), *_said(last, site)]


def _stands(opened: Opened, last: Mapping[str, Any], site: str) -> Iterator[Finding]:
    if last.get("primary") != site:
        yield found("DR-AGENT-008.never_of_site", site=site)
    elif last.get("phase") == Phase.FINISHED.value:
        ended, why = if_known(last.get("at")), if_known(last.get("why"))
        yield found("DR-AGENT-008.ended", site=site, ended=ended, why=why)
    elif opened.clock.now() - _at(last) > GONE:
        yield found("DR-AGENT-008.gone", site=site, since=if_known(last.get("at")))
    if (hold := opened.notes.hold()) is not None:
        yield found("DR-AGENT-008.held", hold=hold.text)


def _said(last: Mapping[str, Any], site: str) -> Iterator[Finding]:
    """The findings of the agent itself, as of its last word."""
    if last.get("primary") != site:
        return
    for each in last.get("findings", []):
        yield Finding(each["id"], Severity(each["severity"]), each["text"], each["remedy"])


def _at(last: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(str(last.get("at")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
