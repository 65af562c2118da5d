"""`andante train`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import docstring_parser
import msgspec
import tyro

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import choose_randomization

from .config import PolicyConfig, TrainConfig
from .fields import require_same
from .files import CHECKPOINT, read_config
from .recipes import get_recipe

Task = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]


def _options(config: type[Record], *left_out: str) -> Any:
    """The fields as a dictionary of those that were given: None is a choice, too."""
    fields: dict[str, Any] = {}
    texts = {text.arg_name: text.description for text in docstring_parser.parse_from_object(config).params}
    for field in msgspec.structs.fields(config):
        if field.name in left_out:
            continue
        # In one piece: tyro keeps the line breaks of a text.
        text = " ".join((texts.get(field.name) or "").split())
        if isinstance(field.type, type) and issubclass(field.type, Record):
            name = "" if field.type is PolicyConfig else None
            fields[field.name] = Annotated[_options(field.type), tyro.conf.arg(name=name, help=text)]
        else:
            hint = tyro.conf.arg(help=text, help_behavior_hint="(default: the recipe's)")
            fields[field.name] = Annotated[field.type, hint]
    return TypedDict(config.__name__, fields, total=False)  # type: ignore[operator]


if TYPE_CHECKING:
    Options = dict[str, Any]
else:
    # Randomisation comes from a file, since its names are the robot's.
    Options = _options(TrainConfig, "task", "randomization")


def train(
    task: Task,
    options: Annotated[Options, tyro.conf.arg(name="")],
    run_dir: Path,
    resume: bool = False,
    overwrite: bool = False,
    config: Path | None = None,
    init_from: Path | None = None,
    randomization: Path | None = None,
    observation_delay: int | None = None,
    wandb: str | None = None,
) -> int:
    """Train a policy on a task. What is not given comes from the task's recipe, or from the run to resume.

    Args:
        task: Task name, see `andante tasks`.
        options: Of the run.
        run_dir: Folder for checkpoints, logs and the result.
        resume: Continue the run in that folder; `--ticks` may be larger than before.
        overwrite: Replace the run in that folder; refused where there is anything else.
        config: A run's `config.json`, instead of the task's recipe. With `--resume` all but the ticks must
            be as in the run.
        init_from: Folder of a run whose best policy this one begins with.
        randomization: File (YAML) of what is randomised, noisy or delayed.
        observation_delay: Ticks by which all that is measured comes late.
        wandb: Project of Weights & Biases to log to as well (extra `wandb`).
    """
    if resume and overwrite:
        raise AndanteError("--resume and --overwrite exclude each other")
    set_threads()
    base = get_recipe(task) if config is None else read_config(config)

    # Not before: `--help` answers without torch, which reads the number of threads when it is loaded.
    from .checkpoint import Checkpoint
    from .learn import learn
    from .ppo import PPO

    saved = Checkpoint.read(run_dir / CHECKPOINT).config if resume else None
    if saved is not None and config is None:
        base = saved
    if get_spec(base.task).name != get_spec(task).name:
        raise AndanteError(f"{config or run_dir}: of task {base.task!r}, expected {task!r}")
    worlds = choose_randomization(randomization, observation_delay, base.randomization)
    wanted = _override(base, {**options, "randomization": worlds})
    if saved is not None:
        require_same(wanted, msgspec.structs.replace(saved, ticks=wanted.ticks), run_dir)
    if learn(PPO.from_config(wanted), wanted, run_dir, resume, overwrite, init_from, wandb):
        return 0
    print(f"{run_dir}: interrupted; a checkpoint was written, --resume continues")
    return 130


def set_threads() -> None:
    """Before torch is loaded, here and in processes started from here: an operation takes one thread.

    The update has threads of its own, see `TrainConfig.threads`.
    """
    os.environ["OMP_NUM_THREADS"] = "1"


def _override(config: Any, given: Mapping[str, Any]) -> Any:
    """`config` with what was given."""
    changes = {
        name: _override(getattr(config, name), value) if isinstance(value, Mapping) else value
        for name, value in given.items()
    }
    return msgspec.structs.replace(config, **changes)
