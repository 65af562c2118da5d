"""Robot profiles: what is accepted, and what every refusal names."""

from __future__ import annotations

import hashlib
from copy import deepcopy

import pytest
import yaml
from msgspec.structs import replace
from small_policy import small_contract

from andante.runtime.errors import ProfileError
from andante.runtime.profile import EVENTS, SHIPPED, check_fit, load_profile
from andante.sim.spec import TASKS

CARTPOLE = yaml.safe_load((SHIPPED / "cartpole.yaml").read_text())


def load_changed(tmp_path, change):
    content = deepcopy(CARTPOLE)
    change(content)
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_profile(path)


@pytest.mark.parametrize("spec", TASKS.values(), ids=lambda spec: spec.name)
def test_shipped_profile_fits_its_task(spec):
    profile = load_profile(spec.robot_model)
    check_fit(small_contract(spec.robot_model), profile)
    assert profile.digest == hashlib.sha256((SHIPPED / f"{spec.robot_model}.yaml").read_bytes()).hexdigest()
    for term in spec.actions:
        for joint, high in zip(term.joints, term.high, strict=True):
            assert next(j for j in profile.joints if j.name == joint).effort == high


@pytest.mark.parametrize("event", EVENTS)
def test_incomplete_fallback_table_is_refused_by_the_event_missing(tmp_path, event):
    with pytest.raises(ProfileError, match=rf"robot\.yaml: .*{event}.*fallback"):
        load_changed(tmp_path, lambda c: c["fallback"].pop(event))


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(content):
        for key in path:
            content = content[key]
        content[last] = value

    return change


DAMP = {"action": "damping", "gains": "damping"}


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
        (_set("joints", 0, "velocity", -1.0), r"'slider': velocity must be positive and finite, found -1"),
        (
            _set("joints", 0, "effort", float("nan")),
            r"'slider': effort must be positive and finite, found nan",
        ),
        (_set("joints", 0, "effort", None), r"'slider': effort is for actuated joints"),
        (_set("joints", 0, "zero_offset", float("inf")), r"'slider': zero_offset must be finite"),
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
        (_set("start", []), r"start: needs a phase"),
        (_set("stop", [DAMP]), r"stop: every phase needs duration_s"),
        (_set("start", 0, "gains", "stiff"), r"start: no gains 'stiff'; sets: damping, hold"),
        (_set("start", 0, "gains", "damping"), r"start: gains 'damping' need kp"),
        (
            _set("start", 0, "pose", {"slider": 9.0}),
            r"start: pose of joint 'slider' must be in \[-1.6, 1.6\]",
        ),
        (_set("start", 0, "pose", {"pole": 0.0}), r"start: pose must name the actuated joints \['slider'\]"),
        (_set("fallback", "limit", []), r"limit: the last step must be hold or damping"),
        (_set("fallback", "limit", [{"action": "keep", "ticks": 1}]), r"limit: the last step must be"),
        (_set("fallback", "limit", [DAMP | {"duration_s": 1.0}]), r"limit: the last step must be"),
        (_set("fallback", "limit", [DAMP, DAMP]), r"limit: steps must escalate"),
        (
            _set("fallback", "limit", [{"action": "hold", "gains": "hold"}, DAMP]),
            r"limit: every step but the last needs duration_s",
        ),
        (_set("fallback", "limit", [DAMP | {"gains": "x"}]), r"fallback limit: no gains 'x'"),
        (_set("fallback", "e_stop", [{"action": "keep", "ticks": 3}, DAMP]), r"e_stop: keep is not possible"),
        (_set("fallback", "non_finite", [{"action": "hold", "gains": "hold"}]), r"non_finite: a pose"),
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


def test_missing_file_lists_the_shipped_profiles(tmp_path):
    with pytest.raises(ProfileError, match=r"nowhere\.yaml: no robot profile.*cartpole, pendulum"):
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


def test_position_loop_closed_elsewhere_than_in_training_is_refused():
    term = replace(small_contract("pendulum").actions[0], kind="position", unit="rad", closed_by="drive")
    with pytest.raises(ProfileError, match=r"'torque': training closed the position loop by 'drive'.*'host'"):
        check_fit(small_contract("pendulum", actions=(term,)), load_profile("pendulum"))
