"""sm-patch: open, and where they are wrong close, the architecture gates of installed inference engines."""

__version__ = "0.1.0"
