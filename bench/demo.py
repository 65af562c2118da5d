"""The main job, end to end: train, export, verify, run in real time.

Trains the blind pendulum with a GRU and, for comparison, without memory; exports the GRU policy, verifies it
(digest, golden trace, closed loop), and runs it for 20 s at 50 Hz against the simulated robot.
Leaves `policy.onnx` and `demo.json` in the output folder; its last line is the same JSON.

    python bench/demo.py [--output runs/demo]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

ANDANTE = str(Path(sys.executable).with_name("andante"))
TASK = "pendulum-swingup-blind"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    folder = parser.parse_args().output
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    seconds: dict[str, float] = {}

    def stage(name: str, *words: str | Path) -> None:
        print(f"\n== {name}: andante {' '.join(map(str, words))}", flush=True)
        start = time.monotonic()
        subprocess.run([ANDANTE, *map(str, words)], check=True)
        seconds[name] = round(time.monotonic() - start, 1)

    policy, report = folder / "policy.onnx", folder / "run.json"
    for memory in ("gru", "mlp"):
        stage(f"train_{memory}", "train", TASK, "--memory", memory, "--run-dir", folder / memory)
    stage("export", "export", folder / "gru", "--output", policy)
    stage("verify", "verify", policy, "--run", folder / "gru")
    stage(
        "run", "run", policy, "--robot", "sim", "--seconds", "20", "--fifo-priority", "50", "--report", report
    )

    results = {memory: json.loads((folder / memory / "result.json").read_text()) for memory in ("gru", "mlp")}
    contract = json.loads(subprocess.check_output([ANDANTE, "inspect", str(policy), "--json"]))
    loop = json.loads(report.read_text())
    demo = {
        "train_ticks_per_s": round(results["gru"]["train_ticks_per_s"]),
        "return_gru": results["gru"]["return"],
        "return_mlp": results["mlp"]["return"],
        "random_return": results["gru"]["random_return"],
        "export_max_error": contract["verification"]["max_action_error"],
        "jitter_us": loop["jitter_us"],
        "missed_deadlines": loop["missed"],
        "step_us": loop["step_us"],
        "seconds": seconds,
    }
    (folder / "demo.json").write_text(json.dumps(demo, indent=2) + "\n")
    print(json.dumps(demo))
    return 0


if __name__ == "__main__":
    sys.exit(main())
