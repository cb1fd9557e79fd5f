"""Rules of a project: loading them from `rule-paths`, beginning one, and running their cases."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from memlint.base.errors import UsageError
from memlint.commands.rule_cases import find_subjects, run_cases
from memlint.config import Settings
from memlint.lint.registry import load_rules, project_rules
from memlint.lint.rule import Case
from memlint.lint.scaffold import write_rule

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lint_rules"


def new(folder, code="ACM001", name="no-doubles", change=lambda text: text):
    file = write_rule(code, name, folder, load_rules(()))
    file.write_text(change(file.read_text()))
    return file


def outcomes(*arguments, settings=Settings(), root=Path()):  # noqa: B008
    return {
        outcome.name: outcome.problem
        for outcome in run_cases(find_subjects([str(a) for a in arguments], settings, root))
    }


def test_a_new_rule_works_and_its_cases_pass(folder):
    file = new(folder)
    assert file.name == "acm001_no_doubles.py"
    assert outcomes(file) == {"ACM001 bad 1": "", "ACM001 good 1": ""}
    assert outcomes(folder) == outcomes(file)
    rule = load_rules((), [folder])["no-doubles"]
    assert (rule.code, type(rule).__name__) == ("ACM001", "NoDoubles")


def test_a_new_rule_is_clean_under_ruff(folder):
    file = new(folder)
    for arguments in (["format", "--check", "--isolated"], ["format", "--check"], ["check"]):
        config = [] if "--isolated" in arguments else ["--config", str(ROOT / "pyproject.toml")]
        subprocess.run([sys.executable, "-m", "ruff", *arguments, *config, str(file)], check=True)


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("acm001", "x", "'acm001' is no code"),
        ("ACM1", "x", "'ACM1' is no code"),
        ("ACM001", "Two Words", "'Two Words' is no name"),
        ("ACM001", "../x", "is no name"),
        ("MEM404", "x", "MEM404 is taken by MEM404 (eval-without-no-grad)"),
        ("ACM001", "eval-without-no-grad", "eval-without-no-grad is taken by MEM404"),
    ],
)
def test_a_code_or_name_that_is_none_or_taken_is_refused(folder, code, name, message):
    with pytest.raises(UsageError) as caught:
        write_rule(code, name, folder, load_rules())
    assert message in caught.value.message
    assert not folder.exists()


def test_a_file_that_exists_is_not_written_over(folder):
    file = new(folder, change=lambda _text: "mine = 1\n")
    with pytest.raises(UsageError, match="exists already"):
        new(folder)
    assert file.read_text() == "mine = 1\n"


def test_files_import_their_neighbours_and_helpers_are_no_rules(folder):
    new(folder, change=lambda text: text.replace("import ast", "import ast\n\nfrom ._shared import LIMIT"))
    (folder / "_shared.py").write_text("LIMIT = 3\n")
    (folder / "test_rules.py").write_text("raise RuntimeError\n")
    registry = load_rules((), [folder])
    assert registry.problems == ()
    assert registry["ACM001"]


def test_a_changed_file_is_read_again(folder):
    file = new(folder)
    assert load_rules((), [folder])["ACM001"].severity == "warning"
    file.write_text(file.read_text().replace("Severity.WARNING", "Severity.ERROR"))
    assert load_rules((), [file])["ACM001"].severity == "error"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: "import no_such_module\n", "ModuleNotFoundError"),
        (lambda _: "def f(:\n", "SyntaxError"),
        (lambda _: "import sys\nsys.exit(2)\n", "SystemExit: 2"),
        (lambda t: t.replace('    code = "ACM002"\n', ""), "acm002_broken.Broken has no code"),
        (lambda t: t.replace("ACM002", "ACM001"), "acm002_broken.Broken has the code ACM001, and so has acm001_"),
        (
            lambda t: t.replace("ACM002", "MEM404"),
            "has the code MEM404, and so has memlint_rules.m4_training_loop.mem404_",
        ),
        (
            lambda t: t.replace("    def check", "    def __init__(self):\n        1 / 0\n\n    def check"),
            "ZeroDivision",
        ),
    ],
    ids=["import", "syntax", "exit", "no code", "code twice", "code of a built-in rule", "constructor"],
)
def test_a_broken_file_is_one_finding_with_its_place_and_the_rest_is_loaded(folder, change, says):
    new(folder)
    broken = new(folder, "ACM002", "broken", change)
    registry = load_rules(entry_points(group="memlint.rules"), [folder])
    (problem,) = registry.problems
    assert (problem.code, problem.path) == ("MEM003", str(broken))
    assert says in problem.message
    assert "Correct the file" in problem.fix
    assert registry["ACM001"].name == "no-doubles"
    assert registry["MEM404"].name == "eval-without-no-grad"
    assert not registry.complete


def test_without_execution_a_project_s_rules_are_not_even_imported(folder, tmp_path):
    new(folder, change=lambda text: f"{text}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    settings = Settings.model_validate({"rule-paths": ["lint_rules"], "extend-select": ["ACM"]})
    registry = project_rules(settings, tmp_path, execute=False)
    assert not (tmp_path / "ran").exists()
    assert registry.chosen(settings)  # ACM may be the rules that were left out
    assert "ACM001" in {rule.code for rule in project_rules(settings, tmp_path).chosen(settings)}
    assert (tmp_path / "ran").exists()


def test_a_missing_folder_is_a_mistake_in_the_configuration(tmp_path):
    with pytest.raises(UsageError, match=r"rule-paths: .*nowhere does not exist"):
        project_rules(Settings.model_validate({"rule-paths": ["nowhere"]}), tmp_path)


def test_cases_that_do_not_hold_say_what_happened(folder):
    new(folder, change=lambda text: text.replace("line=3", "line=2"))
    new(folder, "ACM002", "two", lambda text: text.replace("x = torch.zeros(4)\\n", "x = torch.ones(4).double()\\n"))
    new(folder, "ACM003", "three", lambda text: text.replace(".double()\\n", "\\n"))
    new(folder, "ACM004", "four", lambda text: text.replace("if not uses_torch(source)", "if 1 / 0"))
    new(folder, "ACM005", "five", lambda text: text.replace("    good = ", "    better = "))
    new(folder, "ACM006", "six", lambda text: text.replace("x = torch.zeros(4)\\n", "x = = 1\\n"))
    problems = {name: problem for name, problem in outcomes(folder).items() if problem}
    assert problems.pop("ACM001 bad 1") == "line 3 is reported instead of line 2"
    assert problems.pop("ACM002 good 1").startswith("line 3 is reported: `double()` makes a copy")
    assert problems.pop("ACM003 bad 1") == "nothing is reported"
    assert problems.pop("ACM004 bad 1").startswith("Rule ACM004 (four) failed: ZeroDivisionError")
    assert "ZeroDivisionError" in problems.pop("ACM004 good 1")
    assert problems.pop("ACM005 good") == "there is no good case"
    assert problems.pop("ACM006 good 1") == "the case is not valid Python: invalid syntax (line 3)"
    assert problems == {}


def test_a_broken_file_and_a_code_that_is_taken_fail(folder):
    broken = new(folder, change=lambda _text: "raise RuntimeError('no')\n")
    new(folder, "ACM002", "two", lambda text: text.replace("ACM002", "MEM404"))
    problems = [problem for problem in outcomes(folder).values() if problem]
    assert any(f"The rules of {broken} cannot be used: RuntimeError: no" in problem for problem in problems)
    assert any("the code MEM404 is that of eval-without-no-grad" in problem for problem in problems)


def test_installed_rules_and_those_of_the_project_are_named_by_code_or_name(folder, tmp_path):
    new(folder)
    settings = Settings.model_validate({"rule-paths": ["lint_rules"]})
    names = outcomes("mem601", "no-doubles", "MEM004", settings=settings, root=tmp_path)
    assert {name.split()[0] for name in names} == {"MEM601", "ACM001", "MEM004"}
    assert not any(names.values())
    for unknown in ("MEM9999", str(tmp_path / "gone.py")):
        with pytest.raises(UsageError):
            outcomes(unknown)


def test_the_file_of_a_built_in_rule_can_be_tried(tmp_path):
    assert not any(outcomes(ROOT / "rules/memlint_rules/m6_runtime/mem601_empty_cache_in_loop.py").values())


TRACED = '''
from memlint.lint.rule import Case, Confidence, Severity, TraceRule

MODEL = """\\
import torch

def memlint_workload():
    return torch.nn.Linear({width}, 4), {{"input": torch.zeros(2, {width})}}
"""

class Wide(TraceRule):
    """Doc.

    ## What it does

    ## Why it costs memory

    ## Example

    ## Use instead

    ## How the saving is computed

    ## Known limits

    ## References
    """

    code, name, summary, severity = "ACM010", "wide", "Wide.", Severity.WARNING
    bad = (Case(source=MODEL.format(width=100)),)
    good = (Case(source=MODEL.format(width=10)), Case(source="raise ValueError('lost')"), Case(source="x = 1"))

    def check(self, context):
        if any(buffer.nbytes == 1600 for buffer in context.trace.buffers):
            yield self.finding(
                context, None, "Wide.", nbytes=1, peak_change=-1, confidence=Confidence.HEURISTIC, fix="Narrow it."
            )
'''


@pytest.mark.usefixtures("copied_pythons")
def test_cases_of_rules_of_traced_steps_run_in_a_process_of_their_own(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "wide.py").write_text(TRACED)
    found = outcomes(tmp_path / "wide.py")
    assert found.pop("ACM010 good 2").startswith("the case cannot be run: ")
    assert found.pop("ACM010 good 3") == "the case declares no workload, as with `def memlint_workload():`"
    assert found == {"ACM010 bad 1": "", "ACM010 good 1": ""}


def test_a_case_that_changes_a_text_that_does_not_stand_there_once_is_a_broken_rule(folder):
    for code, text in (("ACM001", ".half()"), ("ACM002", "torch")):
        twin = f"good = (bad[0].but({{{text!r}: ''}}),)"
        new(folder, code, code.lower(), lambda source, twin=twin: source.replace("good = (", f"{twin}\n    other = ("))
    messages = [problem.message for problem in load_rules((), [folder]).problems]
    assert any("the text '.half()' that a case changes stands 0 times" in message for message in messages)
    assert any("the text 'torch' that a case changes stands 2 times" in message for message in messages)


def test_a_twin_is_the_whole_file_with_its_changes():
    bad = Case.of_model("class Model(nn.Module): ...\n", "Model(), {}", line=5, title="Bad", dtype="bfloat16")
    good = bad.but({"Model(), {}": "Model(), {'x': 1}", "nn.Module": "nn.Linear"})
    assert bad.source == (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module): ...\n\n\n"
        "def memlint_workload():\n    return Model(), {}\n"
    )
    assert good == Case(
        bad.source.replace("Model(), {}", "Model(), {'x': 1}").replace("nn.Module", "nn.Linear"), dtype="bfloat16"
    )
