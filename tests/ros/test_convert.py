import numpy as np
import pytest
from andante_ros.convert import JointStateReader, JointStateWriter
from sensor_msgs.msg import JointState

JOINTS = ("hip", "knee")


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return {"position": np.full(2, 9.0), "velocity": np.full(2, 9.0)}


@pytest.fixture
def reader(arrays) -> JointStateReader:
    return JointStateReader(JOINTS, arrays)


def test_joints_are_matched_by_name_among_others_in_any_order(reader, arrays):
    message = JointState(name=["knee", "gripper", "hip"], position=[1.0, 2.0, 3.0], velocity=[4.0, 5.0, 6.0])
    assert reader.read(message) == ["position", "velocity"]
    assert arrays["position"].tolist() == [3.0, 1.0]
    assert arrays["velocity"].tolist() == [6.0, 4.0]


def test_the_order_may_change_between_messages(reader, arrays):
    reader.read(JointState(name=["knee", "hip"], position=[1.0, 2.0]))
    reader.read(JointState(name=["hip", "knee"], position=[1.0, 2.0]))
    assert arrays["position"].tolist() == [1.0, 2.0]


def test_a_missing_array_leaves_its_signal_alone(reader, arrays):
    assert reader.read(JointState(name=["hip", "knee"], position=[1.0, 2.0])) == ["position"]
    assert arrays["velocity"].tolist() == [9.0, 9.0]


def test_not_a_number_is_passed_on_for_the_controller_to_judge(reader, arrays):
    reader.read(JointState(name=["hip", "knee"], position=[np.nan, 2.0]))
    assert np.isnan(arrays["position"][0])


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (JointState(name=["hip"], position=[1.0]), "lacks joint 'knee'; it names: hip"),
        (JointState(), "lacks joint 'hip'; it names: none"),
        (JointState(name=["hip", "knee", "knee"], position=[1.0, 2.0, 3.0]), "repeats joint 'knee'"),
        (
            JointState(name=["hip", "knee"], position=[1.0, 2.0], velocity=[3.0]),
            "velocity has 1 values for 2 joint names",
        ),
    ],
)
def test_an_unusable_message_is_refused_whole_and_the_reason_named(reader, arrays, message, named):
    with pytest.raises(ValueError, match=named):
        reader.read(message)
    assert arrays["position"].tolist() == [9.0, 9.0]


def test_a_refused_message_does_not_spoil_the_next(reader, arrays):
    good = JointState(name=["knee", "hip"], position=[1.0, 2.0])
    reader.read(good)
    with pytest.raises(ValueError, match="lacks"):
        reader.read(JointState(name=["hip"], position=[1.0]))
    arrays["position"].fill(0.0)
    reader.read(good)
    assert arrays["position"].tolist() == [2.0, 1.0]


def test_a_written_message_reads_back(reader, arrays):
    writer = JointStateWriter(JointState(), JOINTS, ["position", "velocity"])
    for shift in (0.0, 10.0):
        writer.arrays["position"][:] = [shift + 1.0, shift + 2.0]
        writer.arrays["velocity"][:] = [shift + 3.0, shift + 4.0]
        reader.read(writer.message)
        assert arrays["position"].tolist() == [shift + 1.0, shift + 2.0]
        assert arrays["velocity"].tolist() == [shift + 3.0, shift + 4.0]
    assert writer.message.effort.tolist() == []
