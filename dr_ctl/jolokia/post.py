"""Questions that travel in one POST, each with its own answer: no answer is found by its place among the others."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from dr_ctl.jolokia.client import READ_S, Answer, Ask, MayCall, Read, Reader, Search
from dr_ctl.jolokia.values import Fields

R_co = TypeVar("R_co", bound=Read | Search | Ask | MayCall, covariant=True)


class Asked(Generic[R_co]):
    """One question of a post. Its answer is there once the post was sent."""

    def __init__(self, request: R_co) -> None:
        self._request = request
        self._answer: Answer | None = None

    @property
    def request(self) -> R_co:
        return self._request

    def answered(self, answer: Answer) -> None:
        self._answer = answer

    def answer(self) -> Answer:
        if self._answer is None:
            raise RuntimeError(f"asked and never sent: {self._request}")
        return self._answer

    def value(self) -> Any:
        """Give the value; raises the error that stands in its place."""
        return self.answer().value()

    def fields(self: Asked[Read]) -> Fields:
        """Give the attributes of the one bean that was read."""
        return Fields(self._request.bean, self.value())


R = TypeVar("R", bound=Read | Search | Ask | MayCall)


class Post:
    """Collects questions and sends them together, in the order in which they were asked."""

    def __init__(self) -> None:
        self._asked: list[Asked[Read | Search | Ask | MayCall]] = []

    def ask(self, request: R) -> Asked[R]:
        asked = Asked(request)
        self._asked.append(asked)
        return asked

    def send(self, reader: Reader, *, timeout_s: float = READ_S) -> None:
        """Send all in one POST; an answer that is an error is raised where it is read."""
        answers = reader.look([asked.request for asked in self._asked], timeout_s=timeout_s)
        for asked, answer in zip(self._asked, answers, strict=True):
            asked.answered(answer)
