"""The runtime stays small enough to audit in an afternoon."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[1] / "runtime"
EXTRAS = ("recorder", "view")
"""Folders of what needs an extra."""
LOOP = "commands.run", "robots.udp", "operator.keyboard", "operator.gamepad", "operator.udp"
"""Modules that bring all that `andante run` needs, for any robot and operator of this folder."""
LIMIT = 3500
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_lines(path: Path) -> int:
    """Lines of code: neither blank, nor a comment, nor a docstring."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in LAYOUT and token.type != tokenize.ENCODING:
                code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Docs\n\nover lines."""\n# why\n\nx = 1  # because\n', 1),
        ('class A:\n    """Docs."""\n\n    x: int\n    """Of it."""\n', 2),
        ('x = """a\n\nb"""\n', 3),
        ("f(\n    1,\n\n    # why\n    2,\n)\n", 4),
    ],
)
def test_code_is_counted_without_blanks_comments_and_docstrings(tmp_path, text, lines):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert count_lines(path) == lines


def test_runtime_without_its_extras_is_under_the_limit():
    lines = {
        str(path.relative_to(RUNTIME)): count_lines(path)
        for path in RUNTIME.rglob("*.py")
        if not str(path.relative_to(RUNTIME)).startswith(EXTRAS)
    }
    total = sum(lines.values())
    assert total > 1000
    assert total < LIMIT, "\n".join(f"{count:5} {path}" for path, count in sorted(lines.items()))


def test_what_needs_an_extra_is_not_loaded_with_what_runs_a_policy():
    names = [f"andante.runtime.{name}" for name in LOOP]
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.removeprefix("andante.runtime.") for name in found.stdout.split()}
    assert {"commands.run", "controller", "loop", "policy"} <= loaded
    rooms = {name for name in loaded if name.split(".")[0] in EXTRAS}
    # Their options are part of `andante run`'s command line; what they stand for is loaded when asked for.
    assert rooms == {"recorder", "recorder.options", "view", "view.options"}


def undocumented(body: list[ast.stmt], owner: str = "") -> list[str]:
    """Public constants and fields without a docstring behind them; the rest is ruff's business."""
    found = []
    for statement, following in itertools.zip_longest(body, body[1:]):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
            found += [f"{owner}{name}" for name in names if not name.startswith("_")]
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
            found += undocumented(statement.body, f"{statement.name}.")
    return found


def test_every_public_constant_and_field_is_documented():
    assert undocumented(ast.parse('A = 1\n"""Docs."""\nclass B:\n    c: int\n    _d = 2\n').body) == ["B.c"]
    found = {str(path): undocumented(ast.parse(path.read_bytes()).body) for path in RUNTIME.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
