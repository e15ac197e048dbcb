"""What all simulated ActiveMQ Classic brokers have in common, and a package for each way in which they are joined."""
