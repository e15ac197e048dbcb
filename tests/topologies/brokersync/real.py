"""What the tests on two real brokers that BrokerSync joins share: the agent, started again whenever it ends."""

import subprocess
import threading
from types import TracebackType
from typing import Self

from tests.broker.driving import Operator


class Agents:
    """The agent as a service manager keeps it: it ends when its site serves no more, and is started again."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._over = threading.Event()
        self._now: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep, name="agents")
        self.ends: list[int] = []

    def _keep(self) -> None:
        while not self._over.is_set():
            self._now = self._operator.start("sync")
            self._now.communicate()
            self.ends.append(self._now.returncode)
            self._over.wait(0.2)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._now is not None:
            self._now.terminate()
        self._thread.join(30)
