"""Commands that run a policy on a robot."""

from __future__ import annotations

import os
import sys


def discard_output() -> None:
    """After whoever read the output has left: the interpreter must not try to flush the rest."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
