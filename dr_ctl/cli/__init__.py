"""The command line: arguments in, one result out as text or JSON, exit code."""
