"""The main job, end to end: train, export, verify, run in real time.

Trains a quadruped to walk at ten decisions per second of five actions each, draws its learning curve, films
it, exports the policy, verifies it (digest, golden trace, closed loop), and lets it walk in real time at
50 Hz on the simulated robot. Then, to compare memory: the blind pendulum with a GRU and without memory.
Leaves `policy.onnx`, `quadruped.mp4`, `learning_curve.png` and `demo.json` in the output folder; its last
line is the same JSON.

    python bench/demo.py [--output runs/demo] [--ticks 2500000]
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
QUADRUPED, PENDULUM = "quadruped-velocity", "pendulum-swingup-blind"
SPEED = 0.8
"""Commanded on the simulated robot, m/s."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    parser.add_argument("--ticks", type=int, default=2_500_000)
    options = parser.parse_args()
    folder = options.output
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    seconds: dict[str, float] = {}

    def stage(name: str, *words: object) -> None:
        print(f"\n== {name}: andante {' '.join(map(str, words))}", flush=True)
        start = time.monotonic()
        subprocess.run([ANDANTE, *map(str, words)], check=True)
        seconds[name] = round(time.monotonic() - start, 1)

    run, policy, report = folder / "quadruped", folder / "policy.onnx", folder / "run.json"
    stage("train", "train", QUADRUPED, "--ticks", options.ticks, "--run-dir", run)
    shutil.copy(run / "learning_curve.png", folder)
    stage("export", "export", run, "--output", policy)
    stage("verify", "verify", policy, "--run", run)
    simulated = ("--robot", "sim", "--yes", "--command", f"fixed:{SPEED},0,0")
    stage("run", "run", policy, *simulated, "--seconds", 20, "--fifo-priority", 50, "--report", report)
    stage("film", "play", QUADRUPED, "--agent", run, "--seconds", 10, "--output", folder / "quadruped.mp4")
    for memory in ("gru", "mlp"):
        stage(f"train_{memory}", "train", PENDULUM, "--memory", memory, "--run-dir", folder / memory)

    results = {
        name: json.loads((folder / name / "result.json").read_text()) for name in ("quadruped", "gru", "mlp")
    }
    contract = json.loads(subprocess.check_output([ANDANTE, "inspect", str(policy), "--json"]))
    loop = json.loads(report.read_text())
    demo = {
        "train_ticks_per_s": round(results["quadruped"]["train_ticks_per_s"]),
        "return": results["quadruped"]["return"],
        "random_return": results["quadruped"]["random_return"],
        "pendulum_return_gru": results["gru"]["return"],
        "pendulum_return_mlp": results["mlp"]["return"],
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
