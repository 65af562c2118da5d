"""`andante play`."""

from __future__ import annotations

from pathlib import Path

from andante.runtime.errors import AndanteError
from andante.sim.spec.randomization import TIMING, choose_randomization

from .cli import Task
from .config import check_seed


def play(
    task: Task,
    agent: str = "zero",
    output: Path = Path("play.mp4"),
    seed: int = 0,
    seconds: float | None = None,
    plot_only: bool = False,
    live: bool = False,
    host: str = "127.0.0.1",
    port: int = 8080,
    from_dump: Path | None = None,
    randomization: Path | None = None,
    observation_delay: int | None = None,
) -> None:
    """Watch an agent on a task: one episode as a video with a plot beside it, or live in a browser.

    Args:
        task: Task name, see `andante tasks`.
        agent: `zero`, `random`, `demonstrator`, a run folder or a policy file.
        output: Video to write; the plot has the same name, ending in .png. A task without physics has a plot
            alone.
        seed: Of the initial state, and of random actions.
        seconds: Longest: of the episode, or of the live view.
        plot_only: No video.
        live: Serve a web page with episode after episode, until Close is pressed there, or Ctrl-C here.
        host: Where to serve the page; 0.0.0.0 lets other machines watch and steer.
        port: Of the page; the next one that is free.
        from_dump: Instead of all this, repeat what a training stopped on (dump.pt), or the last moments of a
            world whose physics diverged (diverged.pt).
        randomization: File (YAML) of what is randomised, noisy or delayed; a run's own, if the agent is one.
        observation_delay: Ticks by which all that is measured comes late.
    """
    check_seed(seed)
    if seconds is not None and not seconds > 0.0:
        raise AndanteError(f"seconds must be positive, found {seconds}")
    if live:
        _watch(task, agent, seed, seconds, host, port, from_dump, (randomization, observation_delay))
        return
    divergence = None
    if from_dump is not None:
        from .divergence import Divergence

        divergence = Divergence.read(from_dump)
        if divergence is None:
            from .replay import replay_dump

            print(f"{from_dump}: {replay_dump(from_dump, task)} is not finite, as recorded")
            return
    if output.suffix != ".mp4":
        raise AndanteError(f"{output}: expected a name ending in .mp4")
    if not output.parent.is_dir():
        raise AndanteError(f"{output}: no folder {output.parent}")
    from andante.sim.spec import get_spec, has_physics

    video = output if has_physics(task) and not plot_only else None
    if video is not None:
        from .video import prepare_rendering

        prepare_rendering()
    # Not before: `--help` answers without torch, and MuJoCo must be imported after rendering is prepared.
    spec = get_spec(task)
    if from_dump is not None and divergence is not None:
        from .replay import replay_divergence

        episode = replay_divergence(from_dump, divergence, task)
        summary = f"{divergence}, as recorded"
    else:
        from .agents import Trained, make_agent, trained_with
        from .episode import play_episode

        ticks = None if seconds is None else max(1, round(seconds / spec.control_dt))
        chosen = choose_randomization(randomization, observation_delay, trained_with(agent))
        acting = make_agent(agent, spec, seed)
        late = [entry.field for entry in chosen.entries() if entry.field in TIMING]
        if late and not isinstance(acting, Trained):
            print(f"{agent} decides on time: {', '.join(late)} left out")
        episode = play_episode(acting, seed, ticks, chosen)
        summary = f"{task}, {agent}: return {episode.rewards.sum():.2f} in {len(episode.rewards)} ticks"
    print(summary)
    from .plot import plot_episode

    picture = output.with_suffix(".png")
    plot_episode(episode, summary, picture)
    print(picture)
    if video is not None:
        from .video import write_video

        write_video(episode, video)
        print(video)


def _watch(
    task: str,
    agent: str,
    seed: int,
    seconds: float | None,
    host: str,
    port: int,
    from_dump: Path | None,
    randomization: tuple[Path | None, int | None],
) -> None:
    if from_dump is not None:
        raise AndanteError("--live and --from-dump exclude each other")
    try:
        from .agents import trained_with
        from .live import watch
    except ModuleNotFoundError as error:
        if error.name not in ("viser", "mjviser"):
            raise
        raise AndanteError(
            f"--live needs {error.name}, which is not installed: in andante's folder: pip install '.[view]'"
        ) from None
    watch(task, agent, seed, seconds, host, port, choose_randomization(*randomization, trained_with(agent)))
