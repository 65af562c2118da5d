"""What a recording says about itself: who ran, on what, and how to run it again."""

from __future__ import annotations

import platform
from importlib.metadata import version

import msgspec

from ..contract import Contract, Record
from ..controller import Controller
from ..errors import AndanteError
from ..planner import Mode
from ..profile import Profile

SCHEMA = 1
"""Version of a recording's format."""


class Header(Record, frozen=True):
    """One file's header; a recording that was rotated has a file per part."""

    schema: int
    """Version of the format."""
    part: int
    """1 for the first."""
    started_ns: int
    """Since the epoch; the same in all parts."""
    policy_digest: str
    """Of the policy file."""
    profile_digest: str
    """Of the profile."""
    robot_model: str
    """Of both."""
    control_period_ns: int
    """One tick."""
    mode: Mode
    """How chunks were executed."""
    execution_horizon: int
    """s."""
    inference_delay: int
    """d at the beginning."""
    overlap: int
    """Ticks over which a new chunk took over."""
    asynchronous: bool
    """Whether a thread of its own decided."""
    versions: dict[str, str]
    """Of whatever may change a result."""

    @classmethod
    def of(cls, controller: Controller, started_ns: int) -> Header:
        """Of what this controller runs."""
        execution, contract = controller.planner.execution, controller.contract
        packages = {name: version(name) for name in ("andante", "numpy", "onnxruntime")}
        return cls(
            schema=SCHEMA,
            part=1,
            started_ns=started_ns,
            policy_digest=controller.policy.digest,
            profile_digest=controller.profile.digest,
            robot_model=contract.robot_model,
            control_period_ns=contract.control_period_ns,
            mode=execution.mode,
            execution_horizon=execution.horizon,
            inference_delay=execution.delay,
            overlap=execution.overlap,
            asynchronous=not controller.worker.immediate,
            versions=packages | {"python": platform.python_version(), "machine": platform.machine()},
        )

    def to_metadata(self) -> dict[str, str]:
        """As MCAP keeps it: text by key."""
        return {
            key: msgspec.json.encode(value).decode() for key, value in msgspec.structs.asdict(self).items()
        }

    @classmethod
    def from_metadata(cls, metadata: dict[str, str], where: str) -> Header:
        """Read it back.

        Raises:
            AndanteError: written by something else; the text starts with `where`.
        """
        try:
            content = {key: msgspec.json.decode(value) for key, value in metadata.items()}
            header = msgspec.convert(content, cls)
        except msgspec.MsgspecError as error:
            raise AndanteError(f"{where}: header: {error}") from None
        if header.schema != SCHEMA:
            raise AndanteError(f"{where}: recording of schema {header.schema}, expected {SCHEMA}")
        return header


class Status(Record, frozen=True):
    """What became different at a tick: words rather than numbers."""

    tick: int
    """From which on it holds."""
    state: str
    """The controller's."""
    fault: str | None
    """Event and reason of the latched fault."""
    waiting: str | None
    """For what, while waiting for sensors."""
    e_stop: str | None
    """Reason of the emergency stop in the tick's sample."""
    policy: str
    """Digest of the policy in force."""


def encode_profile(profile: Profile) -> bytes:
    """As JSON, its digest included."""
    return msgspec.json.format(msgspec.json.encode(profile))


def decode_profile(text: bytes, where: str) -> Profile:
    """Read it back.

    Raises:
        AndanteError: no profile of this version of andante; the text starts with `where`.
    """
    try:
        return msgspec.json.decode(text, type=Profile)
    except msgspec.MsgspecError as error:
        raise AndanteError(f"{where}: profile: {error}") from None


def decode_contract(text: bytes, where: str) -> Contract:
    """Read the policy's contract back.

    Raises:
        ArtifactError: no contract of this version of andante; the text starts with `where`.
    """
    return Contract.from_json(text, f"{where}: contract")
