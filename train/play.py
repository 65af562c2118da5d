"""`andante play`."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from andante.runtime.errors import AndanteError

from .config import check_seed


def play(
    task: Positional[str],
    agent: str = "zero",
    output: Path = Path("play.mp4"),
    seed: int = 0,
    plot_only: bool = False,
    from_dump: Path | None = None,
) -> None:
    """Watch an agent on a task for one episode: writes a video, and a plot beside it.

    Args:
        task: Task name, see `andante tasks`.
        agent: `zero`, `random`, a run folder or a policy file.
        output: Video to write; the plot has the same name, ending in .png.
        seed: Of the initial state, and of random actions.
        plot_only: No video.
        from_dump: Instead of all this, repeat the iteration that training stopped on, from its dump.pt.
    """
    from andante.sim.spec import get_spec

    spec = get_spec(task)
    if from_dump is not None:
        from .replay import replay_dump

        print(f"{from_dump}: {replay_dump(from_dump, task)} is not finite, as recorded")
        return
    check_seed(seed)
    if output.suffix != ".mp4":
        raise AndanteError(f"{output}: expected a name ending in .mp4")
    if not output.parent.is_dir():
        raise AndanteError(f"{output}: no folder {output.parent}")
    if not plot_only:
        from .video import prepare_rendering

        prepare_rendering()
    # Not before: `--help` answers without torch, and MuJoCo must be imported after rendering is prepared.
    from .agents import make_agent
    from .episode import play_episode
    from .plot import plot_episode

    episode = play_episode(make_agent(agent, spec, seed), task, seed)
    picture = output.with_suffix(".png")
    summary = f"{task}, {agent}: return {episode.rewards.sum():.2f} in {len(episode.rewards)} ticks"
    plot_episode(episode, summary, picture)
    print(f"{summary}\n{picture}")
    if not plot_only:
        from .video import write_video

        write_video(episode, output)
        print(output)
