"""The `andante` command: dispatches on its first word before any room is imported."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from typing import NamedTuple

import tyro

from andante.runtime.commands import discard_output
from andante.runtime.errors import AndanteError


class Command(NamedTuple):
    """Where a command lives, and what it needs beyond the bare package."""

    module: str
    """Of `andante`; has a function of the command's name."""
    extra: str | None
    """What the extra must have brought, for some of its options at least."""
    summary: str


COMMANDS = {
    "train": Command("train.cli", "train", "train a policy on a task"),
    "evaluate": Command("train.evaluate_command", "train", "play a run's policy in episodes of any length"),
    "sweep": Command("train.sweep", "train", "train over seeds and values of fields, and compare"),
    "check-recipe": Command("train.check", "train", "train a task's recipe, and check the result"),
    "play": Command("train.play", "train", "watch an agent on a task: video and plot"),
    "export": Command("export.cli", "export", "write a run's policy as one verified ONNX file"),
    "verify": Command("doctor.commands.verify", "train", "check a policy file's digest and golden trace"),
    "inspect": Command("doctor.commands.inspect", None, "print a policy file's contract"),
    "run": Command("runtime.commands.run", None, "run a policy file on a robot, at rate"),
    "operate": Command("runtime.commands.operate", None, "send an operator's wishes to a run elsewhere"),
    "doctor": Command("doctor.commands.doctor", None, "inspect this machine, or a robot's profile"),
    "simulate": Command("sim.udp_robot", "sim", "simulate a robot in real time behind UDP"),
    "replay": Command("runtime.recorder.commands", "record", "run a recording again to the first difference"),
    "diff": Command("runtime.recorder.commands", "record", "compare two recordings"),
    "report": Command("runtime.recorder.commands", "record", "plot a recording"),
    "profile": Command("doctor.commands.profile", None, "check a robot profile, and that a policy fits it"),
    "tasks": Command("train.tasks", "sim", "list the tasks, or describe one"),
}


def usage() -> str:
    """The text of `andante --help`."""
    lines = [f"  {name:<14}{command.summary}" for name, command in COMMANDS.items()]
    hint = "andante COMMAND --help tells a command's options."
    return "\n".join(["usage: andante COMMAND [OPTIONS]", "", *lines, "", hint])


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit status: 0, 1 (a check or an input failed), 2 (usage, or a missing extra) or 130 (interrupted).
    """
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "--version"):
        print(importlib.import_module("andante").__version__ if words[:1] == ["--version"] else usage())
        return 0 if words else 2
    command = COMMANDS.get(words[0])
    if command is None:
        return _fail(f"no command {words[0]!r}; commands: {', '.join(COMMANDS)}", 2)
    # Two OpenMP threads that spin between kernels starve each other; must be set before torch loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        function = getattr(importlib.import_module(f"andante.{command.module}"), words[0].replace("-", "_"))
        function.__doc__ = _unbroken(function.__doc__ or "")
        options = (tyro.conf.FlagCreatePairsOff,)
        status = tyro.cli(function, prog=f"andante {words[0]}", args=words[1:], config=options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except AndanteError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        discard_output()
        return 1
    except ModuleNotFoundError as error:
        if command.extra is None or (error.name or "").startswith("andante"):
            raise
        hint = f"in andante's folder: pip install '.[{command.extra}]'"
        return _fail(f"`{words[0]}` needs {error.name}, which is not installed: {hint}", 2)
    return status if isinstance(status, int) else 0


def _unbroken(doc: str) -> str:
    """With the text of each argument in one line: the help would keep its line breaks."""
    return re.sub(r"\n {8,}(?=\S)", " ", inspect.cleandoc(doc))


def _fail(message: str, status: int) -> int:
    print(f"andante: {message}", file=sys.stderr)
    return status
