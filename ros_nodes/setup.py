"""Package `andante_ros` for colcon (`build_type` ament_python) and for pip."""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
NAME = "andante_ros"


def files(folder: str) -> list[str]:
    """Paths of a data folder's files, relative to this one."""
    return sorted(str(path.relative_to(HERE)) for path in (HERE / folder).iterdir())


setup(
    name=NAME,
    version="0.1.0",
    description="ROS 2 nodes of andante: a policy file on joint topics, and a MuJoCo robot to try it on.",
    license="Apache-2.0",
    packages=[NAME],
    python_requires=">=3.10",
    install_requires=["setuptools", "andante"],
    extras_require={"sim": ["andante[sim]"]},
    zip_safe=True,
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", files("launch")),
        (f"share/{NAME}/config", files("config")),
    ],
    entry_points={
        "console_scripts": [
            f"policy_node = {NAME}.policy_node:main",
            f"mujoco_sim_node = {NAME}.mujoco_sim_node:main",
        ]
    },
)
