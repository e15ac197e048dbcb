"""A finding as a value: what dr-ctl knows of it beforehand stands in one place, beside the code that makes it.

A kind of finding is called with what was seen, and gives the finding. `explain`, the docs and the list of checks are
made of the kinds; how much a finding weighs is a field of its kind, and no list of ids elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from dr_ctl.core.exit_codes import NO_UNDO
from dr_ctl.core.model import Finding, Severity, Weight

__all__ = ["FindingKind", "Weight", "kinds_in"]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """`what` is so, what to `do`, what that `costs`, whether it can be undone; `check` is the name under which
    `validate` lists it, empty for what is no check."""

    id: str
    severity: Severity
    what: str
    do: str
    costs: str = "Nothing."
    undo: str = NO_UNDO
    check: str = ""
    weighs: Weight = Weight.NONE

    def __call__(
        self, text: str, remedy: str = "", *, more: Sequence[str] = (), severity: Severity | None = None
    ) -> Finding:
        """The finding, of what was seen. `severity` is that of the kind unless this case is another."""
        return Finding(self.id, severity or self.severity, text, remedy, more, self.weighs)


def kinds_in(*modules: ModuleType) -> Mapping[str, FindingKind]:
    """The kinds of findings that modules define, by id."""
    return {kind.id: kind for module in modules for kind in vars(module).values() if isinstance(kind, FindingKind)}
