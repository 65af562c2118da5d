"""A video of an episode, rendered off screen."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import imageio.v2 as imageio
import numpy as np

from andante.runtime.errors import AndanteError

from .files import write_atomically

if TYPE_CHECKING:  # it brings MuJoCo, which must not be imported before rendering is prepared
    from .episode import Episode

WIDTH, HEIGHT = 512, 384
FRAMES_PER_S = 25
FARTHEST = 4.0
"""From what it follows is a camera, m: terrain makes a model large."""


def prepare_rendering() -> None:
    """Choose EGL, which needs no display, unless MUJOCO_GL is set; MuJoCo reads that when first imported.

    Raises:
        AndanteError: MuJoCo can't render off screen here.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        import mujoco

        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # what a missing library looks like depends on the library
        raise AndanteError(
            f"off-screen rendering with MUJOCO_GL={os.environ['MUJOCO_GL']} failed ({error}); install libEGL "
            "(Debian and Ubuntu: libegl1), or use --plot-only"
        ) from None


def write_video(episode: Episode, path: Path) -> None:
    """Render the episode in real time, after `prepare_rendering`.

    Raises:
        AndanteError: it cannot be written.
    """
    with TemporaryDirectory(prefix="andante-") as folder:
        draft = Path(folder) / "video.mp4"
        try:
            _encode(episode, draft)
            content = draft.read_bytes()
        except OSError:
            content = b""
    # The encoder may end without a word when it has no space; the index is what it writes last.
    if b"moov" not in content:
        raise AndanteError(
            f"{path}: not written: the encoder gave up; it needs space in {Path(folder).parent}"
        )
    write_atomically(path, content)


def _encode(episode: Episode, path: Path) -> None:
    import mujoco

    from andante.sim.spec.models import build_model

    spec = episode.spec
    model = build_model(spec)
    data = mujoco.MjData(model)
    camera = _camera(model)
    stride = max(1, round(1.0 / (FRAMES_PER_S * spec.control_dt)))
    fps = 1.0 / (stride * spec.control_dt)
    video: Any = imageio.get_writer(path, fps=fps)
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer, video:
        for state in episode.states[::stride]:
            mujoco.mj_setState(model, data, np.ascontiguousarray(state), mujoco.mjtState.mjSTATE_FULLPHYSICS)
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera=camera)
            video.append_data(renderer.render())


def _camera(model: Any) -> Any:
    """The model's own camera `main`; else one that goes along with the first body that moves."""
    import mujoco

    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "main") >= 0:
        return "main"
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    camera.trackbodyid = model.jnt_bodyid[0]
    camera.distance = min(camera.distance, FARTHEST)
    return camera
