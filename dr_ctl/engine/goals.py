"""Goals: the purpose of a call, whichever request serves that purpose at one kind of broker."""

from enum import Enum
from typing import Final


class Goal(Enum):
    """The state at the broker after a successful call; the call's `thing` names the listener, queue or role."""

    OPEN = "open"  # a listener lets in
    CLOSE = "close"
    ADMIT = "admit"  # the clients' roles may do what they do
    RESTORE = "restore"  # every role may do just what it did before a fence
    SHUT_OUT = "shut-out"
    CUT = "cut"  # clients' connections are ended
    PAUSE = "pause"  # a queue delivers nothing
    RESUME = "resume"
    WRITE = "write"  # a document, or another queue of dr-ctl's own, stands there
    STRIKE = "strike"
    LINK_UP = "link-up"  # the sender of messages to the peer, or the delivery of those from the peer, is started
    LINK_DOWN = "link-down"
    MOVE = "move"  # messages of a queue
    COPY = "copy"  # messages that lie at the peer
    REMOVE = "remove"
    HAND_OVER = "hand-over"  # a broker gives up the store, so that the other one takes it
    START = "start"  # a workload, or a broker's process, runs
    STOP = "stop"
    HOOK = "hook"  # a command of the installation's own


# The thing of a call that is for all there are: every listener, every queue, every role.
ALL: Final = ""
