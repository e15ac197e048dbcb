"""The findings of the settings by themselves, without a look at any broker."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

IS_NOT_HERE: Final = FindingKind(
    "DR-SETTINGS-001",
    Severity.ERROR,
    "A command, a certificate or a folder that the settings name is not where they say, or cannot be used.",
    "Mend the path, which is relative to the settings file, or put there what is missing.",
    "Until then the step that needs it fails, and is undone.",
    check="every command that the settings name can be started",
)
NOT_ON_THIS_MACHINE: Final = FindingKind(
    "DR-SETTINGS-002",
    Severity.WARNING,
    "A program or a file that the settings name is not on this machine; where dr-ctl runs, it may be.",
    "Nothing, where the machines that run dr-ctl have it; else mend the settings.",
)
PASSWORD_IN_SETTINGS: Final = FindingKind(
    "DR-SETTINGS-003",
    Severity.WARNING,
    "A password stands in the settings file, readable for everybody who reads that file.",
    "Name where the password is instead: `{env: NAME}`, `{file: PATH}` or `{command: [ARGV]}`.",
    check="no password stands in the settings",
)
HOOK_UNKNOWN: Final = FindingKind(
    "DR-SETTINGS-004",
    Severity.ERROR,
    "A runbook names a hook that the settings do not have.",
    "Add the hook under `hooks:` in the settings, or mend its name in the runbook.",
    "Until then every command of that operation is refused (2).",
)
HOOK_UNUSED: Final = FindingKind(
    "DR-SETTINGS-005",
    Severity.WARNING,
    "The settings have a hook that no runbook names, so it never runs.",
    "Name it in a runbook, or remove it. A hook whose name begins with `fence` needs none: `fence` calls it.",
    check="every hook is called by a runbook",
)
SAME_ADDRESS: Final = FindingKind(
    "DR-SETTINGS-006",
    Severity.ERROR,
    "Two brokers of the settings have one management address, so one broker would be looked at as two.",
    "Write each broker's own address under `jolokia:`.",
    "Until then dr-ctl sees at both what is at one.",
    check="each broker has a management address of its own",
)
