"""Every way in which Jolokia fails that is not a broker's own (those stand in `core.errors`).

BrokerError
├── Unreachable
│   └── NotConnected    nothing was sent
├── NotJolokia          something else answers there: a web page, a proxy
├── Torn                JSON that ends early, is too large, or does not fit the question
└── ElementError        one request of several failed, inside an answer that is otherwise fine
    ├── PolicyRefused       the console's policy forbids it (403 inside 200)
    ├── NoSuchBean          no such bean, or no such attribute
    ├── OperationFailed     the operation raised
    └── BadValue            a value of another type than asked for: an error in a value's place
"""

from dr_ctl.core.errors import BrokerError, Unreachable


class NotConnected(Unreachable):
    """No connection came about, so no request was sent."""


class NameUnknown(NotConnected):
    """The name in the address cannot be resolved."""

    lies_here = True
    remedy = "Is the address in the settings right, and does this machine's name service know it?"


class NotJolokia(BrokerError):
    lies_here = True
    remedy = "Is `jolokia:` the address of the console's Jolokia, as in http://host:8161/console/jolokia?"


class Torn(BrokerError):
    remedy = "Something between here and the broker cuts or alters answers; try from another host."


class ElementError(BrokerError):
    """A request of a POST failed; the other answers are valid."""


class PolicyRefused(ElementError):
    remedy = "Set `origin:` of the site to what the console allows, or allow the operation in its jolokia-access.xml."


class NoSuchBean(ElementError):
    remedy = "The name may be misspelt in the settings file, or the broker is another version than expected."


class OperationFailed(ElementError):
    remedy = "The broker refused the operation; its log says why."


class BadValue(ElementError):
    remedy = "The broker gave an error in place of a value; its log says why."
