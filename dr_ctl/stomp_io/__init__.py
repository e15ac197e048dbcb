"""Messages in and out over STOMP."""
