"""Physics engines behind one interface."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from andante.runtime.errors import AndanteError

from ..spec.task import TaskSpec
from .base import Backend, Physics

WARP_ON_CPU = "warp-cpu"
"""The device's name for MuJoCo Warp without CUDA: the engine of GPUs, slowly, for tests."""


def resolve_device(device: str) -> str:
    """`auto` -> `cuda` where there is one, and MuJoCo Warp, else `cpu`; other names stay what they are.

    Raises:
        AndanteError: no such device, or what it needs is not installed.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() and find_spec("mujoco_warp") else "cpu"
    if device == "cpu":
        return device
    kind, _, index = device.partition(":")
    if device != WARP_ON_CPU and (
        kind != "cuda" or not (index or device == kind) or (index and not index.isdigit())
    ):
        raise AndanteError(f"device {device!r}: expected auto, cpu, cuda, cuda:N or {WARP_ON_CPU}")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise AndanteError(f"device {device!r}: torch finds {torch.cuda.device_count()} CUDA devices")
    if not find_spec("mujoco_warp"):
        raise AndanteError(f"device {device!r} needs mujoco_warp: in andante's folder: pip install '.[gpu]'")
    return device


def make_backend(spec: TaskSpec, num_worlds: int, threads: int | None, device: str) -> Backend:
    """The engine of a device, as `resolve_device` names it; `threads` are the C engine's.

    Raises:
        AndanteError: the robot model is not right, or has something that the engine does not simulate.
    """
    if device == "cpu":
        from .mujoco import MujocoBackend

        return MujocoBackend(spec, num_worlds, threads)
    from .warp import WarpBackend

    return WarpBackend(spec, num_worlds, "cpu" if device == WARP_ON_CPU else device)


__all__ = ["WARP_ON_CPU", "Backend", "Physics", "make_backend", "resolve_device"]
