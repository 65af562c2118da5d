"""The policy: raw sources -> features -> memory -> chunk. One module, trained batched, exported as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from andante.sim.spec.task import TaskSpec

from .config import PolicyConfig
from .decoder import make_decoder
from .memory import StateSpec, make_cell
from .normalizer import RunningNormalizer
from .pipeline import ActionDecoder, Features


class Policy(nn.Module):
    """A Gaussian over chunks of actions, with memory across decisions.

    Sizes: B worlds, K decisions, H `chunk_size`, A actions, S packed state. Means are in units of
    half the action range (see `ActionDecoder`); every primitive action has the same `log_std` [A].

    Raises:
        AndanteError: an unknown memory cell or decoder, or an execution horizon longer than the chunk.
    """

    def __init__(self, spec: TaskSpec, config: PolicyConfig) -> None:
        super().__init__()
        self.spec = spec
        self.config = config
        self.chunk_size = config.chunk_size
        self.execution_horizon = config.execution_horizon or config.chunk_size
        hidden = config.hidden_size
        self.features = Features(spec)
        self.normalizer = RunningNormalizer(self.features.size)
        self.encoder = nn.Sequential(nn.Linear(self.features.size, hidden), nn.ELU())
        self.memory = make_cell(config.memory, hidden, hidden, config.memory_layers)
        self.decoder = make_decoder(config.decoder, hidden, hidden, config.chunk_size, spec.action_size)
        self.log_std = nn.Parameter(torch.full((spec.action_size,), config.initial_std).log())
        self.decode = ActionDecoder(spec)

    @classmethod
    def for_env(cls, env_or_spec: Any, **options: Any) -> Policy:
        """A policy for an environment or a `TaskSpec`; the options are `PolicyConfig`'s."""
        return cls(getattr(env_or_spec, "spec", env_or_spec), PolicyConfig(**options))

    def state_spec(self) -> tuple[StateSpec, ...]:
        """(name, size, initial values) of each slice of the packed state, in order."""
        return self.memory.state_spec()

    def initial_state(self, batch: int) -> Tensor:
        """The state at every reset [batch, S]."""
        return self.memory.init_state(batch)

    def decide(self, sources: dict[str, Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision: sources {name: [B, n]}, h [B, S] -> means [B, H, A], h' [B, S]."""
        y, h = self.memory.step(self._encode(sources), h)
        return self.decoder(y), h

    def scan(
        self, sources: dict[str, Tensor], reset: Tensor, valid: Tensor, h0: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A sequence of decisions, see `MemoryCell.scan`.

        Sources {name: [K, B, n]}, bool reset and valid [K, B], h0 [B, S] -> means [K, B, H, A], last state.
        """
        y, h = self.memory.scan(self._encode(sources), reset, valid, h0)
        return self.decoder(y), h

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The exported graph: sources in the task's order [B, n], then h [B, S].

        Returns SI actions [B, H, A] and the next state [B, S].
        """
        *values, h = inputs
        mean, h = self.decide(dict(zip(self.features.sources, values, strict=True)), h)
        return self.decode(mean), h

    def freeze(self) -> Policy:
        """Evaluation mode, and everything folded that training computes anew; before export."""
        self.memory.freeze()
        return self.eval()

    def _encode(self, sources: dict[str, Tensor]) -> Tensor:
        encoded: Tensor = self.encoder(self.normalizer(self.features(sources)))
        return encoded
