"""What each step does, imported in the process that runs it."""
