"""Every way a broker's management can fail to answer, as types: what the caller does next differs for each.

BrokerError
├── Unreachable         nobody listens, or no way there
├── TimedOut            no answer in time: it may have happened
├── LoginRefused        403/401 from the console: ends all further calls to that broker
├── Throttled           429: the console asks for patience
├── Sick                5xx that is not JSON: the process lives, its management does not
├── NotJolokia          something else answers there: a web page, a proxy
├── Torn                JSON that ends early, is too large, or does not fit the question
└── ElementError        one request of several failed, inside an answer that is otherwise fine
    ├── PolicyRefused       the console's policy forbids it (403 inside 200)
    ├── NoSuchBean          no such bean, or no such attribute
    ├── OperationFailed     the operation raised
    └── BadValue            a value of another type than asked for: an error in a value's place
"""

from __future__ import annotations

from dr_ctl.core.errors import BrokerError


class Unreachable(BrokerError):
    """Nobody listens at the address, or there is no way there. `refused` is true when the port itself said no."""

    remedy = "Is the broker running, and is its console bound to an address that this machine reaches?"

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


class TimedOut(BrokerError):
    remedy = "The broker may be frozen or overloaded; it may still serve its clients."


class LoginRefused(BrokerError):
    remedy = "Check username and password of this broker in the settings file; repeated attempts lock the account out."


class Throttled(BrokerError):
    remedy = "The console throttles logins of this user after failures; wait as long as it says, then try again."


class Sick(BrokerError):
    remedy = "The process lives but its management fails (out of memory?): it may still serve; it is not down."


class NotJolokia(BrokerError):
    remedy = "Is `jolokia:` the address of the console's Jolokia, as in http://host:8161/console/jolokia?"


class Torn(BrokerError):
    remedy = "Something between here and the broker cuts or alters answers; try from another host."


class ElementError(BrokerError):
    """One request of a POST failed; the others' answers stand."""


class PolicyRefused(ElementError):
    remedy = "Set `origin:` of the site to what the console allows, or allow the operation in its jolokia-access.xml."


class NoSuchBean(ElementError):
    remedy = "The name may be misspelt in the settings file, or the broker is another version than expected."


class OperationFailed(ElementError):
    remedy = "The broker refused the operation; its log says why."


class BadValue(ElementError):
    remedy = "The broker gave an error in place of a value; its log says why."
