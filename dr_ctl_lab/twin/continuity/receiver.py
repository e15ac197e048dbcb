"""The plugin's consumer of messages that its bridges ship."""

from dr_ctl_lab.twin.messages import Consumer, Message, Queue, Reason


class Receiver(Consumer):
    """Consumes one queue, in order."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.inbox: list[Message] = []

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.inbox.append(message)

    def listen(self) -> None:
        self.inbox.clear()
        self.queue.consumers.append(self)
        self.queue.dispatch()

    def receive(self) -> list[Message]:
        arrived, self.inbox = self.inbox, []
        for message in arrived:
            self.queue.remove(message, Reason.NORMAL)
        return arrived
