"""Diagonal Gaussians over one primitive action; mean and u [..., A], log_std [A]."""

from __future__ import annotations

import math

from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log density of u, summed over A -> [...]."""
    return (-0.5 * ((u - mean) * (-log_std).exp()).square() - log_std - LOG_SQRT_2PI).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """Differential entropy of one primitive action, a scalar."""
    return (log_std + 0.5 + LOG_SQRT_2PI).sum()


def kl_divergence(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(old || new), summed over A -> [...]."""
    variance_ratio = (2.0 * (old_log_std - log_std)).exp()
    shift = ((mean - old_mean) * (-log_std).exp()).square()
    return (0.5 * (variance_ratio + shift - 1.0) - old_log_std + log_std).sum(-1)
