"""`andante train`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import tyro

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import Randomization, choose_randomization

from .config import PolicyConfig, TrainConfig
from .fields import require_same
from .files import CHECKPOINT, CONFIG, read_config
from .recipes import get_recipe


def _optional(config: type[Record], **given: Any) -> type:
    """The same fields, each None unless said: what a user leaves out must not count as chosen."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(config):
        if field.name in given:
            continue
        if field.type is Randomization:
            # From a file, since its names are the robot's.
            fields.append((field.name, Annotated[Any, tyro.conf.Suppress], None))
            continue
        if isinstance(field.type, type) and issubclass(field.type, Record):
            nested: Any = _optional(field.type)
            unprefixed = Annotated[nested, tyro.conf.arg(name="")]
            fields.append((field.name, unprefixed if field.type is PolicyConfig else nested, nested()))
        else:
            hint = tyro.conf.arg(help_behavior_hint="(default: the recipe's)")
            fields.append((field.name, Annotated[field.type | None, hint], None))
    return msgspec.defstruct(
        config.__name__,
        [*given.items(), *fields],
        bases=(config,),
        namespace={"__post_init__": lambda self: None, "__doc__": config.__doc__},
        frozen=True,
        kw_only=True,
    )


if TYPE_CHECKING:
    Options = TrainConfig
else:
    Options = _optional(TrainConfig, task=tyro.conf.Positional[str])


def train(
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
        options: Of the run.
        run_dir: Folder for checkpoints, logs and the result.
        resume: Continue the run in that folder; `--ticks` may be larger than before.
        overwrite: Replace the run in that folder; refused where there is anything else.
        config: A run's `config.json`, instead of the task's recipe.
        init_from: Folder of a run whose best policy this one begins with.
        randomization: File (YAML) of what is randomised, noisy or delayed.
        observation_delay: Ticks by which all that is measured comes late.
        wandb: Project of Weights & Biases to log to as well (extra `wandb`).
    """
    if resume and overwrite:
        raise AndanteError("--resume and --overwrite exclude each other")
    recipe = get_recipe(options.task) if config is None else read_config(config)
    if recipe.task != get_spec(options.task).name:
        raise AndanteError(f"{config}: of task {recipe.task!r}, expected {options.task!r}")
    set_threads(options.threads or _saved_threads(run_dir, resume) or recipe.threads)

    # Not before: `--help` answers without torch, and threads are read when it is loaded.
    from .checkpoint import Checkpoint
    from .learn import learn
    from .ppo import PPO

    saved = Checkpoint.read(run_dir / CHECKPOINT).config if resume else None
    chosen = choose_randomization(randomization, observation_delay, (saved or recipe).randomization)
    options = msgspec.structs.replace(options, randomization=chosen)
    wanted = _continue(options, saved, run_dir) if saved else _override(recipe, options)
    if learn(PPO.from_config(wanted), wanted, run_dir, resume, overwrite, init_from, wandb):
        return 0
    print(f"{run_dir}: interrupted; a checkpoint was written, --resume continues")
    return 130


def set_threads(threads: int) -> None:
    """How many threads OpenMP has in this process and those it starts, unless torch was loaded before."""
    if "torch" not in sys.modules:
        os.environ["OMP_NUM_THREADS"] = str(threads)


def _saved_threads(run_dir: Path, resume: bool) -> int | None:
    """Of a run to resume; whatever is wrong with its files, its checkpoint will tell."""
    try:
        return read_config(run_dir / CONFIG).threads if resume else None
    except AndanteError:
        return None


def _override(config: Any, options: Any) -> Any:
    """`config` with what was given."""
    changes = {}
    for field in msgspec.structs.fields(type(config)):
        chosen = getattr(options, field.name)
        if isinstance(chosen, Record) and not isinstance(chosen, Randomization):
            changes[field.name] = _override(getattr(config, field.name), chosen)
        elif chosen is not None:
            changes[field.name] = chosen
    return msgspec.structs.replace(config, **changes)


def _continue(options: TrainConfig, config: TrainConfig, run_dir: Path) -> TrainConfig:
    """The configuration of a run, with more ticks if so given; anything else must agree."""
    wanted: TrainConfig = _override(config, options)
    require_same(wanted, msgspec.structs.replace(config, ticks=wanted.ticks), run_dir)
    return wanted
