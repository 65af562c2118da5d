"""What README and docs show is so: their code runs as printed, and their tables name every field."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import tomllib
from conftest import REPO, run_andante
from small_policy import write_small_policy

from andante.export.policy_file import export_policy
from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.runtime.profile import (
    SHIPPED,
    Conditions,
    Joint,
    OperatorLink,
    ProfileFile,
    SignalQuality,
    check_fit,
    load_profile,
)
from andante.runtime.steps import EVENTS, Gains, Step
from andante.sim import make, tasks
from andante.sim.closed_loop import closed_loop
from andante.sim.spec import TASKS, get_spec
from andante.sim.spec.legged.file import LeggedFile
from andante.sim.spec.legged.robot import Gait, LeggedJoint, VelocityCommand
from andante.sim.spec.randomization import Randomization, load_randomization
from andante.sim.tasks import get_task
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.ppo import PPO

PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").glob("*.md"))]
OWN_TASK = REPO / "examples" / "own_task"


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one."""
    text = (REPO / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{2,6}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading!r}"
    return found[2]


def block(page: str, heading: str, language: str, index: int = 0) -> str:
    """A code block as printed."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(page, heading), re.MULTILINE | re.DOTALL)[index]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution with the entry points of a pyproject.toml, the way pip leaves it."""

    def install(toml: str) -> Path:
        groups = tomllib.loads(toml)["project"]["entry-points"]
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
        ]
        folder = tmp_path / "site" / "package_of_mine-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: package-of-mine\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.syspath_prepend(folder.parent)
        return folder.parent

    return install


@pytest.fixture
def twolink(install, monkeypatch):
    """The package of `examples/own_task`, as the guide's table registers it."""
    monkeypatch.syspath_prepend(OWN_TASK)
    install(block("docs/guide.md", "A task of your own", "toml"))


@pytest.fixture
def documented_profile(tmp_path):
    """The example of docs/profile.md."""
    path = tmp_path / "documented.yaml"
    path.write_text(block("docs/profile.md", "A whole one", "yaml"))
    return load_profile(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        there = page if not target else page.parent / target
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
            assert anchor in slugs, f"{page.name}: {target}#{anchor}"


@pytest.mark.realtime
def test_the_guides_robot_runs_as_printed(install, tmp_path, monkeypatch):
    site = install(block("docs/guide.md", "A robot of your own", "toml"))
    (site / "my_package.py").write_text(block("docs/guide.md", "A robot of your own", "python"))
    policy = write_small_policy(tmp_path / "policy.onnx")
    words = ("run", policy, "--robot", "mine", "--robot-option", "port=/dev/null", "--seconds", "0.5")
    monkeypatch.setenv("PYTHONPATH", str(site))
    told = run_andante(*words).stdout
    assert re.search(r"^decisions +[1-9]", told, re.MULTILINE)
    assert re.search(r"^faults +none$", told, re.MULTILINE)


@pytest.mark.realtime
def test_the_readmes_loop_runs_as_printed(tmp_path, monkeypatch, capsys):
    write_small_policy(tmp_path / "policy.onnx")
    (tmp_path / "robot.yaml").write_text((SHIPPED / "pendulum.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block("docs/guide.md", "A robot of your own", "python"), names)
    printed = block("README.md", "Use", "python", 1)
    assert "seconds=60" in printed
    exec(printed.replace("seconds=60", "seconds=0.3"), names)
    assert "faults       none" in capsys.readouterr().out


PROFILE_RECORDS = (ProfileFile, Joint, SignalQuality, Gains, OperatorLink, Conditions, *Step.__args__)


def named(page: str) -> set[str]:
    """Every word that stands in code marks on a page."""
    marked = re.findall(r"`([^`\n]+)`", (REPO / page).read_text())
    return {word for text in marked for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("record", PROFILE_RECORDS, ids=lambda record: record.__name__)
def test_the_profiles_page_names_every_field_and_step(record: type[Record]):
    words = {*record.__struct_fields__}
    if record.__struct_config__.tag is not None:
        words.add(record.__struct_config__.tag)
    assert words <= named("docs/profile.md")


def test_the_profiles_page_names_every_event_and_shipped_profile():
    shipped = {path.stem for path in SHIPPED.glob("*.yaml")}
    assert {*EVENTS} | shipped <= named("docs/profile.md")


def test_the_profiles_page_tells_defaults_as_they_are():
    rows = dict(re.findall(r"^\| `(\w+)`(?:, `\w+`)* \| [^|]* \| ([^|]*) \|", _page(), re.MULTILINE))
    for record in (ProfileFile, Joint, SignalQuality):
        for field in msgspec.structs.fields(record):
            if field.name in rows:
                assert (rows[field.name] == "needed") == field.required, field.name
    assert rows["effort_limited_by"] == "`controller`" and rows["clock"] == "`none`"


def _page() -> str:
    return (REPO / "docs/profile.md").read_text()


@pytest.mark.parametrize(
    "record",
    [Randomization, LeggedFile, LeggedJoint, Gait, VelocityCommand],
    ids=lambda record: record.__name__,
)
def test_the_guide_names_every_field_of_a_file_that_users_write(record: type[Record]):
    assert {*record.__struct_fields__} <= named("docs/guide.md")


@pytest.mark.parametrize("index", [0, 1])
def test_the_guides_worlds_can_be_made_as_printed(index, tmp_path):
    path = tmp_path / "worlds.yaml"
    path.write_text(block("docs/guide.md", "Worlds that differ", "yaml", index))
    randomization = load_randomization(path)
    assert not randomization.nominal and (randomization.curriculum is None) == (index == 0)
    env = make("quadruped-velocity", 2, randomization=randomization, device="cpu")
    assert env.reset().critic.isfinite().all()


def test_task_of_another_package_trains_exports_and_runs_with_the_documented_profile(
    twolink, documented_profile, tmp_path
):
    assert "twolink-raise" not in TASKS and get_spec("twolink-raise") is get_task("twolink-raise").spec
    trainer = PPO.from_config(
        TrainConfig(
            task="twolink-raise",
            ticks=1,
            policy=PolicyConfig(hidden_size=8),
            ppo=PPOConfig(decisions=2, minibatches=2),
            num_worlds=4,
            device="cpu",
        )
    )
    assert 0.0 < trainer.iterate()["reward_per_tick"] < 1.0
    path = tmp_path / "twolink.onnx"
    export_policy(trainer.policy, {}, path)
    check_fit(load_policy(path).contract, documented_profile)
    loop = closed_loop(path, "twolink-raise", 1, seed=0, profile=documented_profile)
    assert loop.faults == () and loop.returns[0] > 0.0


def test_unknown_task_lists_those_of_other_packages_too(twolink):
    with pytest.raises(AndanteError, match=r"^no task 'raise'; tasks: pendulum.*, twolink-raise$"):
        get_spec("raise")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "raise = absent:TASK",
            "task 'raise': can't load absent:TASK: ModuleNotFoundError",
        ),
        (
            "raise = twolink:SPEC",
            "task 'raise': expected an andante.sim.task.Task at twolink:SPEC, found Task",
        ),
        ("raise = twolink:TASK", "task 'raise': the task at twolink:TASK is named 'twolink-raise'"),
    ],
)
def test_entry_point_without_a_task_of_that_name_is_named(install, monkeypatch, entry, message):
    monkeypatch.syspath_prepend(OWN_TASK)
    name, value = entry.split(" = ")
    install(f'[project.entry-points."andante.tasks"]\n{name} = "{value}"')
    with pytest.raises(AndanteError, match=f"^{message}"):
        get_task("raise")


def test_task_that_is_declared_alone_is_an_error_that_says_so(monkeypatch):
    monkeypatch.delitem(tasks.TASKS, "quadrotor-hover")
    with pytest.raises(AndanteError, match="task 'quadrotor-hover' is declared, but nothing scores it"):
        make("quadrotor-hover", 1)
