"""`andante check-recipe`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from andante.runtime.errors import AndanteError

from .cli import Task, set_threads
from .fields import require_same
from .files import CHECKPOINT, RESULT
from .recipes import expected_return, get_recipe


def check_recipe(task: Task, seed: int = 0, run_dir: Path | None = None) -> int:
    """Train a task's recipe, and compare the result with what the task says is to be expected.

    Args:
        task: Task name, see `andante tasks`.
        seed: Of the training.
        run_dir: Folder to keep the run in, where one that was interrupted goes on; a temporary one
            unless given.
    """
    set_threads()
    config = msgspec.structs.replace(get_recipe(task), seed=seed)
    expected = expected_return(config)
    if expected is None:
        raise AndanteError(f"task {config.task!r} does not say what return to expect of its recipe")

    # Not before: `--help` answers without torch, and threads are read when it is loaded.
    from .checkpoint import Checkpoint, read_result
    from .learn import learn
    from .ppo import PPO

    with ExitStack() as stack:
        folder = run_dir or Path(stack.enter_context(TemporaryDirectory(prefix="andante-"))) / "run"
        began = (folder / CHECKPOINT).exists()
        if began:
            require_same(config, Checkpoint.read(folder / CHECKPOINT).config, folder)
        finished = began and (folder / RESULT).exists()
        if not finished and not learn(PPO.from_config(config), config, folder, resume=began):
            raise KeyboardInterrupt
        result = read_result(folder / RESULT)
    assert result is not None
    print(
        f"{config.task}, seed {seed}: return {result.returned:.2f} is {'' if result.as_expected else 'not '}"
        f"in the expected range, {expected[0]:g} to {expected[1]:g}"
    )
    return 0 if result.as_expected else 1
