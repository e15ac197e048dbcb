"""The JSON documents of the commands as types: JSON Schema is made of them, and tests hold the documents to them."""
