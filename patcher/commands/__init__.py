"""The commands: each gathers, calls an operation, and shows the result."""
