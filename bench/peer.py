"""The other side of a benchmark, in the Python that it is installed in.

A peer is a script that prepares its work and calls `serve`; the benchmark starts it as a `Peer` and lets it
take turns. Between its turns it only waits for its standard input. Both ends need nothing but the standard
library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


class Peer:
    """A process with the other side.

    Args:
        python: its interpreter.
        script: file name in this folder.
        arguments: of the script.
        environment: variables beside those of this process.
    """

    def __init__(self, python: str, script: str, *arguments: str, **environment: str) -> None:
        path = Path(__file__).with_name(script)
        self._process = subprocess.Popen(
            [python, path, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self._answer()

    def turn(self) -> float:
        """Let it work once; returns what it measured."""
        assert self._process.stdin is not None
        print("go", file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args[1]} ended with status {self._process.wait()}")
        return answer


def serve(prepare: Callable[[], Callable[[], float]]) -> None:
    """Prepare, then measure once for each line on standard input, until it closes."""
    answers, sys.stdout = sys.stdout, sys.stderr
    measure = prepare()
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(measure(), file=answers, flush=True)
