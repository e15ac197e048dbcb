"""Opens an installation for a command: settings, topology and runbooks. Starts two readings of both sites before the
modules that report them are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dr_ctl.application.caller import Caller
from dr_ctl.core.document import key
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, by_key
from dr_ctl.core.system import BackgroundTask, in_background
from dr_ctl.engine import runbook
from dr_ctl.engine.operations import FAILBACK, FENCE, HOOK, REINSTATE, RESTART, SINGLE_STEPS, single_step
from dr_ctl.engine.runbook import FENCING_PREFIX, Runbook, with_hooks
from dr_ctl.engine.runs import Runs
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import NoCleaner


@dataclass(frozen=True, slots=True)
class OpenInstallation:
    """An installation opened for reading; only the topology's driver can change brokers."""

    caller: Caller
    installation: Installation
    topology: registry.Topology
    runs: Runs

    @classmethod
    @contextmanager
    def of(cls, caller: Caller) -> Iterator[OpenInstallation]:
        installation, runs = caller.installation(), caller.runs()
        with closing(registry.opened(installation, caller.timeouts, runs.documents)) as topology:
            yield cls(caller, installation, topology, runs)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.installation.settings.sites)

    def other(self, site: str) -> str:
        return self.installation.other(site)

    def runbook(self, operation: str) -> Runbook:
        """Return the runbook of an operation; raises `UsageError` for a hook that the settings do not have."""
        hooks = self.installation.settings.hooks
        if operation in SINGLE_STEPS:
            book, fencing = single_step(operation), [name for name in hooks if name.startswith(FENCING_PREFIX)]
            return replace(book, steps=with_hooks(book.steps, fencing)) if operation == FENCE else book
        of = FAILBACK if operation == REINSTATE else operation
        book = runbook.load(of, folder(self.installation), self.installation.settings.order)
        for step in book.steps:
            if step.verb == HOOK and (name := str(step.words["name"])) not in hooks:
                text = f"{book.path.name}:{step.line}: the settings have no hook {name}"
                raise UsageError(text, remedy=f"Name it under `hooks:` in {self.installation.file.name}.")
        return book

    @property
    def has_agent(self) -> bool:
        """Whether the topology needs the agent of `sync`. Raises `UsageError` if the agent could not work here."""
        try:
            self.topology.cleaner(self.sites[0], {}).close()
        except NoCleaner:
            return False
        return True

    def unverified(self) -> list[Finding]:
        return [finding for name in self.sites if (finding := unverified_at(self.installation, name))]

    def link_advice(self, site: str) -> str:
        restarts = {step.verb for step in single_step(RESTART).steps} <= self.topology.recipe.verbs()
        restart = f"`dr-ctl link restart {site}`; if that does not help, check" if restarts else "Check"
        return f"{restart} the network between the sites."


@dataclass(frozen=True, slots=True)
class RunbookEntry:
    name: str
    summary: str = field(metadata=key("about"))


@dataclass(frozen=True, slots=True)
class RunbooksData:
    runbooks: Sequence[RunbookEntry]


@dataclass(frozen=True, slots=True)
class RunbookData:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LintData:
    files: Sequence[Path]


def folder(installation: Installation) -> Path:
    """Return the folder of the runbooks: the installation's own, or those of dr-ctl."""
    own = installation.settings.runbooks
    return installation.path(own) if own is not None else runbook.shipped()


def unverified_at(installation: Installation, site: str) -> Finding | None:
    if installation.settings.sites[site].tls.verify:
        return None
    return found("DR-TLS-001", site=site, file=installation.file.name)


def addresses(installation: Installation) -> dict[tuple[str, str], list[str]]:
    """Return each address of the settings with the brokers and nodes that have it."""
    brokers = ((site, broker) for site, of_site in installation.settings.sites.items() for broker in of_site.brokers)
    return by_key(
        ((name, str(address).rstrip("/").lower()), f"{site}/{broker.name}")
        for site, broker in brokers
        for process in (broker, *(getattr(broker, "nodes", None) or ()))
        for name in ("jolokia", "stomp")
        if (address := getattr(process, name, None))
    )


def shared_addresses(installation: Installation) -> list[Finding]:
    """Report addresses that several brokers have, which would make readings and test logins wrong."""
    return [
        found("DR-SETTINGS-006", brokers=" and ".join(names), key=key)
        for (key, _), names in addresses(installation).items()
        if len(names) > 1
    ]


@contextmanager
def looking(caller: Caller) -> Iterator[tuple[OpenInstallation, BackgroundTask[Snapshot]]]:
    """Start two readings, which show rates. The end of the block waits for a reading that still runs."""
    snapshot: BackgroundTask[Snapshot] | None = None
    try:
        with OpenInstallation.of(caller) as opened:
            read = partial(opened.topology.read, over_s=caller.timeouts.rates_s)
            snapshot = in_background(read, "two readings")
            yield opened, snapshot
    finally:
        if snapshot is not None:
            snapshot.wait()
