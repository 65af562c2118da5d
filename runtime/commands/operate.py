"""`andante operate`: an operator's device at one machine, the run on another."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import numpy as np
from tyro.conf import Positional

from ..artifact import read_artifact
from ..command import OperatorInput
from ..errors import AndanteError
from ..operator import command_components, open_operator
from ..operator.udp import LISTENER, OperatorSender

PERIOD_S = 0.02
"""Between two datagrams."""


def operate(policy: Positional[Path], command: str = "keyboard", remote: str = LISTENER) -> None:
    """Send an operator's wishes to `andante run --command udp`, until Ctrl-C: then the heartbeat is lost.

    Args:
        policy: the policy file that runs there; says what can be commanded.
        command: `keyboard` or `gamepad[:DEVICE]`.
        remote: address (`host:port`) where the run listens.
    """
    components = command_components(read_artifact(policy).contract)
    source = (
        open_operator(command, components) if command.partition(":")[0] in ("keyboard", "gamepad") else None
    )
    if source is None:
        raise AndanteError(f"expected keyboard or gamepad, found {command!r}")
    with closing(source):
        sender = OperatorSender(components, remote)
        wishes = OperatorInput(np.zeros(len(components)))
        print(source.hint, flush=True)
        while True:
            source.poll(wishes, time.monotonic_ns())
            sender.send(wishes)
            time.sleep(PERIOD_S)
