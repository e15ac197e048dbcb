"""The objectives of the settings, as the estimate and the bounds judge by them."""

from __future__ import annotations

from dr_ctl.rpo.result import LossClass, LossLimit, Objectives
from dr_ctl.settings.model import Installation


def objectives(installation: Installation) -> Objectives | None:
    told = installation.settings.objectives
    if told is None:
        return None
    classes = tuple(LossClass(each.queues, LossLimit(each.loss.messages, each.loss.age)) for each in told.classes)
    return Objectives(LossLimit(told.loss.messages, told.loss.age), classes)
