"""What a process that runs a module says by its exit code."""

REFUSED = 3
"""The module returned an error, whose text is on stderr; other codes than 0 are crashes."""
