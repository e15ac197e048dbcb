"""The debts, by the brokers that answered and, for silent brokers, by STATE; and the state of the agent of `dr-ctl
sync`: whether it runs, whether a hold stops it, and its own findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from dr_ctl.agents.sync import Phase
from dr_ctl.application.caller import Caller
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.core.document import moment
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import system
from dr_ctl.engine.debts import Debt, Notes, known, merged, remember
from dr_ctl.engine.roles import sites_serving
from dr_ctl.engine.runs import DEBTS
from dr_ctl.topologies.registry import Snapshot

START: Final = "`dr-ctl sync` on the machine of this STATE, best as a service."
NOT_NOW: Final = "Not now: the agent works only while one site serves. A failover's bound counts copies that it left."
LATER: Final = "`dr-ctl sync` once the lost site is reinstated: until then the agent deletes nothing."
SILENT_FOR: Final = timedelta(seconds=10)  # of the agent's file, which is written about every second


class PendingDebts(NamedTuple):
    """The debts; `findings` report that STATE could not be read or written."""

    debts: Sequence[Debt]
    findings: tuple[Finding, ...] = ()


def pending_debts(caller: Caller, snapshot: Snapshot) -> PendingDebts:
    """Join the debts of the brokers with those of STATE, and write the result to STATE, for the time when a broker with
    a debt is silent. An unreadable STATE does not end the command."""
    path = caller.state() / DEBTS
    silent = {broker.site for broker in snapshot.brokers if broker.silent is not None}
    answered = {broker.site for broker in snapshot.brokers} - silent
    try:
        debts = merged(known(path), snapshot.debts, answered)
    except EnvironmentFault as error:
        finding = found("DR-DEBT-001", error=error, path=path)
        return PendingDebts(merged((), snapshot.debts, answered), (finding,))
    try:
        remember(path, debts)
    except OSError as error:
        return PendingDebts(debts, (found("DR-DEBT-001.not_written", error=error.strerror or error, path=path),))
    return PendingDebts(debts)


def agent_findings(opened: OpenInstallation, snapshot: Snapshot) -> list[Finding]:
    """Report the state of the agent; a topology without an agent has no findings."""
    serving, notes = sites_serving(snapshot), Notes(opened.caller.state())
    last = notes.read()
    site = serving[0] if len(serving) == 1 else last.get("primary")
    try:
        if not opened.has_agent:
            return []
    except UsageError as error:
        return [found("DR-AGENT-008.unusable", remedy=error.remedy, why=error)]
    if site is None:  # no site serves, and no agent has ever run
        return [replace(found("DR-AGENT-008.never"), remedy=NOT_NOW)]
    rows = last.get("findings", []) if last.get("primary") == site else []  # the agent's own
    own = [Finding(row["id"], Severity(row["severity"]), row["text"], row["remedy"]) for row in rows]
    of_state = [*_state_findings(notes, last, site)]
    if not serving:
        return [replace(finding, remedy=NOT_NOW) for finding in (*of_state, *own)]
    return [*([replace(finding, remedy=LATER) for finding in of_state] if snapshot.debts else of_state), *own]


def _state_findings(notes: Notes, last: Mapping[str, Any], site: str) -> Iterator[Finding]:
    if last.get("primary") != site:
        yield found("DR-AGENT-008.never_of_site", site=site)
    elif last.get("phase") == Phase.FINISHED.value:
        ended, why = if_known(last.get("at")), if_known(last.get("why"))
        yield found("DR-AGENT-008.ended", site=site, ended=ended, why=why)
    elif (at := moment(last.get("at"))) is None or system().now() - at > SILENT_FOR:
        yield found("DR-AGENT-008.gone", site=site, since=if_known(last.get("at")))
    if (hold := notes.hold()) is not None:
        yield found("DR-AGENT-008.held", hold=hold.text)
