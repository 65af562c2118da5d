"""The policy: one module for deciding, for training on sequences, and for the exported graph."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnxruntime
import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim.spec import TASKS, get_spec
from andante.train import Policy
from andante.train.memory import CELLS


def make_policy(task: str = "cartpole-swingup-blind", **options) -> Policy:
    torch.manual_seed(1)
    policy = Policy.for_env(get_spec(task), hidden_size=16, chunk_size=4, **options)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)  # untrained ones hardly move
    policy.normalizer.update(torch.randn(64, policy.features.size))
    return policy


def random_sources(policy: Policy, *batch: int) -> dict[str, torch.Tensor]:
    return {source.name: torch.randn(*batch, *source.shape) for source in policy.spec.sources}


@pytest.mark.parametrize("memory", CELLS)
def test_scan_equals_deciding_step_by_step_with_resets(memory):
    policy, steps, batch = make_policy(memory=memory), 9, 5
    sources = random_sources(policy, steps, batch)
    reset, valid = torch.rand(steps, batch) < 0.3, torch.rand(steps, batch) < 0.8
    h0 = torch.randn_like(policy.initial_state(batch))
    means = policy.scan(sources, reset, valid, h0)
    assert means.shape == (steps, batch, 4, policy.spec.action_size)
    h = h0
    for k in range(steps):
        h = torch.where(reset[k, :, None], policy.initial_state(batch), h)
        mean, after = policy.decide({name: value[k] for name, value in sources.items()}, h)
        h = torch.where(valid[k, :, None], after, h)
        torch.testing.assert_close(means[k][valid[k]], mean[valid[k]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("memory", CELLS)
def test_forward_is_the_decision_in_si_units(memory):
    policy = make_policy(memory=memory)
    sources, h = random_sources(policy, 7), policy.initial_state(7)
    actions, after = policy(*(sources[source.name] for source in policy.spec.sources), h)
    mean, expected_after = policy.decide(sources, h)
    assert torch.equal(actions, policy.decode(mean))
    assert torch.equal(after, expected_after)
    term = policy.spec.actions[0]
    assert term.low[0] <= actions.min() and actions.max() <= term.high[0]
    assert np.ptp(actions.detach().numpy()) > 1.0


@pytest.mark.parametrize(
    ("task", "memory"), [*((task, "gru") for task in TASKS), *(("cartpole-swingup-blind", m) for m in CELLS)]
)
@pytest.mark.parametrize("dynamo", [True, False])
def test_both_exporters_of_torch_give_the_same_function(task, memory, dynamo):
    policy = make_policy(task, memory=memory).freeze()
    names = [source.name for source in policy.spec.sources]
    example = tuple(random_sources(policy, 1).values())
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            policy,
            (*example, policy.initial_state(1)),
            None if dynamo else file,
            input_names=[*names, "h_in"],
            output_names=["actions", "h_out"],
            dynamo=dynamo,
            verbose=False,
        )
    model = program.model_proto.SerializeToString() if dynamo else file.getvalue()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    h = policy.initial_state(1)
    onnx_h = h.numpy()
    for _ in range(20):
        sources = random_sources(policy, 1)
        with torch.no_grad():
            actions, h = policy(*sources.values(), h)
        feed = {name: value.numpy() for name, value in sources.items()}
        onnx_actions, onnx_h = session.run(["actions", "h_out"], {**feed, "h_in": onnx_h})
        np.testing.assert_allclose(onnx_actions, actions, atol=1e-4)
        np.testing.assert_allclose(onnx_h, h, atol=1e-5)


def test_unknown_decoder_is_an_error_that_lists_the_decoders():
    with pytest.raises(AndanteError, match=r"no chunk decoder 'transformer'; decoders: mlp"):
        make_policy(decoder="transformer")


def test_horizon_beyond_the_chunk_is_refused():
    with pytest.raises(AndanteError, match="execution_horizon must be at most chunk_size, 4, found 5"):
        make_policy(execution_horizon=5)


def test_an_interpolating_policy_goes_on_from_the_action_that_was_chosen_before():
    policy = make_policy(decoder="interpolate")
    sources, h = random_sources(policy, 3), policy.initial_state(3)
    assert torch.equal(h[:, -policy.spec.action_size :], torch.zeros(3, policy.spec.action_size))
    mean, after = policy.decide(sources, h)
    chosen = mean + 0.5
    chunk = policy.chunk(chosen, h)
    shares = torch.tensor([0.25, 0.5, 0.75, 1.0])[:, None]
    torch.testing.assert_close(chunk, shares * chosen)
    h = policy.remember(after, chosen)
    later, _ = policy.decide(sources, h)
    torch.testing.assert_close(policy.chunk(later, h), torch.lerp(chosen, later, shares))


def test_a_holding_policy_repeats_one_action():
    policy = make_policy(decoder="hold")
    mean, _ = policy.decide(random_sources(policy, 3), policy.initial_state(3))
    assert mean.shape == (3, 1, policy.spec.action_size)
    assert torch.equal(policy.chunk(mean, policy.initial_state(3)), mean.expand(-1, 4, -1))
