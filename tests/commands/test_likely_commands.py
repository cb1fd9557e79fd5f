"""Messages about a model that cannot be analysed name what to type."""

import pytest

from memlint.base.errors import WorkloadError
from memlint.commands.asking import Attempt
from memlint.commands.likely_commands import with_commands
from memlint.config import Settings
from memlint.report.from_rules import failed_target
from memlint.report.model import Error
from memlint.source.leading_scripts import LeadingScript
from memlint.source.typed_commands import TypedCommand
from memlint.targets.built import Built, BuiltModel
from memlint.targets.script import Ending
from memlint.worker.protocol import Request

MODEL = "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, configs): ...\n"
TRAIN = "from model import Net\nif __name__ == '__main__':\n    net = Net(load())\n    net(x).backward()\n    optim.step()\n"
DECLARE = "memlint check model.py --init writes a declaration with their arguments, to be filled in."


def attempt(folder, script, built=None, error=None, is_certain=True, trains=True):
    """A script of the project that was tried: with what it has built, and why it gave no Estimate."""
    command = TypedCommand(folder / script, "", ("--depth", "2"), folder)
    return Attempt(LeadingScript(command, is_certain=is_certain, trains=trains), built, error)


def ended(reason, *models, hint="", lacks="", is_refusal=False):
    """The record of a script that ended for this reason, having built models of these files."""
    ending = Ending(reason, is_failure=True, hint=hint, is_refusal=is_refusal)
    built = tuple(BuiltModel("model", "Net", str(path), 10) for path in models)
    return Built("", ending, models=built, lacks=lacks)


@pytest.fixture
def hint_of(tmp_path, monkeypatch):
    """Return the hint that becomes of one, in a project with a script and its README's command, or without."""

    def written(hint, *, has_script=True, attempts=()):
        files = {"model.py": MODEL}
        if has_script:
            files |= {"train.py": TRAIN, "README.md": "```\npython train.py --config configs/base.yaml\n```\n"}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        failed = failed_target("model.py", Error(kind="target", message="it needs configs", hint=hint))
        request = Request(target="model.py", path=str(tmp_path / "model.py"), root=str(tmp_path), settings=Settings())
        tried = {request.path: [attempt(tmp_path, *each) for each in attempts]}
        (workload,) = with_commands([failed], [request], tried, cache=False)
        return workload.error.hint

    return written


def test_the_projects_own_command_comes_before_a_declaration(hint_of):
    assert hint_of(DECLARE) == f"Type memlint run train.py --config configs/base.yaml. Or: {DECLARE}"


def test_what_the_environment_lacks_comes_before_the_command(hint_of):
    install = "Install einops where memlint runs: pip install einops"
    assert hint_of(install) == (
        f"{install} Then, or in its place, type memlint run train.py --config configs/base.yaml."
    )


def test_without_a_script_the_hint_stays(hint_of):
    assert hint_of(DECLARE, has_script=False) == DECLARE


def test_of_tried_commands_the_one_that_comes_furthest_is_named_with_what_it_lacks(hint_of, tmp_path):
    nothing = ended("the script raised KeyError: 'HOME'")
    whole = ended("the script raised ValueError: no labels", tmp_path / "model.py", hint="Put them there.")
    hint = hint_of("", attempts=[("first.py", nothing), ("second.py", whole), ("third.py", None)])
    assert hint == (
        "Put them there. Then type memlint run second.py --depth 2, which comes furthest: "
        "the script raised ValueError: no labels."
    )


def test_packages_that_are_missing_come_before_the_command_that_needs_them(hint_of, tmp_path):
    without = ended("it called its model", tmp_path / "other.py", lacks="Install a and b: pip install a b.")
    hint = hint_of("", attempts=[("train.py", without)])
    assert hint.startswith("Install a and b: pip install a b. Then type memlint run train.py --depth 2,")


def test_what_a_run_of_the_command_has_ended_in_counts(hint_of, tmp_path):
    built = ended("it called its model", tmp_path / "model.py")
    hint = hint_of("", attempts=[("train.py", built, WorkloadError("fast is used, but missing", "Install fast."))])
    assert (
        hint
        == "Install fast. Then type memlint run train.py --depth 2, which comes furthest: fast is used, but missing."
    )


def test_a_command_whose_arguments_are_refused_is_never_named(hint_of):
    refused = ended("the script called sys.exit(2)", is_refusal=True)
    assert hint_of(DECLARE, attempts=[("train.py", refused)]) == DECLARE
    assert hint_of("", attempts=[("train.py", refused), ("slow.py", None)]) == "Type memlint run slow.py --depth 2."


def test_beside_what_the_environment_lacks_no_command_is_named_that_fails_too(hint_of, tmp_path):
    install = "Install einops where memlint runs: pip install einops"
    failing = ended("the script raised ValueError: no labels", tmp_path / "model.py")
    assert hint_of(install, attempts=[("train.py", failing)]) == install
    assert hint_of(install, attempts=[("slow.py", None)]) == (
        f"{install} Then, or in its place, type memlint run slow.py --depth 2."
    )


def test_a_script_that_may_not_lead_to_the_file_comes_less_far_than_one_that_does(hint_of, tmp_path):
    own, other = ended("the script raised KeyError: 'a'"), ended("the script raised ValueError: b", tmp_path / "net.py")
    hint = hint_of("", attempts=[("own.py", own), ("other.py", other, None, False)])
    assert "memlint run own.py --depth 2, which comes furthest" in hint


def test_a_script_that_nobody_types_and_that_may_lead_elsewhere_comes_less_far_than_one_that_evaluates(hint_of):
    other, own = ended("the script raised KeyError: 'a'"), ended("the script raised KeyError: 'b'")
    hint = hint_of("", attempts=[("train.py", other, None, False), ("export.py", own, None, True, False)])
    assert hint.startswith("Mend what ends the script. Then type memlint run export.py --depth 2, which comes furthest")


def test_a_package_that_ends_the_script_is_named_once(hint_of, tmp_path):
    install = "Install gates where memlint runs: pip install gates; or run memlint in the project's environment."
    lacking = ended("the script raised ModuleNotFoundError", tmp_path / "model.py", hint=install, lacks=install)
    assert hint_of("", attempts=[("train.py", lacking)]).count("Install") == 1
