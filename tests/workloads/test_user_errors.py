"""Messages for errors that user code raised."""

import argparse
import importlib
import os
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import torch

from memlint.base.errors import WorkloadError
from memlint.workloads import user_errors
from memlint.workloads.construction.construct import complete
from memlint.workloads.discover import find_workloads
from memlint.workloads.environment_variables import made_up_value
from memlint.workloads.user_errors import describe, missing_package, of_environment, what_to_do

SENTENCE = "The 'requests' distribution was not found and is required by this application. \nTry: pip install x -U"
"""The error that transformers raises in the place of a name, in `utils/versions.py`."""

NOT_MET = "Requirement 'jsonargparse[signatures]>=4.27.7' not met. HINT: Try running `pip install -U 'jsonargparse'`"
"""The error of LightningCLI: that of a RequirementCache, in `lightning_utilities/core/imports.py`."""


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (PackageNotFoundError(SENTENCE), "requests"),
        (PackageNotFoundError("flash-attn"), "flash-attn"),
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "a.b"),
        (PackageNotFoundError("it is nowhere"), ""),
        (ModuleNotFoundError(NOT_MET), "jsonargparse"),
        (ValueError("'requests'"), ""),
        (ImportError("4-bit needs kernels_of_test: `pip install -U kernels-of-test>=0.46`"), "kernels-of-test"),
        (ImportError('FileSystem requires "requests_of_test" and "b" to be installed'), "requests_of_test"),
        (ImportError("worlds_of_test python package was not found. Please install it"), "worlds_of_test"),
        (ImportError("the package was not found"), ""),
        (ImportError("numpy is too old: pip install -U numpy"), ""),
    ],
)
def test_a_package_that_is_missing_is_named_alone(error, name):
    assert missing_package(error) == name
    assert what_to_do(error).startswith(f"Install {name.partition('.')[0]} where memlint runs, ") is bool(name)


def test_a_variable_that_is_not_set_is_named_with_what_to_type(monkeypatch):
    monkeypatch.setattr(user_errors, "_typed", ["memlint check FILE", ""])
    user_errors.answer_to("memlint run", "train.py --lr 3")
    monkeypatch.delenv("ENTITY_OF_TEST", raising=False)
    with pytest.raises(KeyError) as caught:
        os.environ["ENTITY_OF_TEST"]
    assert what_to_do(caught.value).endswith(": ENTITY_OF_TEST=VALUE memlint run train.py --lr 3")
    message = "KeyError raised while resolving interpolation: \"Environment variable 'WANDB_NAME' not found\""
    assert what_to_do(RuntimeError(message)).endswith(": WANDB_NAME=VALUE memlint run train.py --lr 3")
    with pytest.raises(KeyError) as caught:
        {}["ENTITY_OF_TEST"]
    assert what_to_do(caught.value) == ""
    assert user_errors.command_with("--ranks 2") == "memlint run --ranks 2 train.py --lr 3"


def test_all_variables_of_a_file_are_named_with_the_values_that_the_project_gives_them(tmp_path, monkeypatch):
    names = ("FIRST_OF_TEST", "SECOND_OF_TEST", "THIRD_OF_TEST")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(user_errors, "_typed", ["memlint check model.py", ""])
    (tmp_path / "README.md").write_text("Type `export SECOND_OF_TEST=64`.\n")
    sets = "os.environ['FIRST_OF_TEST'] = '1'\nos.environ['THIRD_OF_TEST'] = str(3 * 4)\n"
    (tmp_path / "train.py").write_text(f"import os\n{sets}")
    (tmp_path / "model.py").write_text("import os\n" + "".join(f"{each} = os.environ['{each}']\n" for each in names))
    with pytest.raises(KeyError) as caught:
        runpy.run_path(str(tmp_path / "model.py"))
    hint = what_to_do(caught.value)
    assert hint.endswith("FIRST_OF_TEST=1 SECOND_OF_TEST=64 THIRD_OF_TEST=VALUE memlint check model.py")
    assert f"FIRST_OF_TEST as in {tmp_path / 'train.py'}:2" in hint
    assert f"THIRD_OF_TEST as in {tmp_path / 'train.py'}:3" in hint


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (RuntimeError("operator torchvision::deform_conv2d does not exist"), "torchvision's compiled operators do not"),
        (
            ImportError("cannot import name 'x' from 'timm.y'", name="timm.y"),
            f"timm {version('timm')} is installed, and no file",
        ),
        (
            ModuleNotFoundError("No module named 'torch._six'", name="torch._six"),
            "memlint runs with torch 2.10 or later",
        ),
        (FileNotFoundError(2, "No such file or directory", "pretrained/vit.npz"), "Put pretrained/vit.npz there"),
        (RuntimeError("operator aten::conv2d does not exist"), ""),
        (RuntimeError("shape '[2, 3]' is invalid for input of size 4"), ""),
    ],
)
def test_an_error_of_the_environment_is_told_from_one_of_inputs(error, hint):
    assert of_environment(error).startswith(hint)
    assert bool(of_environment(error)) is bool(hint)


def test_what_a_library_looks_for_on_the_hub_is_to_be_downloaded_once():
    lacking = type("LocalEntryNotFoundError", (FileNotFoundError,), {})
    error = OSError("We could not connect to the hub")
    error.__cause__ = lacking("Cannot find the requested files in the disk cache")
    assert what_to_do(error).endswith(
        "downloads something: let it do so once without memlint, which then finds what it has saved."
    )


CALLS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        {line}
        return self.layer(x)
"""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("open('weights.bin')", "Put weights.bin there"),
        ("from torch.nn import Nothing", "memlint runs with torch 2.10 or later"),
    ],
)
def test_an_error_of_the_environment_is_never_an_advice_to_declare_inputs(write, line, hint):
    path = write(CALLS.format(line=line))
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError, match="Net cannot be called here") as caught:
        complete(workload)
    assert caught.value.hint.startswith(hint)


def test_a_file_that_works_when_it_is_imported_may_be_a_script(write):
    path = write("raise OSError('cannot load model org/name')\nclass Net(nn.Module): pass\n")
    with pytest.raises(WorkloadError, match="cannot be imported: OSError") as caught:
        find_workloads(str(path), path.parent)
    assert caught.value.hint.startswith(f"If it is a script, type memlint run {path}")


OPTIONAL = "try:\n    import absent_kernels\nexcept ImportError:\n    pass\n"
USES = OPTIONAL + "@absent_kernels.jit\ndef fast(x): return x\n"


def test_a_package_that_is_tried_and_then_used_is_to_be_installed_and_not_the_projects_own_file(write):
    (path := write(CALLS.format(line="x = kernels.fast(x)"))).write_text("import kernels\n" + path.read_text())
    path.with_name("kernels.py").write_text(USES)
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError, match="cannot be imported: NameError") as caught:
        complete(workload)
    assert caught.value.hint.startswith("Install absent_kernels where memlint runs")


POLICY = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(4, 2)
    def forward(self):
        raise NotImplementedError
    def act(self, state):
        return self.actor(state)
"""


def test_a_model_that_is_called_by_other_methods_than_forward_is_left_to_its_script(write):
    path = write(POLICY)
    (workload,) = find_workloads(f"{path}::Policy", path.parent).workloads
    with pytest.raises(
        WorkloadError, match=r"Policy\.forward takes no inputs: a program calls it by methods"
    ) as caught:
        complete(workload)
    assert caught.value.hint == "Give the script that calls them: memlint run SCRIPT.py"


def test_an_option_that_a_script_does_not_have_is_told_which_one_was_meant():
    parser = argparse.ArgumentParser()
    parser.add_argument("-data")
    parser.add_argument("-dataset-name")
    parser.add_argument("--epochs")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["-data", "x", "--dataset-name", "stl10", "--epochs", "1"])
    assert user_errors.is_of_parser(caught.value)
    assert user_errors.meant_options(caught.value) == "The script has -dataset-name for --dataset-name."
    with pytest.raises(SystemExit) as own:
        sys.exit(2)
    assert not user_errors.is_of_parser(own.value)
    assert not user_errors.meant_options(own.value)


def test_operators_of_torchvision_that_do_not_load_are_of_the_environment():
    text = "Could not run 'torchvision::nms' with arguments from the 'CPU' backend."
    hint = user_errors.of_environment(NotImplementedError(text))
    assert f"do not load beside torch {torch.__version__}" in hint
    assert "pip install --force-reinstall --no-deps torchvision" in hint


def test_an_exception_that_torchscript_raises_anew_is_told_without_its_code_and_stack() -> None:
    error = RuntimeError(
        "The following operation failed in the TorchScript interpreter.\n"
        'Traceback of TorchScript (most recent call last):\n  File "<string>", line 11, in <backward op>\n'
        "            return b == a\n            ~~~~~~ <--- HERE\n"
        "RuntimeError: ValueError: too many kernels\n\nAt:\n  /x/recorded.py(84): began\n  /x/dispatch.py(39): run\n"
    )
    assert describe(error) == "ValueError: too many kernels"


def test_what_is_missing_is_installed_with_the_extras_that_are_asked_for():
    assert "pip install 'jsonargparse[signatures]';" in what_to_do(ModuleNotFoundError(NOT_MET))


@pytest.mark.parametrize(
    ("asked", "there", "is_named"),
    [
        ("a.yml", "a.yaml", True),
        ("A.json", "a.json", True),
        ("zinc-grit.yaml", "zinc-grit-rrwp.yaml", True),
        ("config/a.yml", "configs/a.yml", True),
        ("config/a.yml", "data/a.yml", False),
        ("a.json", "a", False),
        ("a.yml", "b.yml", False),
        ("a.h5", "a.h5", False),
    ],
)
def test_a_file_with_another_spelling_of_its_name_is_named(tmp_path, asked, there, is_named):
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).touch()
    error = FileNotFoundError(2, "No such file or directory", str(tmp_path / asked))
    hint = of_environment(error)
    assert of_environment(FileNotFoundError(tmp_path / asked)) == hint
    assert (f"{tmp_path / there} is: type that" in hint) is is_named, hint


def test_a_download_that_is_refused_is_to_be_done_before():
    error = OSError("<urlopen error: memlint run allows no connection to another machine, such as github.com>")
    assert "let it do so once without memlint" in what_to_do(error)


def test_an_error_that_was_raised_from_another_is_about_what_that_one_lacks():
    """As hydra raises one of its own where the class of a `_target_` cannot be imported."""
    missing = ModuleNotFoundError("No module named 'kernels_of_test'", name="kernels_of_test")
    error = RuntimeError("Error locating target 'models.Net', set env var HYDRA_FULL_ERROR=1")
    error.__cause__ = ImportError("Error loading 'models.Net'")
    error.__cause__.__cause__ = missing
    assert "pip install kernels-of-test" in what_to_do(error)


def raised_in(folder, text, kind=TypeError):
    """The error of a file with this text."""
    (folder / "train.py").write_text(text)
    with pytest.raises(kind) as caught:
        runpy.run_path(str(folder / "train.py"))
    return caught.value


def test_a_setting_of_a_config_without_a_value_is_named_where_the_program_uses_it(tmp_path, monkeypatch):
    config = tmp_path / "train.yaml"
    config.write_text("train:\n  folder:\n    name: a\n  exp_dir: # where results go\n  batch: 4\n")
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", str(config)])
    error = raised_in(
        tmp_path, "import os\ndef begin(exp_dir, folder=None):\n  os.mkdir(exp_dir, folder)\nbegin(None)\n"
    )
    assert what_to_do(error) == f"{config}:4 gives exp_dir no value: give it one."


def test_a_place_of_a_config_in_a_package_without_a_value_is_named_where_each_try_failed(tmp_path, monkeypatch):
    config = tmp_path / "package" / "configs" / "train.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("batch: null\ndata:\n  image_folder: null  # PATH to the images\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "-c", "configs/train.yaml"])
    text = """
def item(folder=None):
    for _ in range(2):
        try:
            image = folder + "/a.png"
        except Exception:
            pass
    return image
item()
"""
    hint = what_to_do(raised_in(tmp_path, text, UnboundLocalError))
    assert hint == f"{config}:3 gives image_folder no value: give it one."


def test_a_variable_without_which_a_program_goes_on_with_none_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DATA_OF_TEST", raising=False)
    text = "import os\nplace = os.environ.get('DATA_OF_TEST')\nos.listdir(place + '/train')\n"
    assert "DATA_OF_TEST=VALUE" in what_to_do(raised_in(tmp_path, text))
    monkeypatch.setenv("DATA_OF_TEST", "data")
    assert "DATA_OF_TEST" not in what_to_do(raised_in(tmp_path, text.replace("place +", "None +")))


def test_a_variable_that_a_function_of_the_program_misses_is_named(tmp_path):
    text = """import os

def read(name):
    if name not in os.environ:
        raise KeyError(f"{name} not defined and no default value is present!")

read("PROJECT_OF_TEST")
"""
    assert "PROJECT_OF_TEST=VALUE" in what_to_do(raised_in(tmp_path, text, KeyError))
    assert made_up_value("PROJECT_ROOT") == str(Path.cwd())
    assert made_up_value("DATA_ROOT") == "data_root"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Requested 4 processes, but only 1 GPUs are available.", 4),
        ("DEVICE_NUM = 4, but torch.cuda.device_count() = 1", 4),
        ("not enough GPUs", 2),
    ],
)
def test_a_program_that_wants_several_gpus_is_to_be_run_with_ranks(text, ranks):
    assert f" --ranks {ranks}" in what_to_do(ValueError(text))
    assert "--ranks" not in what_to_do(RuntimeError("this op runs on 2 GPUs"))


def test_a_class_of_a_config_that_is_elsewhere_now_is_named_with_the_override(tmp_path, monkeypatch):
    (tmp_path / "folds_of_test/models").mkdir(parents=True)
    (tmp_path / "folds_of_test/__init__.py").touch()
    (tmp_path / "folds_of_test/models/first.py").write_text("class Fold(object):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("folds_of_test")
    text = "Error locating target 'folds_of_test.model.Fold', set env var HYDRA_FULL_ERROR=1.\nfull_key: net"
    now = "folds_of_test.models.first.Fold"
    error, other = RuntimeError(text), RuntimeError(text)
    error.__cause__ = ModuleNotFoundError("No module named 'folds_of_test.model'", name="folds_of_test.model")
    other.__cause__ = ModuleNotFoundError("No module named 'kernels_of_test'", name="kernels_of_test")
    assert what_to_do(error) == f"It is {now} now: type net._target_={now} behind the command."
    assert "pip install kernels-of-test" in what_to_do(other)
    del sys.modules["folds_of_test"]


def test_options_without_a_value_are_named_where_a_file_has_no_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["main.py", "--root=", "--lr=1", "--out="])
    with pytest.raises(FileNotFoundError) as raised:
        os.stat("")  # noqa: PTH116 -- as a program has it
    assert "Give --root=, --out= a value" in of_environment(raised.value)


def test_what_pytorch_refuses_on_any_device_is_told_so():
    middle = torch.ones(3, requires_grad=True).mul(2).relu()
    middle.mul_(2)
    with pytest.raises(RuntimeError) as raised:
        middle.sum().backward()
    assert "refuses it on any device: compute what comes behind that operation without inplace" in what_to_do(
        raised.value
    )


def test_a_number_that_numpy_no_longer_counts_round_names_the_version_that_does():
    with pytest.raises(OverflowError, match="out of bounds for uint8") as caught:
        np.zeros(2, np.uint8)[0] = -1
    assert what_to_do(caught.value).endswith("type pip install 'numpy<2'.")
