"""Parts for every broker with listeners, queues and counters, whichever product manages it and joins its sites."""
