"""`andante train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import tyro

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim.spec.randomization import Randomization, choose_randomization

from .config import PolicyConfig, TrainConfig
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
    randomization: Path | None = None,
    observation_delay: int | None = None,
) -> int:
    """Train a policy on a task. What is not given comes from the task's recipe, or from the run to resume.

    Args:
        options: Of the run.
        run_dir: Folder for checkpoints, logs and the result.
        resume: Continue the run in that folder; `--ticks` may be larger than before.
        overwrite: Replace the run in that folder; refused where there is anything else.
        randomization: File (YAML) of what is randomised, noisy or delayed.
        observation_delay: Ticks by which all that is measured comes late.
    """
    # Not before: `--help` answers without torch.
    from .checkpoint import CHECKPOINT, Checkpoint
    from .learn import learn
    from .ppo import PPO

    if resume and overwrite:
        raise AndanteError("--resume and --overwrite exclude each other")
    saved = Checkpoint.read(run_dir / CHECKPOINT).config if resume else None
    recipe = saved or get_recipe(options.task)
    chosen = choose_randomization(randomization, observation_delay, recipe.randomization)
    options = msgspec.structs.replace(options, randomization=chosen)
    config = _continue(options, saved, run_dir) if saved else _override(recipe, options)
    if learn(PPO.from_config(config), config, run_dir, resume, overwrite):
        return 0
    print(f"{run_dir}: interrupted; a checkpoint was written, --resume continues")
    return 130


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
    for (name, found), (_, expected) in zip(_flatten(wanted), _flatten(config), strict=True):
        if found != expected and name != "ticks":
            raise AndanteError(f"{run_dir}: {name} is {expected!r} in this run, found {found!r}")
    return wanted


def _flatten(config: Record, prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name in config.__struct_fields__:
        value = getattr(config, name)
        pairs += (
            _flatten(value, f"{prefix}{name}.") if isinstance(value, Record) else [(prefix + name, value)]
        )
    return pairs
