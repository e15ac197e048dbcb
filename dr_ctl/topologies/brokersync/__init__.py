"""Two Classic brokers that copy to each other over network connectors, kept clean by an agent."""
