"""What works on the messages of a site and moves with the service, around any topology: no topology knows of it."""
