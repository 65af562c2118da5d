"""Where the figures of a run go while it trains."""

from __future__ import annotations

from pathlib import Path

from .config import TrainConfig
from .files import METRICS
from .metrics import MetricsFile, Row
from .wandb import start


class Logs:
    """Owns `metrics.jsonl`, TensorBoard's events and, with a project, a run of Weights & Biases.

    What a killed process logged after its last checkpoint, at `iteration` and `ticks`, is replaced.
    """

    def __init__(
        self, run_dir: Path, config: TrainConfig, iteration: int, ticks: int, wandb: str | None
    ) -> None:
        # Not before: it takes a second to import.
        from torch.utils.tensorboard import SummaryWriter

        self._metrics = MetricsFile(run_dir / METRICS, iteration)
        self._events = SummaryWriter(str(run_dir), purge_step=ticks + 1)
        self._wandb = None if wandb is None else start(wandb, config, run_dir)

    def write(self, iteration: int, ticks: int, seconds: float, metrics: Row) -> None:
        """Log one iteration; `seconds` of training so far."""
        self._metrics.write({"iteration": iteration, "ticks": ticks, "seconds": seconds, **metrics})
        for name, value in metrics.items():
            self._events.add_scalar(name, value, ticks)
        if self._wandb is not None:
            self._wandb.log(dict(metrics), step=ticks)

    def flush(self) -> None:
        """Before a checkpoint."""
        self._metrics.sync()
        self._events.flush()

    def close(self) -> None:
        """No more iterations."""
        self._metrics.close()
        self._events.close()
        if self._wandb is not None:
            self._wandb.finish()
