"""Sorts findings by what they are of, for a person: the installation, its settings, a site, a pair, an operation."""

from collections.abc import Callable, Sequence
from typing import Final

from dr_ctl.application.result import Group
from dr_ctl.application.verdicts import Verdict
from dr_ctl.core.model import Finding, Severity
from dr_ctl.engine.ports import Check
from dr_ctl.settings.model import Installation

SETTINGS: Final = "settings"
"""The place of a check that is of the settings by themselves."""
_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def grouped(
    installation: Installation,
    findings: Sequence[Finding],
    checks: Sequence[Check],
    verdicts: Sequence[Verdict],
    *,
    verbose: bool,
) -> list[Group]:
    """The findings by the place of the check that makes them, else by the operation that they are against; those of
    neither are the installation's. `verbose` adds the checks."""
    of_check = {finding: check.where for check in checks for finding in check.found}
    of_operation = {
        finding: verdict.about for verdict in reversed(verdicts) for finding in (*verdict.findings, verdict.price)
    }
    own = installation.settings.name
    places = [of_check.get(each) or of_operation.get(each) or own for each in findings]
    titles = [own, *sorted({*places, *(check.where for check in checks)} - {own}, key=_rank(installation))]
    return [
        Group(
            f"installation {title}" if title == own else title,
            sorted(
                (each for each, place in zip(findings, places, strict=True) if place == title),
                key=lambda each: _ORDER.index(each.severity),
            ),
            [check for check in checks if check.where == title] if verbose else (),
        )
        for title in titles
    ]


def _rank(installation: Installation) -> Callable[[str], tuple[int, str]]:
    """The settings first, then each site with its brokers, then pairs; operations at the end."""
    settings = installation.settings
    sites = [*settings.sites]
    pairs = {broker.name for site in settings.sites.values() for broker in site.brokers}

    def rank(title: str) -> tuple[int, str]:
        site = title.partition("/")[0]
        if title == SETTINGS:
            return 0, title
        if site in sites:
            return 1 + sites.index(site), title
        return 1 + len(sites) + (title not in pairs), title

    return rank
