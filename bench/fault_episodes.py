"""Simulated episodes with one fault each: does every one end as the profile's fallback table says?

    python bench/fault_episodes.py [--policy POLICY.onnx ...] [--episodes 2000] [--seed 0]

A policy's robot is simulated under its shipped profile; in every fourth episode with a battery, hot motors, a
link to the operator, a synchronised clock and a table by state on top. Without `--policy`, untrained ones of
the pendulum and the quadruped run. An episode is a run of the real controller in the real loop on a virtual
clock: a fault of a random kind, amount and duration comes at a random tick of a random state.

What must follow is worked out from the profile's YAML alone (`fault_oracle.py`), tick by tick: the state and
the step; at the end, the state and the reason's event. A fault too short to count leaves the run going on.
Also checked: one command a tick, finite, within position and torque limits. The last line is JSON: by robot,
how many episodes went as the table says.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from common import gru_contract, gru_policy
from fault_oracle import LIVE
from fault_run import Episode, Plan, Robot
from soak import VIOLATIONS

from andante.runtime.policy import PolicySession, load_policy
from andante.runtime.profile import SHIPPED
from andante.sim.faults import AMOUNTS, KINDS

EQUIPPED_EVERY = 4
Windows = dict[str, tuple[int, int]]
"""First and last tick at which a fault finds each state."""


def kinds(robot: Robot) -> list[str]:
    """Kinds of fault that can befall it."""
    signals = robot.content["signals"]
    return [
        *KINDS,
        *("limit", "push", "e_stop", "heartbeat", "operator_stop", "clock_forward", "clock_back"),
        *("slow_inference", "raising_inference", "nan_inference"),
        *["late_inference"] * robot.waits,
        *["nan_command", "silent_operator"] * bool(robot.components),
        *["tilt"] * ("orientation" in signals),
        *["battery"] * ("battery_voltage" in signals),
        *["hot_motor"] * ("joint_temperature" in signals),
    ]


def make_plan(robot: Robot, windows: Windows, random: np.random.Generator) -> Plan:
    """A fault about as long as is tolerated, or longer, at a random tick of a random state."""
    kind, state = str(random.choice(kinds(robot))), str(random.choice(LIVE))
    blind = int(random.integers(2, 20)) if state == "wait_sensors" else 0
    first, last = (0, blind) if blind else windows[state]
    # A message that is missing needs some ticks until it is too old.
    begin = max(0, int(random.integers(first, last + 1)) - int(random.choice([0, 0, 0, 1, 2, 3])))
    return Plan(
        kind,
        *draw_fault(robot, kind, random),
        begin=begin,
        ticks=int(random.choice([random.integers(1, 6), random.integers(4, 30), random.integers(25, 200)])),
        blind=blind,
        confirm_at=begin + int(random.integers(1, 40)) if state == "ready" else 0,
    )


def draw_fault(robot: Robot, kind: str, random: np.random.Generator) -> tuple[str | None, float]:
    """-> the signal that it befalls, and its amount."""
    content, period_ns = robot.content, robot.contract.control_period_ns
    signal = str(random.choice(list(content["signals"]))) if random.random() < 0.5 else None
    if kind == "limit":
        joint = content["joints"][int(random.integers(len(content["joints"])))]
        ends = {"joint_velocity": (-joint["velocity"], joint["velocity"])}
        if joint["position"] is not None:
            ends["joint_position"] = joint["position"]
        signal = str(random.choice(list(ends)))
        return signal, float(random.choice(ends[signal]) * random.uniform(1.01, 1.5))
    if kind == "tilt":
        return "orientation", 0.5
    if kind == "battery":
        return "battery_voltage", float(content["min_battery_voltage"] * random.uniform(0.5, 1.1))
    if kind == "hot_motor":
        return "joint_temperature", float(random.uniform(70.0, 120.0))
    if kind == "push":
        return None, float(
            random.uniform(0.0, 20.0) * max(joint["effort"] or 0.0 for joint in content["joints"])
        )
    if kind == "late_inference":
        return None, float(random.integers(1, 20))
    if kind in ("slow_read", "slow_inference"):
        return None, float(random.choice([1.5, 8.0]) * random.random() * period_ns)
    if kind in ("clock_forward", "clock_back"):
        return None, float(random.uniform(0.1, 16.0) * period_ns)
    return signal, float(random.uniform(*AMOUNTS.get(kind, (0.0, 0.0))))


def find_windows(robot: Robot, seed: int) -> Windows:
    """Watch an episode in which nothing happens: when is each state?"""
    episode = Episode(robot, Plan("none"), np.random.default_rng(seed))
    wrong = episode.run(Counter())
    ends = episode.referee.state if episode.referee.reason is None else episode.referee.reason
    print(f"{robot.path.stem} without a fault: {len(episode.states)} ticks, {ends}; {wrong or 'as expected'}")
    windows = {}
    for state in LIVE:
        ticks = [tick for tick, found in enumerate(episode.states) if found == state]
        windows[state] = (ticks[0] + 1, ticks[-1] + 1) if ticks else (0, len(episode.states))
    return windows


def equip(path: Path, folder: Path) -> Path:
    """A profile with what the shipped one lacks; it tolerates stale sources until the policy starves."""
    content = yaml.safe_load(path.read_text())
    fallback, signals = content["fallback"], content["signals"]
    ladder = [step for step in fallback["stale_source"] if step["action"] != "keep"]
    keep = [{"action": "keep", "ticks": 20}]
    signals["joint_position"] |= {"clock": "synchronised", "max_gap_s": 0.15}
    signals |= {"battery_voltage": {"max_age_s": 1.0}, "joint_temperature": {"max_age_s": 1.0}}
    content["min_battery_voltage"] = 20.0
    content["joints"] = [joint | {"temperature": 85.0} for joint in content["joints"]]
    content["operator"] = {"heartbeat_s": 0.3, "link_s": 0.4}
    fallback["battery"] = {"run": keep + ladder, "otherwise": ladder[-1:]}
    fallback["temperature"] = {"run": keep + ladder, "stop": keep + ladder[-1:], "otherwise": ladder[-1:]}
    fallback["operator"] = [{"action": "keep", "ticks": 5}, *ladder]
    fallback["stale_source"] = [{"action": "keep", "ticks": 25}, *ladder]
    target = folder / f"{path.stem}-equipped.yaml"
    target.write_text(yaml.safe_dump(content, sort_keys=False))
    return target


@dataclass
class Tally:
    """What became of the episodes of one robot."""

    right: Counter[str] = field(default_factory=Counter)
    """By kind of fault: episodes that went as the table says."""
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By kind of fault: the reason's event; or whether there was an event that was tolerated."""
    states: Counter[str] = field(default_factory=Counter)
    """In which the faults came."""
    audit: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(outcomes.total() for outcomes in self.outcomes.values())

    def __str__(self) -> str:
        states = ", ".join(f"{state} {count}" for state, count in self.states.most_common())
        lines = [f"{self.total} episodes, {self.audit['ticks']} ticks; faults came in {states}"]
        for kind, outcomes in sorted(self.outcomes.items()):
            ends = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
            lines.append(f"  {kind:<18} {self.right[kind]:>3} of {outcomes.total():<3}  {ends}")
        return "\n".join(lines)

    def add(self, kind: str, episode: Episode, begin: int, wrong: str | None) -> None:
        """Count an episode."""
        referee = episode.referee
        self.right[kind] += wrong is None
        self.outcomes[kind][referee.reason or ("tolerated" if referee.events else "no event")] += 1
        self.states[["wait_sensors", *episode.states][min(begin, len(episode.states))]] += 1

    def value(self) -> dict[str, object]:
        """For the last line."""
        ends = sum(self.outcomes.values(), Counter())
        return {
            "as the table says": self.right.total(),
            **{key: self.audit[key] for key in VIOLATIONS},
            "tolerated": ends["tolerated"],
            "no event": ends["no event"],
            "by kind": {k: f"{self.right[k]}/{o.total()}" for k, o in sorted(self.outcomes.items())},
        }


def run(policy: PolicySession, numbers: Iterable[int], seed: int, folder: Path) -> Tally:
    """The episodes of a policy's robot with these numbers; each has random numbers of its own."""
    shipped = SHIPPED / f"{policy.contract.robot_model}.yaml"
    robots = [Robot(policy, path) for path in (shipped, equip(shipped, folder))]
    windows = [find_windows(robot, seed) for robot in robots]
    tally = Tally()
    for number in numbers:
        random, which = np.random.default_rng((seed, number)), number % EQUIPPED_EVERY == 0
        robot = robots[which]
        plan = make_plan(robot, windows[which], random)
        episode = Episode(robot, plan, random)
        try:
            wrong = episode.run(tally.audit)
        except Exception as error:  # the next episode goes on
            wrong = repr(error)
            tally.audit["exceptions"] += 1
        tally.add(plan.kind, episode, plan.begin, wrong)
        if wrong is not None:
            print(f"seed {seed}, episode {number}, {robot.path.stem}, {plan}: {wrong}", flush=True)
    return tally


def load(paths: Iterable[Path]) -> Iterator[PolicySession]:
    """The policies of these files, or untrained ones that may be answered late."""
    if paths:
        yield from map(load_policy, paths)
    else:
        for name in ("pendulum", "quadruped"):
            yield gru_policy(gru_contract(name, horizon=3, delays=(0, 1), chunk_size=6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", type=Path, nargs="+", default=[], help="one file for each robot")
    parser.add_argument("--episodes", type=int, default=2000, help="of each robot")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the only episodes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    value, target = {}, {}
    for policy in load(options.policy):
        name, begin = policy.contract.robot_model, time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tally = run(policy, options.only or range(options.episodes), options.seed, Path(folder))
        print(f"{name}, {time.perf_counter() - begin:.0f} s: {tally}")
        value[name] = tally.value()
        target[name] = {"as the table says": tally.total, **dict.fromkeys(VIOLATIONS, 0)}
    holds = all(value[name][key] == wanted for name in target for key, wanted in target[name].items())
    print(json.dumps({"name": "fault_episodes", "value": value, "target": target, "holds": holds}))


if __name__ == "__main__":
    main()
