"""Every memory cell, and one of another package, as a verified policy file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from andante.export.policy_file import export_policy
from andante.runtime.contract import Contract
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.sim.spec import get_spec
from andante.train.memory import CELLS, find_cell, make_cell
from andante.train.policy import Policy


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Installs a distribution with one memory cell, the way pip leaves it."""

    def install(entry: str) -> None:
        folder = tmp_path / "site" / "other_cells-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other-cells\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[andante.memory_cells]\n{entry}\n")
        monkeypatch.syspath_prepend(folder.parent)

    return install


def check_export(path: Path, **options) -> Contract:
    torch.manual_seed(0)
    policy = Policy.for_env(get_spec("pendulum-swingup-blind"), hidden_size=32, chunk_size=3, **options)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)  # untrained ones hardly move
    verification = export_policy(policy, {}, path)
    assert (verification.decisions, verification.resets >= 3) == (1000, True)
    assert max(verification.max_action_error, verification.max_state_error) <= 1e-5
    contract = load_policy(path).contract
    assert [(state.name, state.size, state.initial) for state in contract.states] == list(policy.state_spec())
    assert all(state.max_seen > 0.0 for state in contract.states) or options["memory"] == "mlp"
    return contract


@pytest.mark.parametrize("memory", CELLS)
def test_every_cell_exports_and_verifies(memory, tmp_path):
    check_export(tmp_path / "policy.onnx", memory=memory)


def test_stacked_cells_under_a_gru_decoder_export_and_verify(tmp_path):
    contract = check_export(tmp_path / "policy.onnx", memory="lru", memory_layers=2, decoder="gru")
    assert [state.name for state in contract.states] == ["0.re", "0.im", "1.re", "1.im"]


def test_freezing_a_policy_freezes_its_memory():
    policy = Policy.for_env(get_spec("pendulum-swingup-blind"), memory="lru")
    memory = policy.freeze().memory
    _, h = memory.step(torch.randn(1, memory.input_size), policy.initial_state(1))
    h.sum().backward()
    assert memory.recurrence.nu.grad is None
    assert memory.from_input.weight.grad is not None


def test_cell_of_another_package_trains_exports_and_verifies(register, tmp_path):
    register("mgu = torchrecurrent_cell:MinimalGatedUnit")
    cell = make_cell("mgu", 4, 6)
    x, h0 = torch.randn(5, 3, 4), torch.randn(3, 6)
    reset, valid = torch.rand(5, 3) < 0.3, torch.rand(5, 3) < 0.7
    y, h = cell.scan(x, reset, valid, h0)
    assert (y.shape, h.shape) == ((5, 3, 6), (3, 6))
    check_export(tmp_path / "policy.onnx", memory="mgu", memory_layers=2)


def test_unknown_cell_lists_those_of_other_packages_too(register):
    register("mgu = torchrecurrent_cell:MinimalGatedUnit")
    with pytest.raises(AndanteError, match=r"^no memory cell 'mgx'; cells: gru, .*, mlp, mgu$"):
        find_cell("mgx")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("torchrecurrent:MGUCell", "memory cell 'other': expected a MemoryCell at torchrecurrent:MGUCell"),
        ("absent_module:Cell", "memory cell 'other': can't load absent_module:Cell: No module named"),
        ("torchrecurrent_cell:Absent", "memory cell 'other': can't load torchrecurrent_cell:Absent: module"),
    ],
)
def test_entry_point_without_a_memory_cell_is_named(register, entry, message):
    register(f"other = {entry}")
    with pytest.raises(AndanteError, match=message) as error:
        find_cell("other")
    assert "\n" not in str(error.value)
