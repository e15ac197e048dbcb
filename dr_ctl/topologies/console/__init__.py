"""What brokers have in common that are managed over Jolokia, whatever their family."""
