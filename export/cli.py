"""`andante export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from andante.runtime.contract import NO_ASSERTION


def export(
    run: tyro.conf.Positional[Path],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    seed: int = 0,
    licence: str = NO_ASSERTION,
) -> None:
    """Write a run's policy as one ONNX file, or fail: it is proven equal to the trained policy first.

    Args:
        run: Folder of a training run.
        output: File to write; replaced, if it exists, once everything has passed.
        seed: Of the observations that the export is tried on.
        licence: SPDX identifier of the policy's licence.
    """
    # Not before: `--help` answers without torch.
    from andante.runtime.artifact import read_artifact

    from .policy_file import export_run

    verification = export_run(run, output, seed, licence)
    print(
        f"{output}: {output.stat().st_size / 1e3:.0f} kB, equal to the trained policy over "
        f"{verification.decisions} decisions with {verification.resets} resets: "
        f"actions within {verification.max_action_error:.1e}, "
        f"states within {verification.max_state_error:.1e} of the largest"
    )
    provenance = read_artifact(output).contract.provenance
    if provenance["train.finished"] == "false":
        print(f"note: the run is not finished, this is its best policy of {provenance['train.ticks']} ticks")
