"""``python -m patcher``."""

from patcher.cli import run

run()
