"""The policy file: what is in it comes back, and nothing else passes for it."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import random
import zipfile

import msgspec
import numpy as np
import onnx
import pytest
from tiny_policy import tiny_contract, tiny_model, tiny_policy, tiny_trace

from andante.export.seal import seal
from andante.runtime.artifact import (
    DIGEST,
    MAX_BYTES,
    METADATA,
    TRACE,
    Trace,
    digest_of,
    read_artifact,
    split_model,
)
from andante.runtime.contract import Contract, Source, Trained
from andante.runtime.errors import ArtifactError
from andante.runtime.recorder.protobuf import encode


@pytest.fixture
def write(tmp_path):
    path = tmp_path / "policy.onnx"

    def write(content: bytes):
        path.write_bytes(content)
        return path

    return write


def test_contract_and_trace_come_back_exactly(write):
    contract = tiny_contract(provenance={"thirds": repr(1 / 3), "ö": "λ"}, control_period_ns=16_666_667)
    trace = tiny_trace()
    artifact = read_artifact(write(seal(tiny_model().SerializeToString(), contract, trace)))
    assert artifact.contract == contract
    for name in ("reset", "states", "actions"):
        np.testing.assert_array_equal(getattr(artifact.trace, name), getattr(trace, name))
    np.testing.assert_array_equal(artifact.trace.sources["q"], trace.sources["q"])


def test_sealing_again_replaces_and_keeps_other_metadata(write):
    model = tiny_model()
    model.metadata_props.add(key="other", value="kept")
    first = seal(model.SerializeToString(), tiny_contract(), tiny_trace())
    path = write(seal(first, tiny_contract(task="renamed"), tiny_trace()))
    assert read_artifact(path).contract.task == "renamed"
    metadata = [(entry.key, entry.value) for entry in onnx.load(path).metadata_props]
    assert ("other", "kept") in metadata
    assert len(metadata) == 4


def test_digest_survives_loading_and_saving_with_onnx(write):
    path = write(tiny_policy())
    digest = read_artifact(path).digest
    model = onnx.load(path)
    onnx.save(model, path)
    assert read_artifact(path).digest == digest
    model.metadata_props.sort(key=lambda entry: entry.value)
    onnx.save(model, path)
    assert read_artifact(path).digest == digest


def test_changed_bytes_are_found_wherever_they_are(write):
    content = tiny_policy()
    draw = random.Random(0)
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= draw.randrange(1, 256)
        with pytest.raises(ArtifactError, match=r"policy\.onnx"):
            read_artifact(write(damaged))


def test_changed_bytes_of_a_trained_policy_are_found(write, trained_policy):
    content = trained_policy.read_bytes()
    draw = random.Random(0)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        with pytest.raises(ArtifactError, match=r"policy\.onnx"):
            read_artifact(write(damaged))


def test_every_truncation_is_found(write):
    content = tiny_policy()
    for length in range(0, len(content), 7):
        with pytest.raises(ArtifactError, match=r"policy\.onnx"):
            read_artifact(write(content[:length]))


@pytest.mark.parametrize("content", [b"", b"hello, world\n", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000)])
def test_what_is_not_onnx_is_refused(write, content):
    with pytest.raises(ArtifactError, match=r"policy\.onnx: truncated, damaged or not an ONNX model"):
        read_artifact(write(content))


def test_foreign_onnx_file_is_refused(write):
    with pytest.raises(ArtifactError, match=r"policy\.onnx: no andante\.contract.*not exported by andante"):
        read_artifact(write(tiny_model().SerializeToString()))


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"absent\.onnx: No such file"):
        read_artifact(tmp_path / "absent.onnx")
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_artifact(tmp_path)


def test_what_may_have_no_end_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ArtifactError, match=f"{path}: not a regular file"):
            read_artifact(path)


def test_endless_nesting_is_refused(write):
    message = b""
    for _ in range(1500):  # graph of an attribute of a node
        message = encode(1, encode(5, encode(6, message)))
    with pytest.raises(ArtifactError, match="not an ONNX model"):
        read_artifact(write(encode(7, message)))


def test_metadata_given_twice_is_refused(write):
    entry = encode(14, encode(1, b"note") + encode(2, b"first"))
    with pytest.raises(ArtifactError, match="metadata 'note' twice"):
        read_artifact(write(tiny_policy() + entry + entry))


def test_oversized_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(
        ArtifactError, match=rf"huge\.onnx: {MAX_BYTES + 1} bytes, expected at most {MAX_BYTES}"
    ):
        read_artifact(path)


def test_weights_in_another_file_are_refused(tmp_path):
    path = tmp_path / "policy.onnx"
    onnx.save(tiny_model(), path, save_as_external_data=True, size_threshold=0, location="weights")
    assert (tmp_path / "weights").exists()
    with pytest.raises(ArtifactError, match=r"policy\.onnx: keeps weights in another file"):
        read_artifact(path)


def test_weights_in_another_file_are_found_inside_a_subgraph(write):
    model = tiny_model()
    branch = onnx.helper.make_graph([], "branch", [], [], [onnx.TensorProto(name="w", dims=[1], data_type=1)])
    branch.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    model.graph.node.add(op_type="If", input=["q"], output=["x"]).attribute.append(
        onnx.helper.make_attribute("then_branch", branch)
    )
    with pytest.raises(ArtifactError, match="keeps weights in another file"):
        read_artifact(write(model.SerializeToString()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk_size": 4}, r"'actions' is float32 \[64, 3, 2\], contract says float32 \[64, 4, 2\]"),
        ({"states": ()}, r"'states' is float32 \[64, 2\], contract says float32 \[64, 0\]"),
        ({"sources": ()}, r"golden trace has sources \['q'\], contract says \[\]"),
        (
            {"sources": (Source(name="q", kind="joint_position", joints=("a",), unit="rad", max_age_ns=1),)},
            r"'q' is float32 \[64, 2\], contract says float32 \[64, 1\]",
        ),
    ],
)
def test_trace_must_have_the_shapes_of_the_contract(changes, message):
    with pytest.raises(ArtifactError, match=message):
        seal(tiny_model().SerializeToString(), tiny_contract(**changes), tiny_trace())


def test_trace_must_be_finite():
    trace = tiny_trace()
    trace.states[3, 1] = np.nan
    with pytest.raises(ArtifactError, match="'states' has a value that is not finite"):
        seal(tiny_model().SerializeToString(), tiny_contract(), trace)


def test_trace_must_have_decisions():
    with pytest.raises(ArtifactError, match="golden trace has no decisions"):
        seal(tiny_model().SerializeToString(), tiny_contract(), tiny_trace(decisions=0))


def test_trace_in_double_precision_is_refused():
    trace = tiny_trace()
    wide = Trace(trace.sources, trace.reset, trace.states.astype(np.float64), trace.actions)
    with pytest.raises(ArtifactError, match=r"'states' is float64 \[64, 2\], contract says float32"):
        seal(tiny_model().SerializeToString(), tiny_contract(), wide)


def with_trace(archive: bytes) -> bytes:
    """A policy file sealed over another archive in place of its golden trace."""
    rest, entries, _ = split_model(tiny_policy(), "")
    entries[TRACE] = encode(1, TRACE.encode()) + encode(2, base64.b64encode(archive))
    entries[DIGEST] = encode(1, DIGEST.encode()) + encode(2, digest_of(rest, entries).encode())
    return b"".join([*rest, *(encode(METADATA, entry) for entry in entries.values())])


def archive_of(states: bytes) -> bytes:
    """The tiny policy's trace, with other bytes for its states."""
    trace, file = tiny_trace(), io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("reset", "actions"):
            archive.writestr(f"{name}.npy", npy(getattr(trace, name)))
        archive.writestr("source/q.npy", npy(trace.sources["q"]))
        archive.writestr("states.npy", states)
    return file.getvalue()


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def flagged(archive: bytes, at: int, value: int) -> bytes:
    """An archive with a byte of the first file's headers changed; `at` counts in the local one."""
    changed = bytearray(archive)
    for begin in (archive.find(b"PK\x03\x04") + at, archive.find(b"PK\x01\x02") + at + 2):
        changed[begin] = value
    return bytes(changed)


def test_trace_in_fortran_order_comes_back(write):
    states = np.asfortranarray(tiny_trace().states)
    artifact = read_artifact(write(with_trace(archive_of(npy(states)))))
    np.testing.assert_array_equal(artifact.trace.states, states)


@pytest.mark.parametrize(
    "archive",
    [
        archive_of(npy_header("(1000000000000, 2)")),
        archive_of(npy_header(f"({10**30}, 2)")),
        archive_of(npy_header("(1,)", "'|O'")),
        archive_of(npy_header("(((((((((((((((((")),
        archive_of(npy_header("(" * 9000 + ")" * 9000)),
        archive_of(b"\x93NUMPY\x01\x00\x10\x00((((((((((((((((("),
        flagged(archive_of(npy(tiny_trace().states)), 6, 1),  # encrypted
        flagged(archive_of(npy(tiny_trace().states)), 8, 99),  # no such compression
        b"",
        b"\x93NUMPY",
    ],
    ids=["huge", "overflow", "objects", "open", "deep", "cut", "encrypted", "compression", "empty", "bare"],
)
def test_trace_that_numpy_chokes_on_is_refused(write, archive):
    with pytest.raises(ArtifactError, match=r"policy\.onnx: golden trace is unreadable: ") as error:
        read_artifact(write(with_trace(archive)))
    assert "\n" not in str(error.value)


def test_trace_that_unpacks_to_more_than_a_file_may_have_is_refused(write, monkeypatch):
    monkeypatch.setattr("andante.runtime.artifact.MAX_BYTES", 10**6)
    content = with_trace(archive_of(npy(np.zeros((10**6, 2), np.float32))))
    assert len(content) < 10**5
    with pytest.raises(ArtifactError, match="golden trace is unreadable: more than 1000000 bytes"):
        read_artifact(write(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "schema 99, expected 1"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"chunk_size": "three"}, r"Expected `int`, got `str` - at `\$\.chunk_size`"),
        ({"max_gap_ticks": 101}, r"Expected `int` <= 100 - at `\$\.max_gap_ticks`"),
        ({"control_period_ns": 10**10}, r"Expected `int` <= 1000000000 - at `\$\.control_period_ns`"),
        ({"execution_horizon": {"values": [4], "default": 4}}, "impossible horizon: s=4, d=0, chunk_size=3"),
    ],
)
def test_contract_error_names_file_key_and_values(change, message):
    fields = json.loads(tiny_contract().to_json()) | change
    with pytest.raises(ArtifactError, match=f"policy.onnx: contract: .*{message}"):
        Contract.from_json(json.dumps(fields), "policy.onnx: contract")


def test_contract_without_a_key_is_refused():
    fields = json.loads(tiny_contract().to_json())
    del fields["control_period_ns"]
    with pytest.raises(ArtifactError, match="missing required field `control_period_ns`"):
        Contract.from_json(json.dumps(fields))


def test_contract_with_a_key_twice_is_refused():
    text = tiny_contract().to_json().replace('"schema":1,', '"schema":1,"control_period_ns":1,')
    with pytest.raises(ArtifactError, match="key given twice: control_period_ns"):
        Contract.from_json(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kp": (-1.0, 0.0), "kind": "position", "unit": "rad"}, "kp must be not negative, found"),
        ({"kd": (0.0, 1.0)}, r"kd must be zero for effort, found \[0.0, 1.0\]"),
        ({"kd": (math.nan, 0.0)}, "kd must be finite"),
        ({"high": (math.inf, 1.0)}, "high must be finite"),
        ({"unit": "rad"}, "unit of effort must be N m or N, found 'rad'"),
        ({"kind": "position"}, "unit of position must be rad or m, found 'N m'"),
    ],
)
def test_action_that_no_robot_could_obey_is_refused(change, message):
    with pytest.raises(ValueError, match=f"action term 'torque': {message}"):
        msgspec.structs.replace(tiny_contract().actions[0], **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"name": name}, f"cannot be named '{name}'") for name in ("", "h_in", "h_out", "actions")),
        ({"unit": "deg"}, "source 'q': unit of joint_position must be rad or m, found 'deg'"),
        ({"kind": "joint_velocity"}, "unit of joint_velocity must be rad/s or m/s, found 'rad'"),
    ],
)
def test_source_that_would_be_misread_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(tiny_contract().sources[0], **change)


def test_contract_is_immutable():
    with pytest.raises(AttributeError):
        tiny_contract().chunk_size = 4
    changed = msgspec.structs.replace(tiny_contract(), execution_horizon=Trained(values=(1, 3), default=1))
    assert tiny_contract() != changed
