"""The policy: raw sources -> features -> memory -> chunk. One module, trained batched, exported as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from andante.sim.spec.actions import with_actions
from andante.sim.spec.task import TaskSpec

from .config import PolicyConfig
from .decoder import make_decoder
from .memory import StateSpec, make_cell
from .normalizer import RunningNormalizer
from .pipeline import ActionDecoder, Features


class Policy(nn.Module):
    """A Gaussian over chunks of actions, with memory across decisions.

    Sizes: B worlds, K decisions, H `chunk_size`, A actions, S packed state; F actions are chosen per
    decision, H unless the decoder ties them. Means are in the task's unit of action (see
    `ActionDecoder`); every primitive action has the same `log_std` [A].

    Raises:
        AndanteError: an unknown memory cell or decoder, or an execution horizon longer than the chunk.
    """

    def __init__(self, spec: TaskSpec, config: PolicyConfig) -> None:
        super().__init__()
        self.spec = spec = with_actions(spec, config.action_history, config.committed_actions)
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

    @property
    def choices(self) -> int:
        """How many of the F actions that it chooses at a decision are executed."""
        return 1 if self.decoder.ties else self.execution_horizon

    def state_spec(self) -> tuple[StateSpec, ...]:
        """(name, size, initial values) of each slice of the packed state, in order.

        The memory's; then the last action of the chunk before, within its range, where the decoder starts
        from it.
        """
        parts = self.memory.state_spec()
        if self.decoder.starts_from_last:
            size = self.spec.action_size
            parts += (StateSpec("last_action", size, (0.0,) * size),)
        return parts

    def initial_state(self, batch: int) -> Tensor:
        """The state at every reset [batch, S]."""
        h = self.memory.init_state(batch)
        if self.decoder.starts_from_last:
            h = torch.cat((h, h.new_zeros(batch, self.spec.action_size)), -1)
        return h

    def decide(self, sources: dict[str, Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision: sources {name: [B, n]}, h [B, S] -> means [B, F, A], h' [B, S] before `remember`."""
        memory, last = self._parts(h)
        y, memory = self.memory.step(self._encode(sources), memory)
        return self.decoder(y), torch.cat((memory, last), -1) if self.decoder.starts_from_last else memory

    def chunk(self, chosen: Tensor, h: Tensor) -> Tensor:
        """Chosen actions [B, F, A] of a decision from h [B, S] -> its chunk [B, H, A], before decoding."""
        return self.decoder.complete(chosen, self._parts(h)[1])

    def remember(self, h: Tensor, chosen: Tensor) -> Tensor:
        """The state h' [B, S] of a decision, once [B, F, A] was chosen."""
        if not self.decoder.starts_from_last:
            return h
        last = self.decode.encode(self.decode(chosen[:, -1]))
        return torch.cat((self._parts(h)[0], last), -1)

    def with_memory_of(self, h: Tensor, other: Tensor) -> Tensor:
        """The state h [B, S] with the memory of another one; what else a state holds is the world's own."""
        return torch.cat((self._parts(other)[0], self._parts(h)[1]), -1)

    def scan(self, sources: dict[str, Tensor], reset: Tensor, valid: Tensor, h0: Tensor) -> Tensor:
        """Means [K, B, F, A] of a sequence of decisions, see `MemoryCell.scan`.

        Sources {name: [K, B, n]}, bool reset and valid [K, B], h0 [B, S].
        """
        y, _ = self.memory.scan(self._encode(sources), reset, valid, self._parts(h0)[0])
        means: Tensor = self.decoder(y)
        return means

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The exported graph: sources in the task's order [B, n], then h [B, S].

        Returns SI actions [B, H, A] and the next state [B, S].
        """
        *values, h = inputs
        mean, after = self.decide(dict(zip(self.features.sources, values, strict=True)), h)
        return self.decode(self.chunk(mean, h)), self.remember(after, mean)

    def freeze(self) -> Policy:
        """Evaluation mode, and everything folded that training computes anew; before export."""
        self.memory.freeze()
        return self.eval()

    def _encode(self, sources: dict[str, Tensor]) -> Tensor:
        encoded: Tensor = self.encoder(self.normalizer(self.features(sources)))
        return encoded

    def _parts(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Packed state -> the memory's [B, S'], and the last action before, of no columns if not kept."""
        size = h.shape[-1] - (self.spec.action_size if self.decoder.starts_from_last else 0)
        return h[..., :size], h[..., size:]
