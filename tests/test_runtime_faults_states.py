"""The fault matrix by state: the emergency stop and every ladder of the profile, from every state."""

from __future__ import annotations

import pytest
import yaml
from faults.figure import PERIOD_NS
from faults.steps import spell
from faults.trial import (
    FOREVER,
    LOST,
    NAN,
    ROBOTS,
    RUN,
    Bench,
    Q,
    fall_silent,
    fault,
    press,
    rest,
    run,
    vanish,
    wishes_until,
)

from andante.runtime.profile import SHIPPED
from andante.runtime.states import State


@pytest.fixture(scope="module", params=ROBOTS)
def bench(request, tmp_path_factory):
    return Bench.of(request.param, tmp_path_factory.mktemp(request.param))


ABSENT = fault("drop", begin=-FOREVER, ticks=FOREVER - 140)
"""Nothing arrives until the policy would run soon."""
NON_FINITE = (
    f"non_finite: {Q} of joint 'left_hip_pitch' is not finite",
    f"non_finite: {Q} of joint 'FL_hip' is not finite",
)
LIVES = {
    State.WAIT_SENSORS: (-145, [ABSENT], None, ("damp 31", "damp 6")),
    State.START: (-100, [], None, ("damp 25, stand 51", "crouch 51")),
    State.READY: (7, [], "unconfirmed", ("damp 25, stand 158", "crouch 75, stand 83")),
    State.RUN: (7, [], None, ("damp 25, stand 151, policy 7", "crouch 75, stand 76, policy 7")),
    State.STOP: (
        12,
        [],
        "stopped",
        ("damp 25, stand 151, policy 7, crouch 5", "crouch 75, stand 76, policy 7, stand 5"),
    ),
    State.FALLBACK: (
        15,
        [LOST],
        None,
        ("damp 25, stand 151, policy 10, crouch 5", "crouch 75, stand 76, policy 11, crouch 4"),
    ),
    State.FAULT: (
        12,
        [NAN],
        None,
        ("damp 25, stand 151, policy 7, damp 5", "crouch 75, stand 76, policy 7, damp 5"),
    ),
}
"""For each state: a tick by which it is reached, by which faults and wishes, and the commands until then."""


@pytest.mark.parametrize("state", LIVES)
@pytest.mark.parametrize(
    ("bench", "event", "reason"),
    [
        *((robot, press, "e_stop: red button") for robot in ROBOTS),
        *(
            (robot, fall_silent, "e_stop: the emergency-stop device has been silent for 501.0 ms")
            for robot in ROBOTS
        ),
        ("humanoid29", vanish, "e_stop: no emergency-stop device"),  # the other one's profile demands none
    ],
    indirect=["bench"],
)
def test_an_emergency_stop_damps_at_once_in_every_state(bench, state, event, reason):
    column = ROBOTS.index(bench.robot)
    at, faults, how, before = LIVES[state]
    found = run(bench, faults, wishes_until(at, how, event), seconds=1.0)
    told = {
        State.FALLBACK: f"stale_source: {Q} is {80 + 20 * column}.0 ms old",
        State.FAULT: NON_FINITE[column],
    }
    kind, _, count = before[column].rpartition(", ")[2].partition(" ")
    damped = (
        before[column].removesuffix(f"{kind} {count}") + "damp"
        if kind == "damp"
        else before[column] + ", damp"
    )
    assert rest(found.whole, damped)
    assert found.log[RUN[bench.robot] + at - 1].state is state
    assert found.log[RUN[bench.robot] + at].state is State.FAULT
    assert (found.report.faults, found.report.state) == ((told.get(state, reason),), "fault")


def steps_of(bench, event: str, state: State) -> tuple[int, list[str]]:
    """What the profile's YAML says: how many ticks are tolerated, and the steps after them."""
    content = yaml.safe_load((SHIPPED / f"{bench.robot}.yaml").read_text())
    steps = content["fallback"][event]
    if isinstance(steps, dict):
        steps = steps.get(state.value, steps["otherwise"])
    keep = [step["ticks"] for step in steps if step["action"] == "keep"]
    names = {"damping": "damp", "brake": "hold", "track": "crouch"}
    rest = [step for step in steps if step["action"] != "keep"]
    ticks = [f" {round(step['duration_s'] / 0.02)}" if "duration_s" in step else "" for step in rest]
    return sum(keep), [names[step["action"]] + n for step, n in zip(rest, ticks, strict=True)]


EVENTS = [
    (robot, event)
    for robot in ROBOTS
    for event in ("stale_source", "overrun", "non_finite", "limit", "tilt", "battery", "temperature")
    if robot == "humanoid29" or event not in ("battery", "temperature")
]
STATES = (State.START, State.READY, State.RUN, State.STOP)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("bench", "event"), EVENTS, indirect=["bench"])
def test_every_event_takes_its_ladder_from_every_state(bench, event, state):
    at, _, how, before = LIVES[state]
    stale_after = {"humanoid29": 1, "quadruped": 2}[bench.robot]
    faults = {
        "stale_source": [fault("drop", Q, begin=at - stale_after)],
        "non_finite": [fault("nan", Q, begin=at)],
        "limit": [fault("set", Q, 2.95, begin=at, ticks=5)],
        "tilt": [fault("set", "orientation", 0.5, begin=at)],
        "battery": [fault("set", "battery_voltage", 40.0, begin=at)],
        "temperature": [fault("set", "joint_temperature", 90.0, begin=at)],
        "overrun": [fault("slow_read", amount=PERIOD_NS + 1.0, begin=at - 1)],
    }[event]
    found = run(bench, faults, wishes_until(at, how, bool), seconds=5.0)
    tolerated, steps = steps_of(bench, event, state)
    since = at + RUN[bench.robot]
    column = ROBOTS.index(bench.robot)
    assert spell(found.labels[:since]) == before[column]
    assert found.log[since + tolerated].state in (State.FALLBACK, State.FAULT)
    assert rest(spell(found.labels[since + tolerated :]), ", ".join(steps))
    assert found.report.faults[0].startswith(f"{event}: ")
    if tolerated:
        assert found.log[since + tolerated - 1].state not in (State.FALLBACK, State.FAULT)
