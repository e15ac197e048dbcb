"""A twin whose sites are joined by an AMQP mirror."""
