"""Full environment steps/s with physics of its own in every world against one model for all, interleaved.

Then the peak memory of a process with 4096 worlds that each have their own model.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

from env_rate import random_actions, seconds, settled

from andante.sim.spec.randomization import Randomization, Uniform

TARGET, MEMORY_GB = 0.90, 4.0
PHYSICS = Randomization(
    mass={"*": Uniform(0.8, 1.2)},
    center_of_mass={"trunk": Uniform(-0.02, 0.02)},
    friction={"*": Uniform(0.5, 1.25, shared=True)},
    kp={"*": Uniform(0.9, 1.1)},
    kd={"*": Uniform(0.9, 1.1)},
    motor_strength={"*": Uniform(0.9, 1.1)},
    armature={"*": Uniform(0.8, 1.2)},
    damping={"*": Uniform(0.5, 2.0)},
    gravity_tilt=Uniform(-0.03, 0.03),
)
SENSORS = Randomization(
    zero_offset={"*": Uniform(-0.02, 0.02)},
    mounting={"*": Uniform(-0.02, 0.02)},
    noise={"gyro": 0.2, "gravity": 0.03, "joint_position": 0.01, "joint_velocity": 1.0},
    bias={"gyro": Uniform(-0.05, 0.05)},
    observation_delay={"*": Uniform(0, 1)},
    action_delay=Uniform(0, 1),
)


def ratio(task: str, n: int, worlds: int, threads: int, repeats: int, given: Randomization) -> float:
    """Median rate of randomised worlds, as a share of that of the others."""
    shared, own = (settled(task, worlds, threads, each) for each in (Randomization(), given))
    actions, ratios = random_actions(shared, n, 20 // n), []
    for _ in range(repeats):
        before, after = seconds(shared.step, actions), seconds(own.step, actions)
        ratios.append(before / after)
        print(
            f"n = {n}: {worlds * n / before:,.0f} ticks/s shared, {worlds * n / after:,.0f} randomised, "
            f"{ratios[-1]:.3f}"
        )
    return statistics.median(ratios)


def peak_memory(task: str, worlds: int, threads: int) -> float:
    """Of a process of its own, GB."""
    command = [sys.executable, __file__, "--memory", "--task", task, "--threads", str(threads)]
    found = subprocess.run([*command, "--worlds", str(worlds)], capture_output=True, text=True, check=True)
    return float(found.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="quadruped-velocity")
    parser.add_argument("--worlds", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--memory", action="store_true", help="only print the peak memory with these worlds")
    options = parser.parse_args()
    if options.memory:
        env = settled(options.task, options.worlds, options.threads, PHYSICS)
        env.step(random_actions(env, 5, 1)[0])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)
        return
    size = (options.worlds, options.threads, options.repeats)
    found = {f"physics, n = {n}": ratio(options.task, n, *size, PHYSICS) for n in (1, 5)} | {
        f"sensors and delays, n = {n}": ratio(options.task, n, *size, SENSORS) for n in (1, 5)
    }
    memory = peak_memory(options.task, 4096, options.threads)
    print({name: round(value, 3) for name, value in found.items()}, f"{memory:.2f} GB")
    value = found["physics, n = 5"]
    print(
        json.dumps(
            {
                "name": "per-world models against one shared",
                "value": round(value, 3),
                "n = 1": round(found["physics, n = 1"], 3),
                "memory_gb": round(memory, 2),
                "target": TARGET,
                "holds": value >= TARGET and memory <= MEMORY_GB,
            }
        )
    )


if __name__ == "__main__":
    main()
