"""Parts for every broker with doors, queues and counters, whichever product manages it and joins its sites."""
