"""What every topology of Classic brokers has in common."""
