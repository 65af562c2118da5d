"""The `andante` command: dispatches on its first word before any room is imported."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple

import tyro

from .errors import AndanteError


class Command(NamedTuple):
    """Where a command lives, and what it needs beyond the bare package."""

    target: str
    extra: str | None
    """What the extra must have brought, for some of its options at least."""
    summary: str


COMMANDS = {
    "train": Command("andante.train.cli:train", "train", "train a policy on a task"),
    "play": Command("andante.train.play:play", "train", "watch an agent on a task: video and plot"),
    "export": Command(
        "andante.export.cli:export", "export", "write a run's policy as one verified ONNX file"
    ),
    "verify": Command(
        "andante.runtime.commands.verify:verify", "train", "check a policy file's digest and golden trace"
    ),
    "inspect": Command("andante.runtime.commands.inspect:inspect", None, "print a policy file's contract"),
    "run": Command("andante.runtime.commands.run:run", None, "run a policy file on a robot, at rate"),
    "tasks": Command("andante.sim.cli:tasks", "sim", "list the tasks, or describe one"),
}


def usage() -> str:
    """The text of `andante --help`."""
    lines = [f"  {name:<9}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: andante COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "andante COMMAND --help tells a command's options.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit status: 0, 1 (a check or an input failed), 2 (usage, or a missing extra) or 130 (interrupted).
    """
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(importlib.import_module("andante").__version__)
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        return _fail(f"no command {words[0]!r}; commands: {', '.join(COMMANDS)}", 2)
    # Two OpenMP threads that spin between kernels starve each other; must be set before torch loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    module_name, function_name = command.target.split(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        status = tyro.cli(
            function,
            prog=f"andante {words[0]}",
            args=words[1:],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
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


def discard_output() -> None:
    """After whoever read the output has left: the interpreter must not try to flush the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> int:
    print(f"andante: {message}", file=sys.stderr)
    return status
