"""The plugin's own consumer, at the end of what its bridges carry."""

from dr_ctl_lab.twin.messages import Message, Queue, Reason, Taker


class Receiver(Taker):
    """The plugin's own consumer of a queue, in order."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.inbox: list[Message] = []

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.inbox.append(message)

    def listen(self) -> None:
        self.inbox.clear()
        self.queue.takers.append(self)
        self.queue.dispatch()

    def receive(self) -> list[Message]:
        came, self.inbox = self.inbox, []
        for message in came:
            self.queue.remove(message, Reason.NORMAL)
        return came
