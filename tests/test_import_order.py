"""The packages of memlint stand in an order, and imports point down it: the contracts are in pyproject.toml."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path[:0] = ['.', 'rules', 'libraries']; from importlinter.cli import lint_imports_command as main; main()"
    command = [sys.executable, "-P", "-c", code, "--config", "pyproject.toml", "--no-cache"]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    only_python = shutil.ignore_patterns("__pycache__", "assets", "templates")
    shutil.copytree(ROOT / "memlint", folder / "memlint", ignore=only_python)
    shutil.copytree(ROOT / "rules", folder / "rules", ignore=only_python)
    shutil.copytree(ROOT / "libraries", folder / "libraries", ignore=only_python)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_imports_point_down_the_list_of_packages_and_no_module_needs_itself():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "upper"),
    [
        ("memlint/accelerator/kernel.py", "from memlint.cuda import devices", "memlint.cuda"),
        ("memlint/config.py", "from memlint.lint import selection", "memlint.lint"),
        ("memlint/whatif/plan.py", "def holder():\n    from memlint.worker import protocol", "memlint.worker"),
        ("memlint/report/model.py", "from memlint.commands.check import check", "memlint.commands"),
        ("memlint/lint/rule.py", "if TYPE_CHECKING:\n    from memlint.worker import protocol", "memlint.worker"),
        ("memlint/base/units.py", "from memlint import config", "memlint.config"),
        ("rules/memlint_rules/m0_budget/mem010_over_budget.py", "from memlint.report import model", "memlint.report"),
        ("memlint/lint/registry.py", "import memlint_rules", "memlint_rules"),
        ("memlint/libraries/finders.py", "import memlint_libraries.spconv", "memlint_libraries.spconv"),
        ("libraries/memlint_libraries/mamba.py", "from memlint.tracing import recorder", "memlint.tracing.recorder"),
    ],
)
def test_an_import_that_points_up_is_found(copy, module, line, upper):
    file = copy / module
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(f"{text}\n{line}\n", encoding="utf-8")
        result = lint_imports(copy)
    finally:
        file.write_text(text, encoding="utf-8")
    importer = module.removeprefix("rules/").removeprefix("libraries/").removesuffix(".py").replace("/", ".")
    assert result.returncode == 1, result.stdout
    assert f"{importer} -> {upper}" in " ".join(result.stdout.split()), result.stdout


def test_two_modules_of_a_package_that_need_each_other_are_found(copy):
    first, second = copy / "memlint/tracing/mutual_a.py", copy / "memlint/tracing/mutual_b.py"
    try:
        first.write_text("from memlint.tracing import mutual_b\n", encoding="utf-8")
        second.write_text("def ask():\n    from memlint.tracing import mutual_a\n", encoding="utf-8")
        result = lint_imports(copy)
    finally:
        first.unlink()
        second.unlink()
    assert result.returncode == 1
    assert "No cycles are allowed in memlint.tracing" in result.stdout


def test_the_top_of_the_package_stays_small():
    entries = [entry for entry in (ROOT / "memlint").iterdir() if entry.name != "__pycache__"]
    loose = {entry.name for entry in entries if entry.is_file()} - {"__init__.py", "__main__.py", "py.typed"}
    assert loose == {"config.py"}
    assert len(entries) <= 32  # one thing each; a new one is a decision
