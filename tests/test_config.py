"""Configuration: which file is taken, what it says, and what is said about its mistakes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from memlint.base.errors import UsageError
from memlint.config import Settings, find_settings, override
from memlint.targets.workload_tables import render_declaration, workload_from_table


def settings_of(tmp_path, text):
    (tmp_path / "memlint.toml").write_text(text)
    return find_settings(tmp_path)[0]


def test_without_configuration_nothing_is_set_and_the_root_is_the_project(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert find_settings(below) == (Settings(), tmp_path)


def test_an_archive_begins_where_its_readme_or_licence_is(tmp_path):
    below = tmp_path / "archive" / "models" / "blocks"
    below.mkdir(parents=True)
    (tmp_path / "archive" / "LICENSE").touch()
    assert find_settings(below) == (Settings(), tmp_path / "archive")
    (tmp_path / "archive" / "models" / "README.md").touch()  # of a part
    assert find_settings(below) == (Settings(), tmp_path / "archive")


def test_without_a_readme_a_project_is_around_its_outermost_package(tmp_path):
    below = tmp_path / "container" / "package" / "models"
    below.mkdir(parents=True)
    for folder in (below, below.parent):
        (folder / "__init__.py").touch()
    assert find_settings(below)[1] == tmp_path / "container"
    assert find_settings(tmp_path / "container")[1] == tmp_path / "container"


def test_a_setup_within_a_package_is_of_a_part_of_the_project(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    for file in (tmp_path / "README.md", package / "__init__.py", package / "setup.py"):
        file.touch()
    assert find_settings(package)[1] == tmp_path
    (package / ".git").mkdir()
    assert find_settings(package)[1] == package


def test_a_home_is_no_project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "README.md").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    assert find_settings(tmp_path / "package")[1] == tmp_path / "package"


def test_the_closest_file_wins_and_nothing_is_merged(tmp_path):
    below = tmp_path / "models"
    below.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.memlint]\nbatch = 4\ndtype = "bf16-amp"\n')
    assert find_settings(below) == (Settings(batch=4, dtype="bf16-amp"), tmp_path)
    (below / "memlint.toml").write_text("batch = 8\n")
    assert find_settings(below) == (Settings(batch=8), below)


def test_a_pyproject_without_the_table_is_passed_over(tmp_path):
    below = tmp_path / "package"
    below.mkdir()
    (tmp_path / "memlint.toml").write_text("batch = 4\n")
    (below / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_settings(below) == (Settings(batch=4), tmp_path)


def test_memlint_toml_goes_before_pyproject_toml(tmp_path):
    (tmp_path / "memlint.toml").write_text("batch = 1\n")
    (tmp_path / "pyproject.toml").write_text("[tool.memlint]\nbatch = 2\n")
    assert find_settings(tmp_path)[0].batch == 1


def test_sizes_are_written_with_units(tmp_path):
    settings = settings_of(tmp_path, 'memory-limit = "4GiB"\nbudget = "24GiB"\n')
    assert settings.memory_limit == 4 * 2**30
    assert settings.budget_of("anything").max == 24 * 2**30


def test_a_size_keeps_its_unit_through_further_options_and_on_its_way_to_a_child():
    once = override(Settings(), budget="1KiB", memory_limit="2KiB", context="412MiB")
    again = override(once, batch=4, budget=None)
    assert again.budget_of("anything").max == 2**10
    assert Settings.model_validate_json(again.model_dump_json()) == again
    assert (again.memory_limit, again.context, again.batch) == (2**11, 412 * 2**20, 4)


def test_a_budget_by_name_goes_before_the_one_for_all(tmp_path):
    settings = settings_of(
        tmp_path,
        '[budget."*"]\nmax = "2GiB"\n[budget.gpt]\nmax = "1GiB"\nmax-increase-percent = 5\nlevel = "warning"\n',
    )
    assert settings.budget_of("gpt").max == 2**30
    assert settings.budget_of("gpt").level == "warning"
    assert settings.budget_of("other").max == 2 * 2**30
    assert settings_of(tmp_path, '[budget.gpt]\nmax = "1GiB"\n').budget_of("other") is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (("MEM1", "MEM404"), ("MEM2",), ("MEM107", "MEM3"))),
        ({"select": ("MEM6",)}, (("MEM6",), (), ())),
        ({"select": ("MEM6",), "ignore": ("MEM601",)}, (("MEM6",), (), ("MEM601",))),
        ({"ignore": ("MEM5",)}, (("MEM1", "MEM404"), ("MEM2",), ("MEM107", "MEM3", "MEM5"))),
        ({"ignore": ("mem4", "MEM2")}, (("MEM1",), (), ("MEM107", "MEM3", "mem4", "MEM2"))),
        ({"extend_select": ("MEM10",)}, (("MEM1", "MEM404"), ("MEM2", "MEM10"), ("MEM3",))),
        ({"extend_select": ("ALL",)}, (("MEM1", "MEM404"), ("MEM2", "ALL"), ())),
        ({"ignore": ("ALL",)}, ((), (), ("MEM107", "MEM3", "ALL"))),
    ],
)
def test_the_command_line_changes_the_choice_of_rules_as_with_ruff(given, expected):
    configured = Settings(select=("MEM1", "MEM404"), extend_select=("MEM2",), ignore=("MEM107", "MEM3"))
    settings = override(configured, **given)
    assert (settings.select, settings.extend_select, settings.ignore) == expected


def test_one_code_needs_no_list(tmp_path):
    assert settings_of(tmp_path, 'select = "MEM1"\nignore = ["MEM107"]\n').select == ("MEM1",)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("bach = 8", "unknown key bach", "Did you mean 'batch'?"),
        ("memory_limt = 8", "unknown key memory_limt", "'memory-limit'"),
        ("zzz = 8", "unknown key zzz", "Known keys: batch, dtype"),
        ('[budget.gpt]\nmx = "1GiB"', "unknown key budget.gpt.mx", "'max'"),
        ('budget = "24Gb2"', "budget: '24Gb2' is not a size", "Correct"),
        ("budget = true", "budget: input should be a valid integer", "Correct"),
        ("budget = 0", "budget: input should be greater than 0", "Correct"),
        ("budget = 24", "budget: '24' has no unit: 24GiB?", "Correct"),
        ("[budget.gpt]\nmax = 24", "budget.gpt.max: '24' has no unit: 24GiB?", "Correct"),
        ("budget = -1", "budget: '-1' is not a size", "Correct"),
        ('dtype = "fp33"', "dtype: dtype 'fp33' is unknown: did you mean fp32? Write one of float32", "Correct"),
        ('batch = "8"', "batch: input should be a valid integer", "Correct"),
        ("batch = 0", "batch: input should be greater than 0", "Correct"),
        ("select = [1]", "select.1: input should be a valid string", "Correct"),
        ("timeout = -1", "timeout: input should be greater than 0", "Correct"),
        ("batch = ", "cannot be read", "Correct"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_way_out(tmp_path, text, message, hint):
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, text)
    assert caught.value.message.startswith(str(tmp_path / "memlint.toml"))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_keys_of_pyproject_are_named_in_full(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.memlint.budget.gpt]\nmax = 'x'\n")
    with pytest.raises(UsageError, match=r"tool\.memlint\.budget\.gpt\.max: 'x' is not a size"):
        find_settings(tmp_path)


def test_the_command_line_wins_where_it_says_something():
    settings = override(
        Settings(batch=4, dtype="bfloat16", select=("MEM1",)), batch=8, dtype=None, select=(), budget="1GiB"
    )
    assert (settings.batch, settings.dtype, settings.select) == (8, "bfloat16", ("MEM1",))
    assert settings.budget_of("x").max == 2**30


def test_a_mistake_on_the_command_line_names_the_option():
    with pytest.raises(UsageError, match=r"--memory-limit: '3x' is not a size"):
        override(Settings(), memory_limit="3x")


def test_settings_cannot_be_changed_and_pass_through_json():
    settings = override(Settings(), budget="3GiB", select=("MEM1",), memory_limit="1GiB")
    with pytest.raises(ValidationError):
        settings.batch = 3
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


ROW_OF_NVIDIA_SMI = "|    0   N/A  N/A     12345      C   python                            412MiB |"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MiB", 512 << 20),
        ("412 MiB", 412 << 20),
        (ROW_OF_NVIDIA_SMI, 412 << 20),
        ("12345, python, 412 MiB", 412 << 20),
        ("| N/A   30C    P0    50W / 400W |    412MiB / 40960MiB |      0%      Default |", 412 << 20),
        (str(512 << 20), 512 << 20),
    ],
)
def test_a_context_is_a_size_or_a_line_of_nvidia_smi(text, nbytes, tmp_path):
    assert override(Settings(), context=text).context == nbytes
    assert settings_of(tmp_path, f'context = "{text}"\n').context == nbytes
    table = {"name": "net", "target": "torch.nn::Module", "context": text}
    workload = workload_from_table(table, tmp_path, "here", origin="config")
    assert workload.context == nbytes
    device = workload.device
    assert device.context_nbytes == nbytes
    assert device.context_low > 0.97 * nbytes
    assert device.context_high < 1.03 * nbytes
    (line,) = (line for line in render_declaration(workload).splitlines() if line.startswith("context"))
    assert line == f"context = {nbytes}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python", "names no size"),
        (f"{ROW_OF_NVIDIA_SMI}\n{ROW_OF_NVIDIA_SMI}", "names several sizes"),
        ("412", "'412' has no unit"),
        ("30GiB", "30.0 GiB is no CUDA context"),
    ],
)
def test_what_is_no_context_is_refused_with_what_to_give(text, reason, tmp_path):
    with pytest.raises(UsageError) as error:
        override(Settings(), context=text)
    assert reason in error.value.message
    with pytest.raises(UsageError) as error:
        workload_from_table({"target": "torch.nn::Module", "context": text}, tmp_path, "here", origin="config")
    assert reason in error.value.message
    assert "Give" in error.value.hint


def test_a_context_without_unit_in_a_file_is_bytes(tmp_path):
    assert settings_of(tmp_path, f"context = {512 << 20}\n").context == 512 << 20


def test_configs_of_models_that_are_not_here_are_files_beside_the_configuration(tmp_path):
    (tmp_path / "small.json").write_text('{"width": 4}')
    settings = settings_of(tmp_path, 'config-of = { "org/name" = "small.json" }')
    assert settings.config_of == (("org/name", '{"width": 4}'),)
    with pytest.raises(UsageError, match=r"the config of org/name, .*nowhere.json, is not read"):
        settings_of(tmp_path, 'config-of = { "org/name" = "nowhere.json" }')
