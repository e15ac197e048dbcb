"""What brokers with doors, queues and counters have in common, whatever manages them and joins their sites."""
