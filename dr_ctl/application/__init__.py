"""The use-cases: each takes values and ports and returns a result. Printing, asking and parsing words belong to
`cli`."""
