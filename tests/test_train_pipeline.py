"""Sources to features, and actions to SI: the same for a batch as for a single sample."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest
import torch

from andante.runtime.contract import ActionTerm, Source
from andante.runtime.errors import AndanteError
from andante.sim.spec import TASKS, Feature, TaskSpec, get_spec
from andante.train.normalizer import CLIP, RunningNormalizer
from andante.train.pipeline import ActionDecoder, Features


def two_joint_spec() -> TaskSpec:
    def source(name: str, kind: str, unit: str) -> Source:
        return Source(name=name, kind=kind, joints=("hip", "knee"), unit=unit, max_age_ns=1)

    return TaskSpec(
        name="two-joints",
        summary="",
        robot_model="none",
        control_period_ns=20_000_000,
        decimation=2,
        episode_ticks=10,
        sources=(source("position", "joint_position", "rad"), source("velocity", "joint_velocity", "rad/s")),
        features=(
            Feature("position", ("knee",), "sin_cos"),
            Feature("velocity", ("knee", "hip"), scale=(0.5, 2.0)),
        ),
        actions=(
            ActionTerm(
                name="effort",
                kind="effort",
                joints=("hip", "knee"),
                unit="N m",
                low=(-1.0, 0.0),
                high=(1.0, 4.0),
                kp=(0.0, 0.0),
                kd=(0.0, 0.0),
                closed_by="drive",
            ),
        ),
        start=(),
        reward="",
        termination="",
    )


def test_features_are_scaled_values_then_sines_then_cosines():
    sources = {"position": torch.tensor([0.1, 0.7]), "velocity": torch.tensor([3.0, 5.0])}
    features = Features(two_joint_spec())(sources)
    torch.testing.assert_close(features, torch.tensor([2.5, 6.0, math.sin(0.7), math.cos(0.7)]))


def history_spec(*features: Feature) -> TaskSpec:
    spec = two_joint_spec()
    clock = Source(name="clock", kind="clock", period_ns=400_000_000, unit="1")
    position = msgspec.structs.replace(spec.sources[0], history=3)
    return dataclasses.replace(spec, sources=(position, spec.sources[1], clock), features=features)


def test_every_tick_of_a_history_becomes_columns_oldest_first():
    spec = history_spec(
        Feature("velocity", offset=(1.0, 2.0), scale=10.0),
        Feature("position", ("knee",), scale=2.0, offset=0.5),
        Feature("position", ("hip",), "sin_cos"),
        Feature("clock", transform="turn"),
    )
    sources = {
        "position": torch.tensor([[[0.1, 1.0], [0.2, 2.0], [0.3, 3.0]]]),
        "velocity": torch.tensor([[5.0, 6.0]]),
        "clock": torch.tensor([[0.25]]),
    }
    expected = [40.0, 40.0, 1.0, 3.0, 5.0]
    expected += [*(math.sin(x) for x in (0.1, 0.2, 0.3)), 1.0, *(math.cos(x) for x in (0.1, 0.2, 0.3)), 0.0]
    features = Features(spec)
    assert features.size == 13
    torch.testing.assert_close(features(sources), torch.tensor([expected]))


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (Feature("velocities"), "no source 'velocities'; sources: position, velocity, clock"),
        (Feature("position", ("ankle",)), "source 'position': no element 'ankle'; elements: hip, knee"),
        (Feature("velocity", scale=(1.0,)), "source 'velocity': scale: expected one value or 2, found 1"),
        (Feature("velocity", ("hip",), offset=(1.0, 2.0)), "offset: expected one value or 1, found 2"),
    ],
)
def test_a_feature_that_does_not_fit_is_refused(feature, message):
    with pytest.raises(AndanteError, match=message):
        Features(history_spec(feature))


def test_decoder_follows_the_tasks_center_and_scale_and_clamps_to_the_range():
    spec = dataclasses.replace(two_joint_spec(), action_center=(0.5, 3.0), action_scale=(0.25, 2.0))
    u = torch.tensor([[0.0, 0.0], [1.0, -1.0], [4.0, 1.0]])
    assert torch.equal(ActionDecoder(spec)(u), torch.tensor([[0.5, 3.0], [0.75, 1.0], [1.0, 4.0]]))


def test_random_actions_fill_the_range_whatever_center_and_scale():
    spec = dataclasses.replace(two_joint_spec(), action_center=(0.5, 3.0), action_scale=(0.25, 2.0))
    actions = ActionDecoder(spec).random((5000,), torch.Generator().manual_seed(0))
    assert actions.shape == (5000, 2)
    torch.testing.assert_close(actions.amin(0), torch.tensor([-1.0, 0.0]), atol=1e-2, rtol=0)
    torch.testing.assert_close(actions.amax(0), torch.tensor([1.0, 4.0]), atol=1e-2, rtol=0)
    torch.testing.assert_close(actions.mean(0), torch.tensor([0.0, 2.0]), atol=0.06, rtol=0)


def test_decoder_maps_the_middle_and_the_ends_and_clamps_beyond():
    decode = ActionDecoder(two_joint_spec())
    u = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [-7.0, 7.0]])
    expected = torch.tensor([[0.0, 2.0], [1.0, 4.0], [-1.0, 0.0], [-1.0, 4.0]])
    assert torch.equal(decode(u), expected)


@pytest.mark.parametrize("task", TASKS)
def test_batch_equals_single_samples(task):
    spec = get_spec(task)
    features, decode = Features(spec), ActionDecoder(spec)
    normalizer = RunningNormalizer(features.size)
    normalizer.update(torch.randn(100, features.size))
    sources = {source.name: 4 * torch.randn(9, 33, *source.shape) for source in spec.sources}
    batched = normalizer(features(sources))
    u = 2 * torch.randn(9, 33, spec.action_size)
    for k, b in ((0, 0), (3, 31), (8, 32)):
        single = normalizer(features({name: value[k, b] for name, value in sources.items()}))
        torch.testing.assert_close(batched[k, b], single, atol=1e-6, rtol=0)
        assert torch.equal(decode(u)[k, b], decode(u[k, b]))


def test_normalizer_in_parts_equals_two_passes_over_all():
    x = torch.randn(1000, 3, dtype=torch.float64) * torch.tensor([1.0, 50.0, 0.1]) + torch.tensor([0, 9, 1e3])
    x = x.float()
    normalizer = RunningNormalizer(3)
    for part in x.split([1, 10, 300, 689]):
        normalizer.update(part)
    assert normalizer.count == 1000
    torch.testing.assert_close(normalizer.mean, x.double().mean(0), atol=0, rtol=1e-12)
    variance = normalizer.squared_deviation / normalizer.count
    torch.testing.assert_close(variance, x.double().var(0, correction=0), atol=0, rtol=1e-9)
    normalized = normalizer(x)
    torch.testing.assert_close(normalized.mean(0), torch.zeros(3), atol=1e-2, rtol=0)
    torch.testing.assert_close(normalized[:, 1].std(), torch.tensor(1.0), atol=1e-2, rtol=0)


def test_normalizer_clips_and_changes_only_in_update():
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.randn(50, 1))
    before = normalizer.state_dict()["gain"].clone()
    assert normalizer(torch.tensor([1e9])) == CLIP
    assert torch.equal(normalizer.state_dict()["gain"], before)


def test_normalizer_does_not_magnify_a_constant():
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.full((50, 1), 3.0))
    assert abs(normalizer(torch.tensor([3.0 + 1e-4])).item()) < 0.1
