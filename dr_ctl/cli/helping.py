"""`--help` as it is read at night: commands by what they are for, whole sentences, the exit codes at its end."""

from typing import Any, Final

from typer.core import TyperGroup
from typer.main import get_command

from dr_ctl.cli.added import TEXTS, added
from dr_ctl.core.findings import MEANINGS

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Look (nothing is changed)": (
        "status",
        "validate",
        "check",
        "verify",
        "plan",
        "plan approve",
        "rpo",
        "monitor",
        "runs",
        "history",
        "explain",
        "schema",
    ),
    "Move the service": ("swapover", "failback"),
    "A site is lost": ("failover", "reinstate", "escalate"),
    "One step at a time": ("quiesce", "fence", "drain", "activate", "unfence", "link", "trim"),
    "Go on, or back": ("resume", "abort"),
    "Keep a Classic standby clean": ("sync",),
    "Prepare and practise": ("init", "rehearse", "runbook", "lab", "demo"),
}
_WHOLE: Final = 10_000  # characters: no first sentence is longer


class Group(TyperGroup):
    """A group whose commands are told in whole sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = self._rows(ctx)
        with formatter.section("Commands"):
            formatter.write_dl(list(rows.items()))

    def _rows(self, ctx: Any) -> dict[str, str]:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {name: each.get_short_help_str(_WHOLE) for name, each in commands.items() if each is not None}


class Whole(Group):
    """The command line as a whole: commands by purpose, with those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *TEXTS]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])  # `plan approve` is a command beside `plan`
        command = self.get_command(ctx, two) if len(args) > 1 else None
        return super().resolve_command(ctx, args) if command is None else (two, command, args[2:])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or (commands := added(cmd_name)) is None:
            return own
        return get_command(commands)

    def _rows(self, ctx: Any) -> dict[str, str]:
        own = {name: super(Whole, self).get_command(ctx, name) for name in super().list_commands(ctx)}
        return {name: each.get_short_help_str(_WHOLE) for name, each in own.items() if each is not None} | TEXTS

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = self._rows(ctx)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, rows[name]) for name in names if name in rows])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Exit codes (`dr-ctl explain CODE` says what to do)"):
            formatter.write_dl([(str(int(code)), meaning.brief) for code, meaning in MEANINGS.items()])
