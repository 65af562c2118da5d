"""A node's process: signals end it in an orderly way."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from andante.runtime import AndanteError

WAKE_S = 0.1
"""How long a signal may wait for the executor."""


class Closable(Protocol):
    """A node that has something to end before its context goes."""

    def close(self) -> None:
        """End it; topics still work."""
        ...

    def cut_short(self) -> None:
        """A second signal: end at once what `close` is ending."""
        ...

    def destroy_node(self) -> None:
        """See rclpy."""
        ...


def run_node(create: Callable[[], Closable], arguments: list[str] | None = None) -> int:
    """Spin a node until SIGINT or SIGTERM; the exit status is 0, or 1 when it could not be created.

    The first signal closes the node, the next one cuts that short.

    rclpy's own handlers would invalidate the context before a last command can be sent.
    """
    signals: list[int] = []
    nodes: list[Closable] = []

    def note(number: int, frame: FrameType | None) -> None:
        if signals:
            for node in nodes:
                node.cut_short()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = create()
        nodes.append(node)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            while not signals:
                executor.spin_once(WAKE_S)
        finally:
            node.close()
            executor.shutdown()
            node.destroy_node()
    except AndanteError as error:
        print(f"andante_ros: {error}", file=sys.stderr)
        return 1
    finally:
        rclpy.try_shutdown()
    return 0
