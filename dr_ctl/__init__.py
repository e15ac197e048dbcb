"""dr-ctl: moves a messaging service between two sites of ActiveMQ brokers."""

__version__ = "0.1.0"
