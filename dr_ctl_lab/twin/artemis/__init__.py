"""What simulated Artemis brokers have in common, whatever joins their sites."""
