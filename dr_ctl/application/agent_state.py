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
        return [found("DR-AGENT-008", f"no agent deletes copies of what is consumed: {error}", error.remedy)]
    if site is None:  # nobody serves, and no agent has ever worked
        text = "no agent with this STATE has ever worked: copies of what is consumed stay, and are duplicates then"
        return [found("DR-AGENT-008", text, START)]
    return [*_stands(opened, last, site), *_said(last, site)]


def _stands(opened: Opened, last: Mapping[str, Any], site: str) -> Iterator[Finding]:
    if last.get("primary") != site:
        yield found(
            "DR-AGENT-008", f"no agent with this STATE has worked for {site}: copies of what is consumed stay", START
        )
    elif last.get("phase") == Phase.FINISHED.value:
        ended, why = if_known(last.get("at")), if_known(last.get("why"))
        text = f"the agent for {site} ended at {ended} ({why}): copies of what is consumed stay"
        yield found("DR-AGENT-008", text, START)
    elif opened.clock.now() - _at(last) > GONE:
        yield found(
            "DR-AGENT-008",
            f"the agent for {site} is gone since {if_known(last.get('at'))}: copies of what is consumed stay",
            START,
        )
    if (hold := opened.notes.hold()) is not None:
        text = f"no copy of what is consumed is deleted: held by {hold.text}"
        yield found(
            "DR-AGENT-008", text, "`dr-ctl sync --go-on` ends that; the copies of what left meanwhile then go too."
        )


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
