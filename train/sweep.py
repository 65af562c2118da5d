"""`andante sweep`: every combination of some values, with several seeds, each run in a process of its own."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import tyro

from andante.runtime.errors import AndanteError

from .cli import Task, set_threads
from .config import TrainConfig
from .fields import require_same, with_values
from .files import CHECKPOINT, CONFIG, RESULT, read_config, write_atomically, write_json
from .recipes import get_recipe

if TYPE_CHECKING:
    from .checkpoint import Result

TABLE = "sweep.csv"
ANDANTE = (sys.executable, "-c", "import sys; from andante.cli import main; sys.exit(main())")
POLL_S = 0.1


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of a sweep."""

    values: dict[str, str]
    """What was set, by the fields' names."""
    config: TrainConfig
    run_dir: Path

    @property
    def log(self) -> Path:
        """Where its output goes: beside the folder, which has to be empty at first."""
        return self.run_dir.with_suffix(".log")

    @property
    def combination(self) -> Path:
        """Configuration that the seeds share."""
        return self.run_dir.parent / CONFIG

    def result(self) -> Result | None:
        """What it has come to, if it has finished."""
        from .checkpoint import read_result

        return read_result(self.run_dir / RESULT)

    def start(self) -> subprocess.Popen[bytes]:
        """Begin it, or go on with it."""
        began = (self.run_dir / CHECKPOINT).exists()
        words = ("train", self.config.task, "--config", self.combination, "--run-dir", self.run_dir)
        seed = ("--seed", str(self.config.seed), "--resume" if began else "--overwrite")
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches it once, from here.
            return subprocess.Popen(
                [*ANDANTE, *map(str, words), *seed], stdout=log, stderr=log, start_new_session=True
            )


def sweep(
    task: Task,
    run_dir: Path,
    seeds: tuple[int, ...] = (0,),
    set_: Annotated[
        tuple[tuple[str, ...], ...],
        tyro.conf.arg(name="set", metavar="FIELD=VALUE,VALUE ..."),
        tyro.conf.UseAppendAction,
    ] = (),
    jobs: int = 1,
) -> int:
    """Train every combination of values with every seed, and compare the results.

    What has finished in the folder is not trained again, and what was interrupted goes on.

    Args:
        task: Task name, see `andante tasks`.
        run_dir: Folder of all the runs, and of `sweep.csv`.
        seeds: Of the trainings.
        set_: Fields to set, as in config.json, with the values to try: ppo.gamma=0.98,0.99. A value that is
            a list is written as one: ppo.smoothness=[0,0,0],[0,0,0.003]
        jobs: Runs at a time.
    """
    set_threads()
    recipe = get_recipe(task)
    if jobs < 1 or not seeds:
        raise AndanteError(f"expected at least one job and one seed, found {jobs} and {len(seeds)}")
    trials = [
        Trial(values, msgspec.structs.replace(config, seed=seed), run_dir / _name(values) / f"seed{seed}")
        for values, config in _combine(recipe, _choices(set_))
        for seed in dict.fromkeys(seeds)
    ]
    _check(trials)
    try:
        for trial in trials:
            trial.run_dir.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AndanteError(f"{error.filename}: {error.strerror}") from None
    for trial in trials:
        write_json(trial.combination, msgspec.structs.replace(trial.config, seed=seeds[0]))
    todo = [trial for trial in trials if trial.result() is None]
    print(f"{len(trials)} runs, {len(trials) - len(todo)} of them finished before", flush=True)
    _run(todo, jobs)
    _write_table(run_dir / TABLE, trials)
    _print_table(trials)
    failed = [trial for trial in trials if trial.result() is None]
    if failed:
        lines = failed[0].log.read_text(errors="replace").splitlines()
        raise AndanteError(
            f"{len(failed)} of {len(trials)} runs failed; {failed[0].log}: {lines[-1] if lines else 'killed'}"
        )
    return 0


def _choices(given: tuple[tuple[str, ...], ...]) -> dict[str, list[Any]]:
    """Fields, and the values to try, of all that `--set` was given, once or several times."""
    choices: dict[str, list[Any]] = {}
    for setting in itertools.chain(*given):
        name, values = _parse(setting)
        if name in choices:
            raise AndanteError(f"--set {setting}: {name} is set twice; give all its values at once")
        choices[name] = values
    return choices


def _parse(setting: str) -> tuple[str, list[Any]]:
    """`field=value,value`, where the values together may be JSON."""
    name, equals, text = setting.partition("=")
    if not equals or not text:
        raise AndanteError(f"--set {setting}: expected FIELD=VALUE or FIELD=VALUE,VALUE")
    if name in ("task", "seed"):
        raise AndanteError(f"--set {setting}: a sweep has one task, and its seeds are given by --seeds")
    try:
        return name, json.loads(f"[{text}]")
    except json.JSONDecodeError:
        return name, [None if value in ("None", "null") else value for value in text.split(",")]


def _combine(recipe: TrainConfig, choices: dict[str, list[Any]]) -> list[tuple[dict[str, str], TrainConfig]]:
    """Every combination of values, as texts, and the configuration that it makes."""
    combinations: dict[str, tuple[dict[str, str], TrainConfig]] = {}
    for combination in itertools.product(*choices.values()):
        values = dict(zip(choices, combination, strict=True))
        texts = {name: _text(value) for name, value in values.items()}
        combinations[_name(texts)] = texts, with_values(recipe, values)
    return list(combinations.values())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _name(values: dict[str, str]) -> str:
    """Of a combination's folder."""
    return ",".join(f"{name}={value}" for name, value in values.items()).replace("/", "_") or "recipe"


def _check(trials: list[Trial]) -> None:
    """Find what is wrong before anything starts: values of no use, and other runs in the folders."""
    from .ppo import PPO

    checked: list[dict[str, str]] = []
    for trial in trials:
        if (trial.run_dir / CONFIG).exists():
            require_same(trial.config, read_config(trial.run_dir / CONFIG), trial.run_dir)
        if trial.values not in checked:
            checked.append(trial.values)
            few = trial.config.ppo.minibatches
            PPO.from_config(msgspec.structs.replace(trial.config, num_worlds=few, device="cpu"))


def _run(todo: list[Trial], jobs: int) -> None:
    """Run all, so many at a time; Ctrl-C, or a signal to end, has those that run write their checkpoints."""
    waiting, running = list(todo), dict[Trial, subprocess.Popen[bytes]]()
    ends = (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in ends}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running[waiting[0]] = waiting[0].start()
                waiting.pop(0)
            time.sleep(POLL_S)
            for trial, process in list(running.items()):
                if process.poll() is not None:
                    del running[trial]
                    done = trial.result()
                    outcome = "failed" if done is None else f"return {done.returned:.2f}"
                    print(f"{trial.run_dir}: {outcome}", flush=True)
    except BaseException:
        for process in running.values():
            # Not SIGINT, a second of which ends a run at once: others may signal all processes, too.
            process.terminate()
        for process in running.values():
            process.wait()
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _write_table(path: Path, trials: list[Trial]) -> None:
    """A row for each run."""
    names = ("return", "random_return", "as_expected", "train_ticks_per_s")
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow([*trials[0].values, "seed", *names, "run_dir"])
    for trial in trials:
        result = msgspec.to_builtins(trial.result()) or {}
        found = [result.get(name) for name in names]
        folder = os.path.relpath(trial.run_dir, path.parent)
        writer.writerow([*trial.values.values(), trial.config.seed, *found, folder])
    write_atomically(path, table.getvalue().encode())


def _print_table(trials: list[Trial]) -> None:
    """A row for each combination: mean, least and largest return over seeds; the best first."""
    returns: dict[tuple[str, ...], list[float]] = {}
    for trial in trials:
        found, result = returns.setdefault(tuple(trial.values.values()), []), trial.result()
        if result is not None:
            found.append(result.returned)
    ranked = sorted(returns.items(), key=lambda row: -mean(row[1]) if row[1] else float("inf"))
    rows = [[*trials[0].values, "runs", "mean", "min", "max"]]
    for values, found in ranked:
        figures = [f"{figure(found):.2f}" for figure in (mean, min, max)] if found else ["-"] * 3
        rows.append([*values, str(len(found)), *figures])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
