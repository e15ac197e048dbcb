"""A plan as text for people: in the order of its steps, with the exact calls, on eighty columns where names allow."""

from __future__ import annotations

from dr_ctl.engine.plan import Call, Plan

_SHOWN = 8


def plan_text(plan: Plan) -> str:
    """Everything a person needs before saying yes."""
    lines = [f"{plan.ask.operation} from {plan.source} to {plan.target}", ""]
    for step in plan.steps:
        if step.verb == "point-of-no-return":
            lines.append(f"--- point of no return: {step.about} ---")
            continue
        limits = ", ".join(f"{name} {value:g}" for name, value in step.limits.items())
        lines.append(f"{step.number:3}. {step.verb}: {step.about}{f'  [{limits}]' if limits else ''}")
        lines += [f"       {_told(call)}" for call in step.calls[:_SHOWN]]
        if len(step.calls) > _SHOWN:
            lines.append(f"       … and {len(step.calls) - _SHOWN} more, all of them with --json")
    lines.append("")
    if undone := [step.verb for step in reversed(plan.steps) if step.inverse and step.undoable]:
        lines.append(f"If it fails before the point of no return, this is undone: {', '.join(undone)}.")
    lines += ["Not replicated:", *(f"  - {each}" for each in plan.not_replicated)]
    lines += ["What a plan cannot know:", *(f"  - {each}" for each in plan.cannot_know)]
    return "\n".join(lines)


def _told(call: Call) -> str:
    return call.about if call.when is None else f"({call.about}, only if {call.when}; at most {call.at_most})"
