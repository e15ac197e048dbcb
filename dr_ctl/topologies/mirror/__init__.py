"""The dual AMQP mirror of Artemis, one pair of brokers or several."""
