"""Shows a plan to people in the order of its steps, on eighty columns where names allow."""

from collections.abc import Iterator, Sequence

from dr_ctl.application.plans import title
from dr_ctl.core.model import by_key
from dr_ctl.core.notation import page
from dr_ctl.engine.operations import NO_RETURN
from dr_ctl.engine.plan import Call, Plan


def plan_text(plan: Plan) -> str:
    lines = [title(plan), ""]
    has_pairs = len({call.unit for step in plan.steps for call in step.calls if call.unit}) > 1
    for step in plan.steps:
        if step.verb == NO_RETURN:
            lines.append(f"{step.number:3}. --- point of no return: {step.summary} ---")
            continue
        names, units = {"lost": "waits for the lost site"}, {"stable": "readings"}
        limits = ", ".join(f"{names.get(it, it)} {value:g} {units.get(it, 's')}" for it, value in step.limits.items())
        lines.append(f"{step.number:3}. {step.verb}: {step.summary}{f'  [{limits}]' if limits else ''}")
        lines += [f"       {text}" for text in _calls(step.calls, has_pairs=has_pairs)]
    lines.append("")
    if plan.untouched:
        lines.append(f"Untouched: {', '.join(plan.untouched)}.")
    if undone := [step.verb for step in reversed(plan.steps) if step.inverse and step.undoable]:
        returns = any(step.verb == NO_RETURN for step in plan.steps)
        when = " before the point of no return" if returns else ""
        lines.append(f"A failure{when} undoes the calls of: {', '.join(undone)}.")
    if plan.not_replicated:
        lines += ["Not replicated:", *(f"  - {sentence}" for sentence in plan.not_replicated)]
    if plan.cannot_know:
        lines += ["What a plan cannot know:", *(f"  - {sentence}" for sentence in plan.cannot_know)]
    return page(lines)


def _calls(calls: Sequence[Call], *, has_pairs: bool) -> Iterator[str]:
    alike = by_key(((call.summary, call.when, call.at_most), call.unit) for call in calls)
    for (summary, when, at_most), pairs in alike.items():
        text = f"{summary} ({', '.join(pairs)})" if has_pairs and all(pairs) else summary
        yield text if when is None else f"({text}, only if {when}; at most {at_most})"
