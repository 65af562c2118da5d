"""Robot profiles: what is accepted, and what every refusal names."""

from __future__ import annotations

import hashlib
import re
from copy import deepcopy

import numpy as np
import pytest
import yaml
from conftest import andante
from humanoid import humanoid_contract
from msgspec.structs import replace
from small_policy import small_contract, write_small_policy

from andante.runtime.command import JointCommand
from andante.runtime.errors import ProfileError
from andante.runtime.profile import SHIPPED, check_fit, load_profile
from andante.runtime.steps import EVENTS
from andante.sim.robot import SimRobot

CARTPOLE = yaml.safe_load((SHIPPED / "cartpole.yaml").read_text())


def load_changed(tmp_path, change):
    content = deepcopy(CARTPOLE)
    change(content)
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_profile(path)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_profile_is_valid_and_identified_by_its_bytes(path):
    profile = load_profile(path.stem)
    assert profile.robot_model == path.stem
    assert profile.digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("robot", ["pendulum", "cartpole"])
def test_shipped_profile_fits_its_task(robot):
    contract, profile = small_contract(robot), load_profile(robot)
    check_fit(contract, profile)
    for term in contract.actions:
        for joint, high in zip(term.joints, term.high, strict=True):
            assert next(j for j in profile.joints if j.name == joint).effort == high


@pytest.mark.parametrize("robot", ["quadruped", "hexapod"])
def test_shipped_robot_that_drops_onto_its_legs_while_it_waits_is_no_fault(robot):
    contract, profile = small_contract(robot), load_profile(robot)
    low, high = np.array([joint.position for joint in profile.joints]).T
    for seed in range(5):
        sim, command = SimRobot(contract, profile, seed), JointCommand.allocate(len(profile.actuated), 10**9)
        qpos = sim.data.qpos.copy()
        qpos[2] += 0.3
        sim.set_state(qpos, np.zeros(sim.model.nv))
        fallen, deepest = sim.data.qpos[2], np.inf
        for command.tick in range(100):
            q = sim.read().values["joint_position"]
            deepest = min(deepest, (q - low).min(), (high - q).min())
            command.set_damping(q, profile.kd("damping"))  # what WAIT_SENSORS sends
            sim.write(command)
        assert sim.data.qpos[2] < fallen - 0.3
        assert deepest > 0.05


def test_example_of_every_key_fits_a_policy_that_reads_every_kind_of_source():
    check_fit(humanoid_contract(), load_profile("humanoid29"))
    assert len(load_profile("humanoid29").actuated) == 29


@pytest.mark.parametrize("event", EVENTS[:6])
def test_incomplete_fallback_table_is_refused_by_the_event_missing(tmp_path, event):
    with pytest.raises(ProfileError, match=rf"robot\.yaml: .*{event}.*fallback"):
        load_changed(tmp_path, lambda c: c["fallback"].pop(event))


@pytest.mark.parametrize("event", ["tilt", "operator", "battery", "temperature"])
def test_event_that_can_happen_needs_its_ladder(tmp_path, event):
    content = yaml.safe_load((SHIPPED / "humanoid29.yaml").read_text())
    del content["fallback"][event]
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ProfileError, match=rf"robot\.yaml: fallback: needs '{event}', since "):
        load_profile(path)


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(content):
        for key in path:
            content = content[key]
        content[last] = value

    return change


DAMP = {"action": "damping", "gains": "damping"}
TRACK = {"action": "track", "gains": "hold", "duration_s": 1.0, "pose": {"slider": 0.0}}


def _damp_with_nothing(content):
    content["gains"]["hold"]["kd"]["slider"] = 0.0
    content["fallback"]["limit"] = [{"action": "damping", "gains": "hold"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("speed", 1.0), r"unknown field `speed`"),
        (_set("joints", 0, "colour", "red"), r"unknown field `colour`.*joints\[0\]"),
        (_set("digest", "abc"), r"unknown field `digest`"),
        (_set("schema", 2), r"schema 2, expected 1"),
        (_set("pd_loop", "firmware"), r"Invalid enum value 'firmware'.*pd_loop"),
        (_set("joints", 0, "sign", 2), r"Invalid enum value 2"),
        (_set("joints", 0, "velocity", -1.0), r"Expected `float` > 0.0 - at `\$\.joints\[0\]\.velocity`"),
        (
            _set("joints", 0, "effort", float("nan")),
            r"Expected `float` .* - at `\$\.joints\[0\]\.effort`",
        ),
        (_set("joints", 0, "effort", None), r"'slider': effort is for actuated joints"),
        (
            _set("joints", 0, "zero_offset", float("inf")),
            r"Expected `float` .* - at `\$\.joints\[0\]\.zero_offset`",
        ),
        (_set("joints", 0, "position", [1.0, -1.0]), r"'slider': position must be \[low, high\]"),
        (_set("joints", 1, "name", "slider"), r"joint listed twice: slider"),
        (
            _set("signals", "joint_velocity", "max_age_s", 0.0),
            r"Expected `float` > 0.0 - at .*max_age_s|Expected `float` > 0.0 - at `\$\.signals",
        ),
        (
            _set("signals", {"joint_position": {"max_age_s": 0.1}}),
            r"'host' needs the signal 'joint_velocity'",
        ),
        (
            _set("gains", "hold", "kp", "slider", -1.0),
            r"kp of joint 'slider' must be finite and not negative",
        ),
        (
            _set("gains", "hold", "kd", {"slidr": 1.0}),
            r"gains 'hold': kd must name .*'slider'.*found.*'slidr'",
        ),
        (_set("gains", {"hold": CARTPOLE["gains"]["hold"]}), r"gains need a set `damping`"),
        (
            _set("signals", "joint_velocity", "max_age_s", 1e300),
            r"Expected `float` <= 3600.0 - at `\$\.signals",
        ),
        (_set("start", 0, "duration_s", 1e308), r"Expected `float` <= 3600.0 - at `\$\.start\[0\]"),
        (_set("start", 0, "duration_s", float("nan")), r"Expected `float` .* - at `\$\.start\[0\]"),
        (
            _set("gains", "damping", "kd", "slider", 0.0),
            r"gains: damping by gains 'damping' needs kd > 0 of joint 'slider'",
        ),
        (_damp_with_nothing, r"fallback limit: damping by gains 'hold' needs kd > 0 of joint 'slider'"),
        (_set("start", []), r"Expected `array` of length >= 1 - at `\$\.start`"),
        (_set("stop", [DAMP]), r"stop: every phase needs duration_s"),
        (_set("start", 0, "gains", "stiff"), r"start: no gains 'stiff'; sets: damping, hold"),
        (_set("start", 0, "gains", "damping"), r"start: gains 'damping' need kp"),
        (
            _set("start", 0, "pose", {"slider": 9.0}),
            r"start: pose of joint 'slider' must be in \[-1.6, 1.6\]",
        ),
        (_set("start", 0, "pose", {"pole": 0.0}), r"start: pose must name the actuated joints \['slider'\]"),
        (_set("fallback", "limit", []), r"limit: the last step must be brake, hold or damping"),
        (_set("fallback", "limit", [{"action": "keep", "ticks": 1}]), r"limit: the last step must be"),
        (_set("fallback", "limit", [DAMP | {"duration_s": 1.0}]), r"limit: the last step must be"),
        (_set("fallback", "limit", [DAMP, DAMP]), r"limit: steps must escalate"),
        (
            _set("fallback", "limit", [{"action": "hold", "gains": "hold"}, DAMP]),
            r"limit: every step but the last needs duration_s",
        ),
        (_set("fallback", "limit", [DAMP | {"gains": "x"}]), r"fallback limit: no gains 'x'"),
        (_set("fallback", "e_stop", [{"action": "keep", "ticks": 3}, DAMP]), r"e_stop: keep is not possible"),
        (_set("fallback", "non_finite", [{"action": "hold", "gains": "hold"}]), r"non_finite: from a pose"),
        (
            _set("fallback", "limit", {"run": [DAMP]}),
            r"limit: a table by state needs 'otherwise', found \['run'\]",
        ),
        (_set("fallback", "limit", {"walk": [DAMP]}), r"Invalid enum value 'walk'"),
        (_set("fallback", "limit", [TRACK]), r"limit: the last step must be"),
        (_set("fallback", "limit", [TRACK | {"pose": "sit"}, DAMP]), r"no keyframe 'sit'; keyframes: \[\]"),
        (_set("fallback", "limit", [DAMP | {"duration_s": 1.0}, TRACK, DAMP]), r"limit: steps must escalate"),
        (
            _set("fallback", "limit", [{"action": "brake", "gains": "hold"}]),
            r"brake needs joint_velocity, acceleration and jerk of joint 'slider'",
        ),
        (_set("keyframes", {"sit": {"slider": 9.0}}), r"keyframe 'sit' of joint 'slider' must be in"),
        (_set("floating_base", True), r"floating_base needs max_tilt"),
        (_set("effort_limited_by", "drive"), r"effort_limited_by 'drive' needs pd_loop 'drive'"),
        (_set("max_tilt", 1.0), r"max_tilt needs the signal 'orientation'"),
        (_set("min_battery_voltage", 20.0), r"min_battery_voltage needs the signal 'battery_voltage'"),
        (
            _set("joints", 0, "temperature", 80.0),
            r"a joint's temperature needs the signal 'joint_temperature'",
        ),
        (_set("joints", 0, "gear_ratio", 0.0), r"Expected `float` > 0.0 - at `\$\.joints\[0\]\.gear_ratio`"),
        (
            _set("signals", "lidar", {"max_age_s": 0.1}),
            r"no signal 'lidar'; kinds of signals: joint_position",
        ),
        (_set("signals", "joint_position/x", {"max_age_s": 0.1}), r"no signal 'joint_position/x'"),
        (_set("signals", "position", {"max_age_s": 0.1}), r"signal 'position' needs base"),
        (
            _set("signals", "joint_position", "mounting", [1.0, 0.0, 0.0, 0.0]),
            r"signal 'joint_position' cannot have a mounting",
        ),
        (
            _set("signals", "orientation/imu", {"max_age_s": 0.1, "mounting": [1.0, 1.0, 0.0, 0.0]}),
            r"mounting must be a unit quaternion",
        ),
        (_set("signals", "joint_position", "frozen_after", 1), r"Expected `int` >= 2"),
        (_set("signals", "joint_position", "clock", "ptp"), r"Invalid enum value 'ptp'"),
        (
            _set("conditions", {"position": {"arm": [0, 1]}}),
            r"position of no joint, found 'arm'; joints: slider, pole",
        ),
        (
            _set("conditions", {"position": {"pole": [1, 1]}}),
            r"conditions: position of joint 'pole' must be .*, found \[1.0, 1.0\]",
        ),
        (_set("conditions", {"max_speed": 0.0}), r"Expected `float` > 0.0 - at `\$\.conditions\.max_speed`"),
        (_set("predicates", ["edge"]), r"fallback: needs 'custom', since there is predicates"),
    ],
)
def test_wrong_profile_is_refused_by_name(tmp_path, change, message):
    with pytest.raises(ProfileError, match=r"robot\.yaml: .*" + message):
        load_changed(tmp_path, change)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("effort: 12.0}", "effort: 12.0, effort: 1200.0}", "effort"),
        ("gains:\n", "gains:\n  damping: {kd: {slider: 0.1}}\n", "damping"),
        ("  e_stop:", "  limit:\n    - {action: damping, gains: damping}\n  e_stop:", "limit"),
    ],
)
def test_key_given_twice_is_refused_by_name(tmp_path, old, new, key):
    text = (SHIPPED / "cartpole.yaml").read_text()
    assert text.count(old) == 1
    path = tmp_path / "robot.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ProfileError, match=rf"robot\.yaml: key '{key}' given twice .*line \d+"):
        load_profile(path)


@pytest.mark.parametrize("number", ["1:30", "-1:30.5"])
def test_number_to_the_base_of_60_is_refused(tmp_path, number):
    text = (SHIPPED / "cartpole.yaml").read_text()
    path = tmp_path / "robot.yaml"
    path.write_text(text.replace("effort: 12.0}", f"effort: {number}}}"))
    with pytest.raises(ProfileError, match=rf"robot\.yaml: number '{number}' has a colon .*line \d+"):
        load_profile(path)
    path.write_text(text.replace("robot_model: cartpole", "robot_model: '1:30'"))
    assert load_profile(path).robot_model == "1:30"


def test_missing_file_lists_the_shipped_profiles(tmp_path):
    with pytest.raises(ProfileError, match=r"nowhere\.yaml: no robot profile.*cartpole.*pendulum"):
        load_profile(tmp_path / "nowhere.yaml")


def test_file_that_is_not_yaml_is_refused_in_one_line(tmp_path):
    path = tmp_path / "robot.yaml"
    for text in ("joints: [", "[" * 3000, "a: 2024-13-45", "a: !!int b"):
        path.write_text(text)
        with pytest.raises(ProfileError, match=r"robot\.yaml: ") as error:
            load_profile(path)
        assert "\n" not in str(error.value)


def test_policy_for_another_robot_model_is_refused():
    with pytest.raises(ProfileError, match="for robot model 'pendulum', the profile for 'cartpole'"):
        check_fit(small_contract("pendulum"), load_profile("cartpole"))


def test_source_joint_that_the_profile_lacks_is_named(tmp_path):
    profile = load_changed(tmp_path, _set("joints", 1, "name", "stick"))
    with pytest.raises(
        ProfileError, match="reads joint 'pole', which the profile lacks; joints: slider, stick"
    ):
        check_fit(small_contract("cartpole"), profile)


def test_action_on_a_passive_joint_is_refused_by_name():
    moved = replace(small_contract("cartpole").actions[0], joints=("pole",))
    with pytest.raises(ProfileError, match=r"'force' moves joint 'pole'.*actuated joints: slider"):
        check_fit(small_contract("cartpole", actions=(moved,)), load_profile("cartpole"))


def test_actuated_joint_that_the_policy_leaves_alone_is_named(tmp_path):
    def motorise_the_pole(content):
        content["joints"][1] |= {"actuated": True, "effort": 1.0}
        for gains in content["gains"].values():
            for values in gains.values():
                values["pole"] = 1.0
        content["start"][0]["pose"]["pole"] = content["stop"][1]["pose"]["pole"] = 0.0

    with pytest.raises(ProfileError, match="does not command the actuated joint 'pole'"):
        check_fit(small_contract("cartpole"), load_changed(tmp_path, motorise_the_pole))


def test_source_that_the_robot_does_not_measure_is_refused(tmp_path):
    def measure_positions_only(content):
        content["pd_loop"] = "drive"
        del content["signals"]["joint_velocity"]

    sources = small_contract("cartpole").sources
    speed = replace(sources[1], name="speed", kind="joint_velocity", unit="m/s")
    contract = small_contract("cartpole", sources=(*sources, speed))
    with pytest.raises(ProfileError, match="source 'speed' needs the signal 'joint_velocity'"):
        check_fit(contract, load_changed(tmp_path, measure_positions_only))


def test_start_pose_that_the_policy_cannot_command_is_refused():
    profile, contract = load_profile("quadruped"), small_contract("quadruped")
    check_fit(contract, profile)
    stand = profile.keyframes["stand"] | {"FR_calf": -0.85}
    straight = replace(profile, keyframes=profile.keyframes | {"stand": stand})
    message = (
        "joint 'FR_calf': the start sequence ends at -0.85 in the policy's convention, outside its position "
        "range [-2.7, -0.9]: it would jump when the policy takes over"
    )
    with pytest.raises(ProfileError, match=re.escape(message)):
        check_fit(contract, straight)


def test_position_loop_closed_elsewhere_than_in_training_is_refused():
    term = replace(small_contract("pendulum").actions[0], kind="position", unit="rad", closed_by="drive")
    with pytest.raises(ProfileError, match=r"'torque': training closed the position loop by 'drive'.*'host'"):
        check_fit(small_contract("pendulum", actions=(term,)), load_profile("pendulum"))


def test_every_mismatch_is_told(tmp_path):
    policy = write_small_policy(tmp_path / "p.onnx", "cartpole")

    def change(content):
        content["robot_model"] = "wagon"
        content["joints"][1]["name"] = "stick"
        content["joints"][0] |= {"position": [100.0, 101.0], "effort": 12.0, "zero_offset": 0.0}
        content["start"] = content["stop"] = [DAMP | {"duration_s": 1.0}]
        content["joints"].append(content["joints"][0] | {"name": "winch"})
        for gains in content["gains"].values():
            for values in gains.values():
                values["winch"] = 1.0

    load_changed(tmp_path, change)
    result = andante("profile", "check", tmp_path / "robot.yaml", "--policy", policy)
    assert result.returncode == 1
    assert [line for line in result.stdout.splitlines() if line.startswith("- ")] == [
        "- the policy is for robot model 'cartpole', the profile for 'wagon'",
        "- source 'pole_position' reads joint 'pole', which the profile lacks; joints: slider, stick, winch",
        "- the policy does not command the actuated joint 'winch'",
    ]
    assert result.stdout.endswith("p.onnx: 3 mismatches\n")


def test_profile_that_fits_is_told_and_one_that_is_malformed_is_refused(tmp_path):
    policy = write_small_policy(tmp_path / "p.onnx", "cartpole")
    fits = andante("profile", "check", "cartpole", "--policy", policy)
    assert (fits.returncode, fits.stdout.splitlines()[-1]) == (0, f"{policy}: fits")
    assert andante("profile", "check", "cartpole").returncode == 0
    (tmp_path / "robot.yaml").write_text("schema: 1")
    refused = andante("profile", "check", tmp_path / "robot.yaml")
    assert refused.returncode == 1 and "missing required field" in refused.stderr


def test_predicate_that_is_not_installed_is_refused_when_a_profile_is_checked(tmp_path):
    def change(content):
        content["predicates"] = ["edge"]
        content["fallback"]["custom"] = [DAMP]

    load_changed(tmp_path, change)
    refused = andante("profile", "check", tmp_path / "robot.yaml")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no safety predicate 'edge'; predicates: " in refused.stderr


def test_first_of_several_mismatches_says_how_many_more_there_are(tmp_path):
    contract = small_contract("cartpole")
    with pytest.raises(
        ProfileError, match=r"robot model .* \(and 4 more: `andante profile check` lists them\)"
    ):
        check_fit(contract, load_profile("pendulum"))
