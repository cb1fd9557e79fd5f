"""The command: what it takes, prints and exits with. The analysis is a fake that returns what the model's file says."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, get_args

import click
import pytest
from click.testing import CliRunner

import memlint.commands.check.answers
import memlint.commands.check.check
import memlint.commands.early
from memlint import cli, config
from memlint.base.version import install_command
from memlint.cli import check, options, run
from memlint.report.reading import parse_report, read_report
from tests.report.sample import REPORT
from tests.worker.conftest import fake_analyse

if TYPE_CHECKING:
    from memlint.report.model import Report

FAKED = """
import functools, sys, fake_asking, memlint.cli, memlint.cli.printing
from memlint.commands import early
from memlint.commands.check import answers
answers.analyse = fake_asking.ask_for_result
early.CHILD = "fake_analyse"
answers.Task = early.Task = functools.partial(answers.Task, child="fake_analyse")
"""
FITS = {**REPORT.workloads[0].model_dump(mode="json"), "budget": None}
OVER = REPORT.workloads[0].model_dump(mode="json")
FINDING = REPORT.findings[0].model_dump(mode="json")
NOTE = REPORT.findings[1].model_dump(mode="json")
LEAK = """
import torch

def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).sum().item())
"""


class Project:
    """The current directory of a test, with the analysis faked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str = "", **result: object) -> None:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text) + (f"\nsaid = {result!r}\n" if result else ""))

    def memlint(self, *arguments: str, **options):
        if arguments[0] == "check":
            arguments = ("check", "--no-sweep", *arguments[1:])  # which is not faked
        return CliRunner().invoke(cli.main, arguments, **options)

    def report(self, *arguments: str) -> Report:
        return parse_report(self.memlint("check", "--output-format", "json", *arguments).stdout.encode(), "stdout")

    def requests(self) -> list[dict]:
        file = Path(os.environ["TEST_REQUESTS"])
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def project(tmp_path, monkeypatch, copied_pythons):
    directory = tmp_path / "project"
    directory.mkdir()
    fake_analyse(tmp_path, monkeypatch)
    monkeypatch.setenv("TEST_REQUESTS", str(tmp_path / "requests"))
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    answers = memlint.commands.check.answers
    monkeypatch.setattr(answers, "analyse", importlib.import_module("fake_asking").ask_for_result)
    for module in (answers, memlint.commands.early):
        monkeypatch.setattr(module, "Task", functools.partial(module.Task, child="fake_analyse"))
    monkeypatch.setattr(memlint.commands.early, "CHILD", "fake_analyse")
    monkeypatch.chdir(directory)
    return Project(directory)


def test_a_model_that_fits_exits_with_0_and_the_verdict_first(project):
    project.write("model.py", workloads=[FITS])
    result = project.memlint("check", "model.py")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("models/gpt2.py::GPT2 needs 5.31 GiB on NVIDIA A100 80GB (79.0 GiB): fits\n")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"workloads": [FITS], "findings": [FINDING]}, 1),
        ({"workloads": [FITS], "findings": [NOTE]}, 0),
        ({"workloads": [OVER]}, 1),
        ({"workloads": [{**OVER, "budget": {**OVER["budget"], "level": "warning"}}]}, 0),
        ({"workloads": [{**FITS, "verdict": {**FITS["verdict"], "outcome": "does not fit"}}]}, 1),
        ({"workloads": [{**FITS, "verdict": {**FITS["verdict"], "outcome": "uncertain"}}]}, 0),
        ({"workloads": [REPORT.workloads[1].model_dump(mode="json")]}, 2),
        ({"workloads": [REPORT.workloads[1].model_dump(mode="json")], "findings": [FINDING]}, 2),
    ],
)
def test_the_exit_status_says_clean_findings_or_failure(project, result, status):
    project.write("model.py", **result)
    assert project.memlint("check", "model.py").exit_code == status
    assert project.memlint("check", "model.py", "--output-format", "json").exit_code == status
    assert project.memlint("check", "model.py", "--exit-zero").exit_code == (0 if status == 1 else status)


def test_options_reach_the_analysis_over_the_configuration(project):
    project.write("memlint.toml", 'batch = 4\ndtype = "bfloat16"\ngpu = "t4"\n')
    project.write("model.py", workloads=[FITS])
    project.memlint("check", "model.py::GPT2", "--batch", "16", "--budget", "24GiB", "--mode", "inference")
    (request,) = project.requests()
    assert request["path"] == str(project.directory / "model.py")
    assert (request["qualname"], request["named"], request["root"]) == ("GPT2", True, str(project.directory))
    settings = request["settings"]
    assert (settings["batch"], settings["dtype"], settings["gpu"], settings["mode"]) == (
        16,
        "bfloat16",
        "t4",
        "inference",
    )
    assert settings["budget"]["*"]["max"] == f"{24 * 2**30}B"


def test_a_directory_is_asked_only_for_what_is_declared(project):
    project.write("plain.py", "from torch import nn\nclass Model(nn.Module): pass\n")
    project.write("a/function.py", "def memlint_workload(batch): ...  # memlint\n")
    project.write("a/decorated.py", "import memlint\n@memlint.workload(batch=2)\ndef build(): ...\n")
    project.write("a/renamed.py", "from memlint.targets.declare import workload as w\n@w\ndef build(): ...\n")
    project.write("a/mentions.py", "# memlint workload: none\ndef workload(): ...\n")
    project.write(".hidden/function.py", "def memlint_workload(): ...\n")
    project.write("configured.py", "")
    project.write("memlint.toml", '[[workload]]\nname = "c"\ntarget = "configured.py::build"\n')
    project.memlint("check")
    asked = [Path(request["path"]).relative_to(project.directory).as_posix() for request in project.requests()]
    assert sorted(asked) == ["a/decorated.py", "a/function.py", "a/renamed.py", "configured.py"]
    assert not any(request["named"] for request in project.requests())


def test_what_is_covered_twice_is_analysed_once(project):
    project.write("model.py", LEAK, workloads=[FITS])
    report = project.report("model.py", "./model.py", ".")
    assert len(project.requests()) == 1
    assert [finding.code for finding in report.findings] == ["MEM404"]


def test_excluded_files_are_not_read(project):
    project.write("memlint.toml", 'exclude = ["vendor", "*_old.py"]\n')
    for name in ("vendor/a.py", "b_old.py", "c.py"):
        project.write(name, "def memlint_workload(): ...\n")
    project.memlint("check", ".")
    assert [Path(request["path"]).name for request in project.requests()] == ["c.py"]


def test_source_rules_find_things_in_directories_and_files(project):
    project.write("package/evaluation.py", LEAK)
    for argument in ("package", "package/evaluation.py"):
        result = project.memlint("check", argument, "--no-exec")
        assert result.exit_code == 1, result.output
        assert "package/evaluation.py:" in result.stdout
        assert "MEM404" in result.stdout
    assert project.memlint("check", "package", "--ignore", "MEM404").exit_code == 0
    assert project.memlint("check", "package", "--select", "MEM1,MEM2", "--select", "MEM3").exit_code == 0


def test_no_exec_never_runs_code(project):
    project.write("model.py", "open('ran', 'w')\n")
    result = project.memlint("check", "model.py", "--no-exec")
    assert not (project.directory / "ran").exists()
    assert "--no-exec" in result.stdout
    assert result.exit_code == 0


def test_json_goes_to_stdout_alone_and_keeps_paths_relative(project):
    here = {**FITS, "target": f"{project.directory}/model.py::GPT2"}
    finding = {**FINDING, "path": f"{project.directory}/model.py", "message": f"see {project.directory}/model.py:3"}
    project.write("model.py", "print('noise')", workloads=[here], findings=[finding])
    report = project.report("model.py")
    assert report.workloads[0].target == "model.py::GPT2"
    assert (report.findings[0].path, report.findings[0].message) == ("model.py", "see model.py:3")
    assert report.settings.select == ["ALL"]


def test_findings_come_in_the_order_of_the_files(project):
    findings = [{**FINDING, "path": path, "line": line} for path, line in (("b.py", 1), ("a.py", 10), ("a.py", 9))]
    project.write("model.py", workloads=[FITS], findings=findings)
    assert [(f.path, f.line) for f in project.report("model.py").findings] == [("a.py", 9), ("a.py", 10), ("b.py", 1)]


def test_the_report_goes_into_a_file(project):
    project.write("model.py", workloads=[FITS])
    result = project.memlint("check", "model.py", "--output-format", "json", "-o", "report.json")
    assert result.stdout == ""
    assert read_report(Path("report.json")).workloads[0].name == "GPT2"
    assert project.memlint("check", "model.py", "-o", "missing/report.txt").exit_code == 2


def test_errors_are_on_stderr_too_where_stdout_is_for_machines(project):
    project.write("model.py", "import sys\nsys.exit(3)\n")
    result = project.memlint("check", "model.py", "--output-format", "json")
    assert result.exit_code == 2
    assert "error: model.py: the code called sys.exit(3)" in result.stderr
    assert parse_report(result.stdout.encode(), "stdout").workloads[0].error.traceback[-1] == "model.py:2 in <module>"


def test_verbose_shows_what_the_code_wrote_on_stderr(project):
    project.write("model.py", "print('building')\n", workloads=[FITS])
    result = project.memlint("check", "model.py", "-v")
    assert "building" in result.stderr
    assert "building" not in result.stdout
    assert "building" not in project.memlint("check", "model.py").output


def test_init_prints_configuration_and_nothing_else(project):
    project.write("model.py", workloads=[OVER], declarations=['[[tool.memlint.workload]]\nname = "a"\n'])
    result = project.memlint("check", "model.py", "--init")
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["tool"]["memlint"]["workload"] == [{"name": "a"}]


def test_one_target_that_fails_does_not_hide_the_others(project):
    project.write("bad.py", "import os\nos._exit(4)\n")
    project.write("good.py", workloads=[FITS])
    result = project.memlint("check", "bad.py", "good.py")
    assert result.exit_code == 2
    assert "error: bad.py: the code ended the process with exit status 4" in result.stdout
    assert "needs 5.31 GiB" in result.stdout


def test_a_file_without_a_model_is_an_error_alone_and_skipped_beside_others(project):
    project.write("helpers.py", "x = 1\n")
    project.write("model.py", workloads=[FITS])
    alone = project.memlint("check", "helpers.py")
    assert alone.exit_code == 2
    assert "error: helpers.py: no torch.nn.Module found" in alone.stdout
    assert "model.py::build" in alone.stdout
    beside = project.memlint("check", "helpers.py", "model.py")
    assert beside.exit_code == 0
    assert "helpers.py: no torch.nn.Module found" in beside.stdout


def test_a_file_whose_models_cannot_be_built_says_why(project):
    project.write(
        "model.py", skipped=[{"path": str(project.directory / "model.py"), "name": "A", "reason": "A needs width"}]
    )
    project.write("good.py", workloads=[FITS])
    alone = project.memlint("check", "model.py")
    assert alone.exit_code == 2
    assert "error: model.py: no model in it can be built: A needs width" in alone.stdout
    project.write("model.py", skipped=[{"name": "Head", "reason": "it has no parameters", "hint": "Build it."}])
    alone = project.memlint("check", "model.py")
    assert "no model in it can be built: Head: it has no parameters" in alone.stdout
    assert "Build it." in alone.stdout
    project.write("model.py", skipped=[{"path": "model.py", "name": "A", "reason": "A needs width"}])
    beside = project.memlint("check", "model.py", "good.py", "-v")
    assert beside.exit_code == 0
    assert "model.py: A: A needs width" in beside.stdout


ENDS_AT_THE_SECOND = """
import json, os
from memlint.worker.child import write_partial
from memlint.worker.protocol import Result

with open(os.environ["TEST_REQUESTS"]) as file:
    asked = json.loads(file.readlines()[-1])["qualname"]
if not asked:
    write_partial(Result.model_validate(PARTIAL))
    os.abort()
said = {"workloads": [LAST]}
"""


def test_a_model_at_which_the_child_ends_costs_the_others_of_its_file_nothing(project):
    first, second, last = ({**FITS, "name": name} for name in ("First", "Second", "Last"))
    partial = {
        "workloads": [first, {"name": second["name"], "target": "model.py::Second"}],
        "findings": [FINDING],
        "left": ["Last"],
    }
    project.write("model.py", f"PARTIAL, LAST = {partial!r}, {last!r}\n" + dedent(ENDS_AT_THE_SECOND))
    report = project.report("model.py")
    assert [(each.name, each.error is None) for each in report.workloads] == [
        ("First", True),
        ("Second", False),
        ("Last", True),
    ]
    assert [each.code for each in report.findings] == [FINDING["code"]]
    assert [request["qualname"] for request in project.requests()] == ["", "Last"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "missing.py does not exist"),
        (["missing"], "missing does not exist"),
        (["missing.py::Model"], "missing.py does not exist"),
        (["notes.txt"], "neither a Python file nor"),
        (["broken.py"], "broken.py: is not valid Python"),
        (["latin.py"], "error: latin.py: "),
        (["broken.py::Model"], "is not valid Python"),
        ([".", "--gpu", "a1000"], "no GPU named 'a1000'"),
        ([".", "--select", "MEM999"], "MEM999"),
        ([".", "--budget", "lots"], "--budget: 'lots' is not a size"),
        ([".", "--budget", "24"], "--budget: '24' has no unit: 24GiB?"),
        ([".", "--dtype", "fp33"], "--dtype: dtype 'fp33' is unknown"),
        (["book.ipynb"], "book.ipynb is not a notebook"),
        ([".", "--batch", "0"], "'--batch'"),
        ([".", "--nonsense"], "--nonsense"),
    ],
)
def test_what_makes_no_sense_is_one_clear_message_and_exit_status_2(project, arguments, message):
    project.write("notes.txt", "")
    project.write("book.ipynb", "{}")
    project.write("broken.py", "def f(:\n")
    (project.directory / "latin.py").write_bytes(b"x = '\xe9'\n")
    result = project.memlint("check", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_of_several_targets_those_that_are_missing_cost_the_others_nothing(project):
    project.write("model.py", workloads=[FITS])
    result = project.memlint(
        "check", "gone.py", "model.py", "lost.py::Net", "-o", "report.json", "--output-format", "json"
    )
    assert result.exit_code == 2
    assert "error: gone.py: does not exist" in result.stderr
    assert "error: lost.py::Net: " in result.stderr
    workloads = read_report(project.directory / "report.json").workloads
    assert [each.error.kind if each.error else each.name for each in workloads] == ["target", "target", FITS["name"]]
    alone = project.memlint("check", "gone.py", "lost.py")
    assert alone.exit_code == 2
    assert "2 targets could not be analysed." in alone.stdout


def test_a_budget_of_no_workload_is_said_where_all_of_the_project_was_analysed(project):
    project.write("memlint.toml", '[budget.gpt]\nmax = "1GiB"\n[budget."*"]\nmax = "1TiB"\n')
    project.write("model.py", "import memlint\n@memlint.workload\ndef w(): ...", workloads=[{**FITS, "name": "gtp"}])
    result = project.memlint("check", ".")
    assert "budget gpt: no workload that was analysed has this name" in result.stdout
    assert "Did you mean 'gtp'?" in result.stdout
    assert "budget gpt" not in project.memlint("check", "model.py").stdout
    assert "budget gpt" not in project.memlint("check", ".", "--no-exec").stdout
    project.write("model.py", "import memlint\n@memlint.workload\ndef w(): ...", workloads=[{**FITS, "name": "gpt"}])
    assert "budget gpt" not in project.memlint("check", ".").stdout


def test_what_was_computed_on_a_line_stands_for_what_its_text_looked_like(project):
    text = """
    import torch

    def fit(model, loader, optimizer):
        losses = []
        for x in loader:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return losses
    """
    computed = {**FINDING, "path": str(project.directory / "loop.py"), "line": 10, "column": 1, "code": "MEM402"}
    project.write("loop.py", text)
    (guess,) = project.report("loop.py").findings
    assert (guess.code, guess.line, guess.confidence) == ("MEM402", 10, "heuristic")
    project.write("loop.py", text, workloads=[FITS], findings=[computed])
    assert [(each.line, each.confidence) for each in project.report("loop.py").findings] == [
        (10, FINDING["confidence"])
    ]
    project.write("loop.py", text, workloads=[FITS], findings=[{**computed, "line": 7}])
    assert [each.line for each in project.report("loop.py").findings] == [7, 10]


def test_options_that_do_nothing_by_themselves_are_refused(project):
    result = project.memlint("check", "--allow-dynamics")
    assert result.exit_code == 2
    assert "--allow-dynamics does nothing by itself" in result.stderr


def test_a_mistake_in_the_configuration_is_one_clear_message(project):
    project.write("memlint.toml", "bach = 3\n")
    result = project.memlint("check")
    assert result.exit_code == 2
    assert "memlint.toml: unknown key bach" in result.stderr
    assert "Did you mean 'batch'?" in result.stderr


def test_a_file_above_the_current_directory_has_one_path_in_a_report(project, monkeypatch):
    loop = project.directory / "loop.py"
    project.write("loop.py", LEAK, workloads=[FITS], findings=[{**FINDING, "path": str(loop)}])
    (project.directory / "below").mkdir()
    monkeypatch.chdir(project.directory / "below")
    assert {each.path for each in project.report("../loop.py").findings} == {"../loop.py"}
    assert {each.path for each in project.report(str(loop)).findings} == {str(loop)}


def test_a_configured_workload_whose_file_is_missing_costs_the_others_nothing(project):
    table = '[[workload]]\nname = "a"\ntarget = "gone.py::build"\n'
    project.write("memlint.toml", f'{table}[[workload]]\nname = "b"\ntarget = "model.py::build"\n')
    project.write("model.py", workloads=[FITS])
    result = project.memlint("check")
    assert result.exit_code == 2
    assert "error: a: gone.py does not exist" in result.stdout
    assert "models/gpt2.py::GPT2 needs 5.31 GiB" in result.stdout
    assert project.memlint("check", "model.py").exit_code == 0


def test_without_torch_source_rules_run_and_the_rest_is_said(project, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    project.write("evaluation.py", LEAK)
    result = project.memlint("check", "evaluation.py")
    assert result.exit_code == 1
    assert "MEM404" in result.stdout
    assert install_command("torch") in result.stdout
    assert project.memlint("check", "evaluation.py", "--ignore", "MEM404").exit_code == 0
    assert project.memlint("check", "evaluation.py::Model").exit_code == 2
    assert project.requests() == []


def test_a_mistake_in_memlint_is_told_from_findings(project, monkeypatch):
    monkeypatch.setattr(memlint.commands.check.check, "check", lambda *_args, **_options: 1 / 0)
    result = project.memlint("check")
    assert result.exit_code == 2
    assert "This is a mistake in memlint" in result.stderr


def test_colour_is_where_it_is_wanted(project, monkeypatch):
    project.write("model.py", workloads=[FITS])

    def colored(*arguments: str) -> bool:
        return "\033[" in project.memlint("check", "model.py", *arguments).stdout

    assert not colored()
    assert colored("--color", "always")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert colored()
    assert not colored("--color", "never")
    assert not colored("-o", "report.txt")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colored()
    assert colored("--color", "always")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_is_shown_on_a_terminal_after_a_second_and_wiped_away(project):
    import pty

    project.write("slow.py", "import time\ntime.sleep(1.5)\n", workloads=[FITS])
    project.write("quick.py", workloads=[FITS])
    code = f"{FAKED}memlint.cli.printing._PATIENCE = float(sys.argv.pop())\nmemlint.cli.main(['check', '--no-sweep', *sys.argv[1:]])"
    # On a busy machine a quick file takes more than a second too.
    for name, shown, patience in (("slow.py", True, "1.0"), ("quick.py", False, "600.0")):
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [sys.executable, "-c", code, name, patience], stdout=subprocess.PIPE, stderr=theirs, check=False
        )
        os.close(theirs)
        written = os.read(ours, 65536).decode()
        os.close(ours)
        assert done.returncode == 0
        assert (re.search(rf"analysing {name}: [a-z ]+ \(1 s\)", written) is not None) == shown
        assert written.endswith("\r\033[K")
        assert b"analysing" not in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_is_never_longer_than_the_line(project):
    import fcntl
    import pty
    import struct
    import termios

    code = (
        "from memlint.cli import printing\n"
        "with printing.progress() as show:\n"
        "    show('model.py::Net(' + 'n_channels=3, ' * 20 + ')', 61)\n"
    )
    for columns, variable in ((80, None), (40, None), (0, None), (80, "50")):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        environment |= {"COLUMNS": variable} if variable else {}
        subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=environment)
        os.close(theirs)
        shown = os.read(ours, 65536).decode().split("\r\033[K")[1]
        shown = shown.removeprefix("\033[?7l").removesuffix("\033[?7h")  # which keep the terminal from wrapping it
        os.close(ours)
        assert shown.startswith("analysing model.py::Net(n_")
        assert shown.endswith("... (61 s)")
        assert len(shown) < int(variable or columns or 80)


def test_files_above_the_current_folder_are_written_from_there(project, monkeypatch):
    finding = {**FINDING, "path": str(project.directory / "src" / "net.py")}
    project.write("scripts/model.py", workloads=[FITS], findings=[finding])
    project.write("memlint.toml")
    monkeypatch.chdir(project.directory / "scripts")
    assert "../src/net.py:" in project.memlint("check", "model.py").stdout
    assert str(project.directory) not in project.memlint("check", "model.py").stdout


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_terminal_without_unicode_is_no_trouble(project, output_format):
    strange = {**FITS, "target": "mod\u00e8le.py::\u6a21\u578b", "name": "\u6a21\u578b"}
    project.write("model.py", workloads=[strange])
    code = f"{FAKED}memlint.cli.main(['check', '--no-sweep', *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, "model.py", "--output-format", output_format],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert (
        "needs 5.31 GiB" in text
        if output_format == "text"
        else json.loads(text)["workloads"][0]["name"] == strange["name"]
    )


def test_rules_are_listed_and_explained(project):
    listed = project.memlint("rules")
    assert listed.exit_code == 0
    assert "MEM404" in listed.stdout
    assert project.memlint("rule", "--all").stdout == listed.stdout
    entries = json.loads(project.memlint("rules", "--output-format", "json").stdout)
    assert {"code", "name", "severity", "summary"} <= set(entries[0])
    page = project.memlint("rule", "mem404")
    assert page.exit_code == 0
    assert "## Why it costs memory" in page.stdout
    assert project.memlint("rule", "MEM99").exit_code == 2
    assert project.memlint("rule").exit_code == 2


def test_the_choice_of_rules_works_as_with_ruff(project):
    project.write("a.py", LEAK)
    project.write("memlint.toml", 'select = ["MEM6"]\nextend-select = ["MEM404"]\nignore = ["MEM601"]\n')

    def codes(*arguments: str) -> list[str]:
        return [finding.code for finding in project.report(".", "--no-exec", *arguments).findings]

    assert codes() == ["MEM404"]
    assert codes("--select", "MEM6") == []  # replaces what was selected, extended and ignored
    assert codes("--select", "MEM6", "--extend-select", "MEM404") == ["MEM404"]
    assert codes("--ignore", "MEM4") == []
    project.write("memlint.toml", 'ignore = ["MEM404"]\n')
    assert codes() == []
    assert codes("--extend-select", "MEM40") == ["MEM404"]
    assert codes("--select", "MEM404") == ["MEM404"]


def test_findings_of_source_and_of_traced_steps_are_left_out_by_file(project):
    project.write("memlint.toml", '[per-file-ignores]\n"lib/*" = ["MEM4", "MEM1"]\n"!lib/*" = ["MEM2"]\n')
    project.write("lib/a.py", LEAK)
    inside = {**FINDING, "path": str(project.directory / "lib/a.py")}
    outside = {**FINDING, "path": str(project.directory / "model.py")}
    project.write("model.py", LEAK, workloads=[FITS], findings=[inside, outside, {**outside, "code": "MEM201"}])
    report = project.report("model.py", "lib")
    assert [(finding.code, finding.path) for finding in report.findings] == [
        ("MEM404", "model.py"),  # in the order of the lines, though one path was relative and the other absolute
        ("MEM107", "model.py"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'select = ["MEM440"]',
        'extend-select = ["MEM440"]',
        'ignore = ["MEM440"]',
        '[per-file-ignores]\n"a.py" = ["MEM440"]',
    ],
)
def test_an_unknown_code_anywhere_in_the_configuration_is_an_error_with_the_closest_one(project, text):
    project.write("a.py", "x = 1\n")
    project.write("memlint.toml", text)
    result = project.memlint("check", ".", "--no-exec")
    assert result.exit_code == 2
    assert "there is no rule 'MEM440'" in result.stderr
    assert "Did you mean MEM404?" in result.stderr


SUPPRESSED = """
a = 1  # memlint: ignore[MEM107] kept
b = 2  # memlint: ignore[MEM107] kept
c = 3  # memlint: ignore[MEM107] never runs
"""


def traced(project, line, **more):
    return {**FINDING, "path": str(project.directory / "model.py"), "line": line, **more}


def test_comments_suppress_what_traced_steps_found_and_unused_ones_are_notes(project):
    lines = {str(project.directory / "model.py"): [2, 3]}
    project.write("model.py", SUPPRESSED, workloads=[FITS], findings=[traced(project, 2)], traced_lines=lines)
    report = project.report("model.py")
    assert [(f.code, f.line, f.severity) for f in report.findings] == [("MEM004", 3, "note")]
    assert project.memlint("check", "model.py").exit_code == 0
    assert project.report("model.py", "--select", "MEM4").findings == []
    assert project.report("model.py", "--ignore", "MEM004").findings == []
    assert project.report("model.py", "--no-exec").findings == []
    assert project.report("model.py::one").findings == []  # which may not be the workload that needs it


def test_a_comment_that_one_of_several_workloads_needs_is_used(project):
    path = str(project.directory / "model.py")
    findings = [traced(project, 2, workload="one"), traced(project, 3, workload="other")]
    project.write("model.py", SUPPRESSED, workloads=[FITS], findings=findings[:1], traced_lines={path: [2, 3]})
    project.write("other.py", workloads=[FITS], findings=findings[1:], traced_lines={path: [3]})
    assert project.report("model.py", "other.py").findings == []


def test_comments_for_rules_that_also_look_at_steps_are_judged_when_both_have_looked(project):
    project.write("a.py", "import torch\nx = 1  # memlint: ignore[MEM402] grows\n", workloads=[FITS])
    assert [finding.code for finding in project.report("a.py").findings] == ["MEM004"]
    assert project.report("a.py", "--no-exec").findings == []
    found = {**FINDING, "code": "MEM402", "path": str(project.directory / "a.py"), "line": 2}
    project.write("a.py", "import torch\nx = 1  # memlint: ignore[MEM402] grows\n", workloads=[FITS], findings=[found])
    assert project.report("a.py").findings == []


def test_comments_for_traced_steps_are_not_judged_when_one_could_not_be_analysed(project):
    lines = {str(project.directory / "model.py"): [2, 3]}
    project.write("model.py", SUPPRESSED, workloads=[FITS], traced_lines=lines)
    project.write("other.py", "import sys\nsys.exit(1)\n")
    assert project.report("model.py", "other.py").findings == []
    assert len(project.report("model.py").findings) == 2


def test_statistics_count_the_findings_of_each_rule(project):
    project.write("a.py", LEAK + LEAK)
    project.write("b.py", "x = 1  # memlint: ignore[MEM404] x\n")
    result = project.memlint("check", ".", "--no-exec", "--statistics")
    assert result.exit_code == 1
    assert "2  MEM404  eval-without-no-grad\n1  MEM004  unused-suppression\n" in result.stdout
    assert "help:" not in result.stdout
    report = project.report(".", "--no-exec", "--statistics")
    assert [(row.code, row.count) for row in report.statistics] == [("MEM404", 2), ("MEM004", 1)]
    assert len(report.findings) == 3


def test_comments_are_added_for_findings_and_there_is_nothing_left(project):
    project.write("a.py", LEAK, workloads=[FITS], findings=[{**FINDING, "path": "elsewhere.py"}])
    result = project.memlint("check", "a.py", "--add-ignore")
    assert result.exit_code == 0
    assert result.stdout == "Suppressed 1 finding in 1 file.\n"
    assert "elsewhere.py:61: MEM107 is left: its file was not named" in result.stderr
    assert "    # memlint: ignore[MEM404]\n    for x in loader:\n" in Path("a.py").read_text()
    text = Path("a.py").read_text()
    assert project.memlint("check", "a.py", "--add-ignore").stdout == "Suppressed 0 findings in 0 files.\n"
    assert Path("a.py").read_text() == text
    assert project.report("a.py", "--no-exec").findings == []


def test_what_is_in_the_baseline_is_left_out_and_what_is_gone_is_said(project):
    project.write("a.py", LEAK)
    written = project.memlint("check", ".", "--no-exec", "--write-baseline", "known.json")
    assert (written.exit_code, written.stdout) == (0, "Wrote 1 finding into known.json.\n")
    project.write("a.py", "import os\n" + LEAK)
    result = project.memlint("check", ".", "--no-exec", "--baseline", "known.json")
    assert result.exit_code == 0
    assert "1 known finding left out: see known.json." in result.stdout
    project.write("a.py", LEAK + LEAK)
    assert len(project.report(".", "--no-exec", "--baseline", "known.json").findings) == 1
    project.write("a.py", "for x in loader:\n    pass\n")
    result = project.memlint("check", ".", "--no-exec", "--baseline", "known.json")
    assert result.exit_code == 0
    assert (
        "Stale in known.json, which --write-baseline renews:\n  a.py: 1 x MEM404 on `for x in loader:`" in result.stdout
    )
    other = project.report(".", "--no-exec", "--baseline", "known.json", "--ignore", "MEM404")
    assert other.baseline.stale == []  # nobody looked


def test_a_baseline_of_traced_steps_is_stale_only_where_they_ran(project):
    path = str(project.directory / "model.py")
    project.write(
        "model.py", "a = 1\nb = 2\n", workloads=[FITS], findings=[traced(project, 2)], traced_lines={path: [2]}
    )
    assert project.memlint("check", "model.py", "--write-baseline", "known.json").exit_code == 0
    assert project.report("model.py", "--baseline", "known.json").baseline.num_findings == 1
    project.write("model.py", "a = 1\nb = 2\n", workloads=[FITS], traced_lines={path: [2]})
    assert len(project.report("model.py", "--baseline", "known.json").baseline.stale) == 1
    assert project.report("model.py", "--baseline", "known.json", "--no-exec").baseline.stale == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "none.json"], "none.json does not exist"),
        (["--baseline", "wrong.json"], "wrong.json is no baseline"),
        (["--add-ignore", "--write-baseline", "b.json"], "exclude one another"),
        (["--add-ignore", "--init"], "exclude one another"),
        (["--baseline", "b.json", "--write-baseline", "b.json"], "would be missing in --write-baseline"),
        (["--no-exec", "--write-baseline", "none/b.json"], "cannot be written"),
    ],
)
def test_misused_baselines_are_one_clear_message(project, arguments, message):
    project.write("wrong.json", "[]")
    project.write("a.py", LEAK)
    result = project.memlint("check", ".", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


RAISES = """
from memlint.lint.rule import HEADINGS, Severity, SourceRule

class Raises(SourceRule):
    code, name, summary, severity, words = "ACM002", "raises", "Raises.", Severity.WARNING, ()
    __doc__ = "".join(f"## {heading}\\n" for heading in HEADINGS)

    def check(self, source: "Source"):
        print("checking")
        raise KeyError("lost")
"""


def test_a_project_s_own_rules_run_and_a_broken_one_is_one_finding(project):
    assert project.memlint("new-rule", "ACM001", "no-doubles").exit_code == 0
    project.write("lint_rules/raises.py", RAISES)
    project.write("lint_rules/broken.py", "print('loading')\nimport no_such_module\n")
    project.write("src/a.py", LEAK + "print(torch.ones(3).double())\n")
    project.write("src/b.py", "import torch  # memlint: ignore[ACM001, XYZ001] x\n")
    project.write("memlint.toml", 'rule-paths = ["lint_rules"]\nextend-select = ["ACM"]\n')
    found = project.report("src").findings
    assert sorted({(finding.code, finding.path) for finding in found}) == [
        ("ACM001", "src/a.py"),
        ("MEM003", "lint_rules/broken.py"),
        ("MEM003", "src/a.py"),
        ("MEM004", "src/b.py"),
        ("MEM404", "src/a.py"),
    ]
    (raised,) = [finding for finding in found if finding.path == "src/a.py" and finding.code == "MEM003"]
    assert raised.message.startswith("Rule ACM002 (raises) failed: KeyError: 'lost' (lint_rules/raises.py:10).")
    assert "It failed 2 times in all" in raised.message
    assert raised.fix == "Correct lint_rules/raises.py, and ignore ACM002 until it is repaired."


def test_no_exec_leaves_a_project_s_own_rules_out_and_says_so(project):
    project.write("lint_rules/a.py", "open('ran', 'w')\n")
    project.write("memlint.toml", 'rule-paths = ["lint_rules"]\nselect = ["ACM", "MEM404"]\n')
    project.write("src/a.py", LEAK)
    result = project.memlint("check", "src", "--no-exec")
    assert result.exit_code == 1
    assert "MEM404" in result.stdout
    assert "the rules in rule-paths were not loaded, because of --no-exec" in result.stdout
    for command in (["rules", "--no-exec"], ["rule", "MEM404", "--no-exec"], ["rule", "--all", "--no-exec"]):
        assert project.memlint(*command).exit_code == 0
    assert not Path("ran").exists()
    project.memlint("rules")
    assert Path("ran").exists()


def test_a_new_rule_is_written_tried_listed_and_explained(project):
    written = project.memlint("new-rule", "ACM001", "no-doubles")
    assert written.exit_code == 0
    file = "lint_rules/acm001_no_doubles.py"
    assert f"Wrote {file}. Try it with: memlint test {file}\n" in written.stdout
    assert 'rule-paths = ["lint_rules"]' in written.stdout
    tried = project.memlint("test", "lint_rules")
    assert (tried.exit_code, tried.stdout.splitlines()[-1]) == (0, "2 cases passed.")
    project.write("memlint.toml", 'rule-paths = ["lint_rules"]\n')
    assert "rule-paths" not in project.memlint("new-rule", "ACM002", "other", "--path", "lint_rules").stdout
    assert project.memlint("new-rule", "ACM001", "third").exit_code == 2
    entries = json.loads(project.memlint("rules", "--output-format", "json").stdout)
    assert {"ACM001", "ACM002", "MEM404"} <= {entry["code"] for entry in entries}
    assert "## Why it costs memory" in project.memlint("rule", "no-doubles").stdout
    text = Path(file).read_text()
    Path(file).write_text(text.replace("line=3", "line=1"))
    tried = project.memlint("test", "ACM001", "ACM002", "-q")
    assert tried.exit_code == 1
    assert tried.stdout == "FAILED  ACM001 bad 1: line 3 is reported instead of line 1\n1 of 4 cases failed.\n"


@pytest.mark.parametrize("argument", ["MEM999", "gone.py", "src"])
def test_cases_of_rules_there_are_not_is_an_error(project, argument):
    project.write("src/a.py", "x = 1\n")
    assert project.memlint("test", argument).exit_code == 2
    assert project.memlint("test").exit_code == 2


def test_files_nobody_can_read_leave_the_rest_unharmed(project):
    project.write("good.py", LEAK)
    project.write("comment.py", "x = 1  # memlint: ignore everything\n")
    (project.directory / "latin.py").write_bytes(b"import torch\nx = '\xe9'\n")
    project.write("deep.py", "import torch\nx = " + "(" * 300 + ")" * 300 + "\n")
    terms = 20_000 if sys.version_info < (3, 14) else 100_000  # which Python cannot make a tree of
    project.write("sum.py", LEAK + "x = " + " + ".join(["torch.ones(1)"] * terms) + "\n")
    found = {(finding.path, finding.code): finding.message for finding in project.report(".", "--no-exec").findings}
    assert set(found) == {
        ("comment.py", "MEM002"),
        ("deep.py", "MEM001"),
        ("good.py", "MEM404"),
        ("latin.py", "MEM001"),
        ("sum.py", "MEM001"),
    }
    assert "is not utf-8 text, and no coding comment says what it is" in found["latin.py", "MEM001"]
    assert "nested" in found["sum.py", "MEM001"]


def test_choices_are_those_of_the_configuration():
    assert get_args(config.Dtype) == options.DTYPES
    assert get_args(config.Mode) == options.MODES
    names = {option.name for option in check.check.params if isinstance(option, click.Option)}
    assert {
        "batch",
        "dtype",
        "mode",
        "optimizer",
        "gpu",
        "budget",
        "select",
        "ignore",
        "timeout",
        "memory_limit",
    } <= names & set(config.Settings.model_fields)


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from memlint.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "heavy = {'torch', 'pydantic', 'networkx', 'tabulate', 'psutil', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout or "memlint" in done.stdout


def test_checking_sources_loads_neither_torch_nor_what_reads_recordings_and_plans(tmp_path):
    (tmp_path / "evaluation.py").write_text(LEAK)
    unneeded = ("torch", "memlint.capture.recording", "memlint.whatif.plan")
    code = "import sys\nfrom memlint.cli import main\nmain(['check', '.', '--no-exec'], standalone_mode=False)\n"
    code += f"sys.exit(not sys.modules.keys().isdisjoint({unneeded}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MEM404" in done.stdout


def test_the_module_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "memlint", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("memlint ")


def test_no_error_is_a_command_to_the_runner_of_a_workflow(project):
    error = {"kind": "workload", "message": "a\n::error file=x::y\n##[error]z", "hint": "b\n::add-mask::c"}
    project.write("model.py", workloads=[{"name": "m", "target": "model.py", "error": error}])
    for form in ("text", "json"):
        result = project.memlint("check", "model.py", "--output-format", form)
        shown = result.output if form == "text" else result.stderr
        assert "a ::error file=x::y" in shown
        assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
        assert form == "text" or "##[" not in shown


def test_findings_of_workloads_of_one_name_are_told_apart(project):
    for name in ("a.py", "b.py"):
        project.write(name, workloads=[FITS], findings=[{**FINDING, "message": name, "workload_position": 0}])
    report = parse_report(project.memlint("check", "b.py", "a.py", "--output-format", "json").stdout_bytes, "report")
    assert {(found.message, found.workload_position) for found in report.findings} == {("b.py", 0), ("a.py", 1)}


def test_options_of_python_before_a_script_change_nothing(project):
    ran = project.memlint("run", "-u", "-B", "-W", "ignore", "absent.py", "-u")
    assert "No such option" not in ran.stderr
    assert "absent.py" in ran.stderr


def test_every_option_of_check_is_one_of_run_or_refused_with_what_to_type(project):
    names = {name for each in check.check.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    of_run = {name for each in run.run.params for name in each.opts}
    assert names - of_run == set(run.REFUSED)
    for name in run.REFUSED:
        ran = project.memlint("run", name, "train.py")
        assert ran.exit_code == 2
        assert f"memlint run has no {name}\n  help: {run.REFUSED[name]}" in ran.stderr
