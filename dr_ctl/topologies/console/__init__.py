"""Common parts for brokers that are managed over Jolokia, whatever their family."""
