"""Programs that were written for older versions of their packages than are installed."""

from __future__ import annotations

import argparse
import builtins
import collections
import dataclasses
import importlib.metadata
import random
import runpy
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import scipy.special  # noqa: F401 -- while NumPy has no names of before, which it would list
import torch
import yaml

from memlint.base.after_import import after_import
from memlint.targets.script import Amendment
from memlint.workloads.older_versions import applying, learning
from memlint.workloads.older_versions import names as known_names
from memlint.workloads.older_versions.learning import amendment_of
from memlint.workloads.older_versions.names import place_of
from memlint.workloads.placeholders.absent_packages import AbsentError

_PACKAGE = {
    "__init__.py": "__version__ = '2.0'\n",
    "layers/__init__.py": "",
    "layers/helpers.py": "def to_pair(x):\n    return (x, x)\n",
    "layers/drop.py": "class DropAway:\n    pass\n",
    "trainer/__init__.py": "",
    "trainer/validator.py": """
        def _verify_loop_configurations(trainer):
            if callable(getattr(trainer.lightning_module, "training_epoch_end", None)):
                raise NotImplementedError("Support for `training_epoch_end` has been removed in v2.0.0.")
    """,
    "trainer/trainer.py": """
        from boxes.trainer.validator import _verify_loop_configurations

        class Trainer:
            def __init__(self, accelerator="auto", strategy="auto", devices=1):
                self.devices = devices
                if devices > 1:
                    numbers = list(range(devices))
                    raise RuntimeError(f"You requested gpu: {numbers}\\n But your machine only has: [0]")
                if accelerator not in ("auto", "gpu"):
                    raise ValueError(f"You selected an invalid accelerator name: `accelerator={accelerator!r}`.")
                self.accelerator, self.strategy = accelerator, strategy

            def _run_sanity_check(self):
                getattr(self.lightning_module, "validation_step", str)()

            def fit(self, model):
                self.lightning_module = model
                self._run_sanity_check()
                _verify_loop_configurations(self)
                return model.training_step()
    """,
    "trainer/call.py": """
        def _call_lightning_module_hook(trainer, hook_name, *args):
            return getattr(trainer, hook_name)(*args)

        def begin(model):
            return _call_lightning_module_hook(model, "on_train_batch_start", "batch", 3)
    """,
    "settings.py": """
        from abc import ABC, abstractmethod
        from dataclasses import dataclass

        class Transform(ABC):
            @abstractmethod
            def forward(self, x): ...

        @dataclass
        class Settings:
            report_to: str | None = "none"

            def __post_init__(self):
                if self.report_to is None:
                    raise ValueError(f"{self.report_to} is not supported, only none, wandb are supported.")
                self.loggers = [self.report_to]
    """,
    "model.py": """
        class Base:
            def begin(self):
                return self.tied_weights

        class Norm:
            drop = len

        class EfficientNetFeatures:
            bn1 = Norm()

        class HyperparametersMixin:
            def _set_hparams(self, given):
                self._hparams = dict(given)

            @property
            def hparams(self):
                return self._hparams
    """,
    "series.py": """
        class Series(list):
            def apply(self, func, args=(), **kwargs):
                return [func(each, *args, **kwargs) for each in self]
    """,
    "training.py": """
        import inspect

        class TrainingArguments:
            def __init__(self, output_dir, eval_strategy='no', warmup_steps=0):
                self.eval_strategy, self.warmup_steps = eval_strategy, warmup_steps

        class Trainer:
            def __init__(self, max_epochs=1, devices='auto', precision=32):
                self.devices, self.precision = devices, precision

        def load(path):
            return path

        def create(entry, cfg_overlay=None, cache=None, **kwargs):
            return entry(cfg_overlay=cfg_overlay, cache=cache, **kwargs)

        def _validate_multiple_optimizers_support(optimizers, model):
            takes_number = "optimizer_idx" in inspect.signature(model.training_step).parameters
            if model.automatic_optimization and (takes_number or len(optimizers) > 1):
                raise RuntimeError("Training with multiple optimizers is only supported with manual optimization.")

        def fit(model):
            _validate_multiple_optimizers_support(model.optimizers(), model)
            model.training_step("batch", 0)

        def build_model_with_cfg(kind, pretrained_cfg=None, **kwargs):
            model = kind(**kwargs)
            model.cfg = pretrained_cfg
            return model
    """,
}
"""A package of another version than the tests' programs ask for: parts have moved, names and arguments are gone."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script again after each change that it needs, as `memlint run` does in new processes; its variables."""
    for name, text in _PACKAGE.items():
        file = tmp_path / "site-packages" / "boxes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    (tmp_path / "train").mkdir()
    own = {module: set(vars(module)) for module in (collections, np, torch._utils)}
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(applying, "_made", set())
    monkeypatch.setattr(applying, "_texts", {})
    monkeypatch.setattr(applying, "_gone", set())
    monkeypatch.setattr(argparse._ActionsContainer, "_handle_conflict_error", _CONFLICT)
    monkeypatch.setattr(builtins, "__build_class__", builtins.__build_class__)
    monkeypatch.setattr(argparse.Namespace, "__delattr__", object.__delattr__)

    def run(text, *arguments):
        script = tmp_path / "train" / "train.py"
        script.write_text(textwrap.dedent(text))
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])

        def once():
            try:
                return runpy.run_path(str(script), run_name="__main__")
            except SystemExit as error:
                if amendment_of(error) is None:
                    raise
                applying.amend(amendment_of(error))
                return once()

        return applying.with_amendments(once)

    yield run
    for name in [each for each in sys.modules if each.partition(".")[0] == "boxes" or each.startswith("torch._six")]:
        del sys.modules[name]
    for module, names in own.items():
        for name in set(vars(module)) - names:
            if f"{module.__name__}.{name}" not in sys.modules:  # which NumPy imports when it is first asked for
                delattr(module, name)


_CONFLICT = argparse._ActionsContainer._handle_conflict_error


def texts():
    return [each.text for each in applying.assumptions()]


def test_a_module_that_has_moved_inside_its_package_is_found(run):
    variables = run("from boxes.models.layers.helpers import to_pair\nimport boxes\npair = to_pair(3)\n")
    assert variables["pair"] == (3, 3)
    assert texts() == ["boxes has no boxes.models.layers.helpers.to_pair: it is boxes.layers.helpers.to_pair"]


def test_a_module_of_what_was_a_package_and_is_a_module_now_is_found(run):
    assert run("from boxes.layers.helpers.pairs import to_pair; kept = to_pair(1)")["kept"] == (1, 1)
    assert texts() == ["boxes has no boxes.layers.helpers.pairs.to_pair: it is boxes.layers.helpers.to_pair"]


def test_a_name_that_has_moved_to_another_module_is_found_by_its_definition(run):
    variables = run("import boxes\nfrom boxes.layers.helpers import DropAway\nkind = DropAway.__module__\n")
    assert variables["kind"] == "boxes.layers.drop"


def test_a_name_that_its_module_says_was_renamed_is_found(run, tmp_path, monkeypatch):
    (tmp_path / "site-packages" / "boxes" / "lids.py").write_text(
        "def FlatLid():\n    return 7\n"
        "def __getattr__(name):\n    raise AttributeError(f'{name!r} has been renamed with `lids.FlatLid`')\n"
    )
    monkeypatch.setattr(known_names, "NAMES", {**known_names.NAMES, "boxes.lids.Lid": "boxes.lids.FlatLid"})
    assert run("import boxes.lids\nkept = boxes.lids.Lid()")["kept"] == 7


def test_what_another_installed_package_asks_for_is_found_too(run, tmp_path):
    other = tmp_path / "site-packages" / "crates"
    other.mkdir()
    (other / "__init__.py").write_text("import numpy\nfrom boxes.helpers import to_pair\nBEST = numpy.Inf\n")
    try:
        made = run("from crates import BEST, to_pair\npair = to_pair(2)")
    finally:
        sys.modules.pop("crates", None)
    assert (made["pair"], made["BEST"]) == ((2, 2), float("inf"))


def test_a_name_that_is_nowhere_can_be_imported_and_fails_when_it_is_used(run, tmp_path):
    assert run("import boxes\nfrom boxes.layers.helpers import to_octet\ndone = True\n")["done"]
    with pytest.raises(AbsentError) as caught:
        run("import boxes\nfrom boxes.layers.helpers import to_octet\nto_octet(1)\n")
    assert "boxes.layers.helpers.to_octet is used, but boxes has no boxes.layers.helpers.to_octet" in str(caught.value)


def test_a_name_of_typing_that_came_with_a_star_is_there(run):
    assert run("from numpy.linalg import *\nfrom numpy import *\nkind = Union[int, str]\n")["kind"] == int | str


def test_a_program_that_catches_the_import_error_goes_on_by_itself(run):
    variables = run("""
        try:
            from boxes.models.layers.helpers import to_pair
        except ImportError:
            to_pair = None
    """)
    assert variables["to_pair"] is None
    assert texts() == []


def test_what_pytorch_python_and_numpy_have_dropped_is_what_stands_for_it_now(run):
    variables = run("""
        from torch._six import container_abcs, string_classes, inf
        from torch._utils import _accumulate
        from collections import Mapping
        import numpy as np
        sums, zero, kinds = list(_accumulate([1, 2])), np.float(0), (np.bool(1), np.product([2, 3]), np.Inf == inf)
        is_text = isinstance("", string_classes) and issubclass(dict, container_abcs.Mapping) and Mapping is not None
        ignored = np.RankWarning, np.VisibleDeprecationWarning
    """)
    assert {each.__module__ for each in variables["ignored"]} == {"numpy.exceptions"}
    assert (variables["sums"], variables["zero"], variables["kinds"]) == ([1, 3], 0.0, (True, 6, True))
    assert variables["is_text"]


@pytest.mark.parametrize("module", ["resnet", "vgg", "densenet"])
def test_the_addresses_of_weights_that_torchvision_had_can_be_read_and_changed(module):
    place = place_of(f"torchvision.models.{module}", "model_urls")
    assert place is not None
    place.value[f"{module}19"] = place.value[f"{module}19"].replace("https://", "http://")
    assert place.value[f"{module}19"].startswith("http://")
    assert place.value[f"{module}18"].startswith("https://")


def test_arguments_with_another_name_are_handed_on_and_those_without_a_meaning_for_memory_left_out(run):
    variables = run("""
        from boxes.training import Trainer, TrainingArguments, load
        arguments = TrainingArguments("out", evaluation_strategy="steps", warmup_ratio=0.1, save_safetensors=True)
        trainer = Trainer(gpus=2, weights_summary="full")
        loaded = load("a", use_auth_token=True)
    """)
    arguments, trainer = variables["arguments"], variables["trainer"]
    assert (arguments.eval_strategy, arguments.warmup_steps, trainer.devices) == ("steps", 0.1, 2)
    assert variables["loaded"] == "a"
    assert "boxes has no argument evaluation_strategy of TrainingArguments: it is taken as eval_strategy" in texts()
    assert "boxes has no argument use_auth_token of load: it is left out" in texts()


@pytest.mark.parametrize("argument", ["load_in_8bit", "max_seq_length", "gradient_checkpointing"])
def test_an_argument_that_decides_on_bytes_is_never_left_out(run, argument):
    with pytest.raises(TypeError, match=argument):
        run(f"from boxes.training import load\nload('a', {argument}=1)\n")


def test_an_argument_that_the_users_own_function_does_not_have_is_an_error(run):
    with pytest.raises(TypeError, match="verbose"):
        run("def load(path):\n    return path\n\nload('a', verbose=1)\n")


def test_an_argument_that_only_a_newer_package_passes_does_not_reach_the_users_class(run):
    variables = run("""
        from boxes.training import create
        class Net:
            def __init__(self, width=3):
                self.width = width
        def make_net(**named):
            return Net(**named)
        net = create(make_net, legacy=False)
    """)
    assert variables["net"].width == 3
    text = "Net.__init__ is not given {}, which an installed package of another version passes"
    assert texts() == [text.format(each) for each in ("cfg_overlay", "cache", "legacy")]
    with pytest.raises(TypeError, match="legacy"):
        run("from boxes.training import create\ncreate(lambda cfg_overlay, cache: 0, legacy=True)\n")


def test_the_trainer_gives_its_options_to_a_parser_as_in_version_1(run):
    variables = run(
        """
        import argparse
        from boxes.training import Trainer
        parser = Trainer.add_argparse_args(argparse.ArgumentParser())
        parser.add_argument("--name")
        args = parser.parse_args()
        trainer = Trainer.from_argparse_args(args, max_epochs=3)
        """,
        *("--gpus", "0,", "--precision", "16", "--name", "a"),
    )
    assert (variables["trainer"].devices, variables["trainer"].precision, variables["args"].name) == ("0,", 16, "a")


def test_a_model_and_a_trainer_of_version_1_run_without_the_hook_and_with_the_strategy(run):
    variables = run("""
        from boxes.trainer.trainer import Trainer
        class Model:
            def training_step(self):
                return "trained"
            def training_epoch_end(self, outputs):
                raise AssertionError
        trainer = Trainer(accelerator="ddp")
        done = trainer.fit(Model())
    """)
    trainer = variables["trainer"]
    assert (variables["done"], trainer.accelerator, trainer.strategy) == ("trained", "auto", "ddp")


def test_a_partial_that_hands_on_what_its_class_no_longer_takes_is_called_without(run):
    variables = run("""
        import functools
        from boxes.training import TrainingArguments
        make = functools.partial(TrainingArguments, "out", evaluation_strategy="no")
        arguments = {"given": make()}["given"]
    """)
    assert variables["arguments"].eval_strategy == "no"


def test_a_class_may_lack_a_method_that_its_installed_base_has_no_body_for(run):
    variables = run("""
        from boxes.settings import Transform

        class Turned(Transform):
            def __call__(self, x):
                return -x

        class Data:
            def __init__(self, transform=Turned()):
                self.transform = transform

        value = Data().transform(3)
    """)
    assert variables["value"] == -3


def test_a_package_that_cannot_be_imported_is_done_without_until_it_is_used(run, tmp_path, monkeypatch):
    package = tmp_path / "site-packages/graphs_of_before"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from graphs_of_before import core\nraise OSError('libgraphs.so is not there')\n"
    )
    (package / "core.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    variables = run("import graphs_of_before\nfrom graphs_of_before.core import Graph")
    reason = "graphs_of_before cannot be imported: OSError: libgraphs.so is not there"
    with pytest.raises(AbsentError, match=f"graphs_of_before.core.Graph is used, but {reason}") as caught:
        variables["Graph"](3)
    assert caught.value.hint.startswith("Install a version of graphs_of_before, or of what it imports, that fits")


def test_a_package_of_the_project_is_taken_in_place_of_the_plain_folder_of_its_name(run, tmp_path, monkeypatch):
    inner = tmp_path / "train/folder_of_parts/folder_of_parts"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("WIDTH = 3")
    monkeypatch.syspath_prepend(str(tmp_path / "train"))
    variables = run("from folder_of_parts import WIDTH")
    assert variables["WIDTH"] == 3


def test_an_object_may_be_the_default_of_a_field_as_before_python_3_11(run, monkeypatch):
    monkeypatch.setattr(dataclasses, "_get_field", dataclasses._get_field)
    variables = run("""
        from dataclasses import dataclass, field

        @dataclass
        class Part:
            width: int = 3

        @dataclass
        class Whole:
            part: Part = Part(5)
            other: Part = field(default=Part(7))

        whole = Whole()
    """)
    assert (variables["whole"].part.width, variables["whole"].other.width) == (5, 7)
    with pytest.raises(ValueError, match="mutable default <class 'list'>"):
        dataclasses.make_dataclass("Other", [("parts", list, dataclasses.field(default=[]))])


def test_a_name_that_is_gone_counts_where_a_script_raises_an_error_of_its_own_for_it(run):
    variables = run("""
        import numpy

        def kind():
            try:
                return numpy.float
            except Exception:
                raise NotImplementedError("not recognized")

        made = kind()(3)
    """)
    assert variables["made"] == 3.0


def test_yaml_is_loaded_without_a_loader_as_before_pyyaml_6(run, monkeypatch):
    for name in ("load", "load_all"):
        monkeypatch.setattr(yaml, name, getattr(yaml, name))
    variables = run("""
        import yaml
        loaded = yaml.load("width: 3"), yaml.load("depth: 2", yaml.SafeLoader), [*yaml.load_all("a: 1")]
    """)
    assert variables["loaded"] == ({"width": 3}, {"depth": 2}, [{"a": 1}])


def test_a_seed_may_be_a_number_of_numpy_as_before_python_3_11(run, monkeypatch):
    monkeypatch.setattr(random, "seed", random.seed)
    variables = run("""
        import random
        import numpy
        random.seed(numpy.uint32(3))
        first = random.random()
        random.seed(3)
        same = random.random() == first
    """)
    assert variables["same"]


def test_a_trainer_trains_though_its_check_of_validation_fails(run):
    variables = run("""
        from boxes.trainer.trainer import Trainer
        class Model:
            def training_step(self):
                return "trained"
            def validation_step(self):
                return [][0]
        done = Trainer().fit(Model())
    """)
    assert variables["done"] == "trained"
    assert texts() == ["Lightning's check of validation before the training fails here: it is left out"]


@pytest.mark.parametrize(
    "within", ["{}", "try:\n    {}\nexcept Exception as error:\n    raise OSError(repr(error)) from error"]
)
def test_a_trainer_that_wants_several_gpus_has_the_one_that_is_there(run, within):
    made = within.format("trainer = Trainer(devices=2)")
    trainer = run(f"from boxes.trainer.trainer import Trainer\n{made}\n")["trainer"]
    assert (trainer.devices, texts()) == (1, ["Lightning's Trainer is to use the GPUs 0, 1: there is one of them"])


def test_a_checkpoint_with_more_than_weights_is_loaded_as_before(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "")
    torch.save({"args": argparse.Namespace(lr=0.5)}, tmp_path / "model.pt")
    variables = run(f"import torch\nlr = torch.load({str(tmp_path / 'model.pt')!r})['args'].lr\n")
    assert variables["lr"] == 0.5


def test_an_option_that_two_parts_of_a_parser_have_is_the_later_ones(run):
    variables = run("""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--use_cache", default=1)
        parser.add_argument("--use_cache", default=2)
        args = parser.parse_args([])
        value = args.use_cache
        for each in ("first of two", "second of two"):
            del args.use_cache
    """)
    assert variables["value"] == 2


def test_the_launchers_rank_has_the_name_that_the_script_knows(run):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', type=int)\n"
    variables = run(f"{text}args = parser.parse_args()\n", "--local-rank=3")
    assert variables["args"].local_rank == 3


def test_options_that_nobody_has_had_stay_an_error(run):
    with pytest.raises(SystemExit):
        run("import argparse\nargparse.ArgumentParser().parse_args()\n", "--lerning_rate=1")


def test_options_of_an_older_trainer_are_taken_as_the_present_ones(monkeypatch):
    monkeypatch.setattr(applying, "_texts", {})
    words = ["--evaluation_strategy", "no", "--fsdp_transformer_layer_cls_to_wrap", "Block", "--overwrite_output_dir"]
    for option in words[::2]:
        words = applying._without_option(words, Amendment("option", option, "TrainingArguments"))
    assert words == ["--eval_strategy", "no", "--fsdp_config", '{"transformer_layer_cls_to_wrap": ["Block"]}']


def test_pkg_resources_is_there_where_setuptools_has_it_no_more(run):
    text = """
        import pkg_resources as pkg
        is_new = pkg.parse_version("2.10.0") > pkg.parse_version("2.9")
        torch = pkg.get_distribution("torch").version
        try:
            pkg.require("torch>=1000")
        except pkg.VersionConflict:
            is_old = True
        folder = pkg.resource_filename("torch", "nn")
        from pkg_resources import packaging
        is_later = packaging.version.parse("2.10") > packaging.version.parse("2.9")
    """
    variables = run(textwrap.dedent(text))
    del sys.modules["pkg_resources"]  # of which pytest asks more
    assert variables["is_new"]
    assert variables["is_later"]
    assert variables["is_old"]
    assert variables["torch"] == importlib.metadata.version("torch")
    assert Path(variables["folder"]).is_dir()


def test_a_package_under_the_name_that_a_distribution_gave_it_is_the_one_that_stands_for_it(run):
    variables = run("import ruamel_yaml as yaml\nsizes = yaml.load('width: 3', Loader=yaml.Loader)\n")
    assert variables["sizes"] == {"width": 3}
    assert any(text.endswith("it is yaml.load") for text in texts())


def test_an_argument_by_its_place_that_has_another_meaning_now_is_left_out(run):
    text = """
    from boxes.series import Series
    months = Series([1, 2]).apply(lambda month: month + 1, 1)
    added = Series([1, 2]).apply(lambda month, more: month + more, (10,))
    """
    variables = run(text)
    assert (variables["months"], variables["added"]) == ([2, 3], [11, 12])
    assert texts() == ["boxes has no argument convert_dtype of Series.apply: it is left out"]


def test_a_trainer_that_is_told_no_logger_takes_what_it_takes_by_default(run, monkeypatch):
    monkeypatch.setattr(learning, "NOT_NONE", ("boxes.settings", "Settings.report_to"))
    assert run("from boxes.settings import Settings\nloggers = Settings(None).loggers\n")["loggers"] == ["none"]
    assert texts() == ["boxes takes no report_to=None of Settings: it is none"]


def test_a_model_is_given_its_settings_as_before_version_1(run):
    text = """
    from boxes.model import HyperparametersMixin
    class Net(HyperparametersMixin):
        def __init__(self, given):
            self.hparams = given
    width = Net({"width": 3}).hparams["width"]
    """
    assert run(text)["width"] == 3
    assert texts() == ["Lightning lets a model be given its hparams, as before version 1.0"]


def test_a_hook_of_a_model_gets_the_number_of_the_loader_that_it_wants(run):
    text = """
    from boxes.trainer import call

    class Net:
        def on_train_batch_start(self, batch, batch_idx, dataloader_idx):
            return batch, batch_idx, dataloader_idx
    given = call.begin(Net())
    """
    assert run(textwrap.dedent(text))["given"] == ("batch", 3, 0)
    assert texts() == ["Lightning gives on_train_batch_start no number of the loader any more: it is 0"]


def test_an_iterator_over_a_loader_has_its_next_of_before(run):
    text = "import torch\nfrom torch.utils.data import DataLoader\nbatch = iter(DataLoader([1, 2], 2)).next()\n"
    try:
        assert run(text)["batch"].tolist() == [1, 2]
        assert any("has no attribute next of _BaseDataLoaderIter: it is __next__" in each for each in texts())
    finally:
        del torch.utils.data.dataloader._BaseDataLoaderIter.next


def test_an_attribute_that_another_one_has_taken_in_is_what_does_nothing_there(run):
    names = run("from boxes.model import EfficientNetFeatures\nsize = EfficientNetFeatures().act1('abc')")
    assert names["size"] == 3
    assert any("has no attribute act1 of EfficientNetFeatures: it is bn1.drop" in text for text in texts())


def test_all_names_of_a_statement_that_are_gone_are_put_there_at_once(run, monkeypatch):
    amended = []
    monkeypatch.setattr(
        applying, "amend", lambda amendment, amend=applying.amend: amended.append(amendment) or amend(amendment)
    )
    text = "from boxes.layers import to_pair, DropAway, helpers\npair = to_pair(DropAway)\n"
    assert run(text)["pair"][0].__name__ == "DropAway"
    assert amended == [Amendment("name", "boxes.layers", "to_pair DropAway")]


def test_a_package_that_asks_a_class_of_the_users_for_what_is_new_is_of_another_version(run):
    text = """
    from boxes.model import Base
    class Net(Base):
        def __init__(self): ...
    Net().begin()
    """
    with pytest.raises(AttributeError) as caught:
        run(text)
    assert learning.changed_package(caught.value) == "boxes"
    with pytest.raises(AttributeError) as caught:
        run(text.replace("begin()", "absent"))
    assert learning.changed_package(caught.value) == ""


def test_a_logger_that_a_package_no_longer_has_does_nothing(run):
    assert run("from boxes.layers import WebLogger\nWebLogger('runs').log(3)\ndone = True\n")["done"]


def test_a_renamed_argument_that_a_function_hands_on_to_a_class_of_the_users_has_its_name_of_now(run):
    variables = run("""
        from boxes.training import build_model_with_cfg

        class Net:
            def __init__(self, width):
                self.width = width

        net = build_model_with_cfg(Net, default_cfg={"crop": 0.9}, width=4)
    """)
    assert (variables["net"].cfg, variables["net"].width) == ({"crop": 0.9}, 4)
    assert texts() == ["boxes has no argument default_cfg of build_model_with_cfg: it is taken as pretrained_cfg"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_model_of_lightning_trains_with_several_optimizers_one_after_the_other(run, number):
    text = """
        from boxes.training import fit

        done = []

        class Adam:
            def __init__(self, name):
                self.name = name

            def zero_grad(self):
                done.append(f"zero {self.name}")

            def step(self):
                done.append(f"step {self.name}")

        class Model:
            automatic_optimization = True
            both = [Adam("of one"), Adam("of two")][:NUMBER]

            def optimizers(self):
                return self.both

            def toggle_optimizer(self, optimizer):
                done.append(f"on {optimizer.name}")

            def untoggle_optimizer(self, optimizer):
                done.append(f"off {optimizer.name}")

            def manual_backward(self, loss):
                done.append(loss)

            def training_step(self, batch, batch_idx, optimizer_idx):
                return {"loss": f"loss of {batch}"} if optimizer_idx else None

        fit(Model())
    """
    variables = run(text.replace("NUMBER", str(number)))
    last = ["on of two", "zero of two", "loss of batch", "step of two", "off of two"]
    assert variables["done"] == ["on of one", "off of one", *(last if number > 1 else [])]
    assert texts() == ["Lightning trains with several optimizers, one after the other, as before version 2.0"]


def test_what_mmcv_had_before_its_second_version_is_in_mmengine(run, tmp_path):
    texts = {"mmcv": "", "mmengine": "class Config: ...\n", "mmengine/model": "class BaseModule: ...\n"}
    for folder, text in texts.items():
        (tmp_path / "site-packages" / folder).mkdir()
        (tmp_path / "site-packages" / folder / "__init__.py").write_text(text)
    variables = run("import mmcv\nfrom mmcv.runner import BaseModule\nkind = mmcv.Config\n")
    assert (variables["kind"].__module__, variables["BaseModule"].__module__) == ("mmengine", "mmengine.model")
    for name in ("mmcv", "mmcv.runner", *(each.replace("/", ".") for each in texts if each != "mmcv")):
        sys.modules.pop(name, None)


def test_an_argument_that_a_function_refuses_by_itself_is_left_out(run, tmp_path):
    (tmp_path / "site-packages" / "boxes" / "metric.py").write_text(
        "class Metric:\n    def __init__(self, **options):\n        self.every = options.pop('every', 1)\n"
        "        if options: raise ValueError(f'Unexpected keyword arguments: `{[*options][0]}`')\n"
    )
    text = "from boxes.metric import Metric\nevery = Metric(every=3, compute_on_step=False).every\n"
    assert run(text)["every"] == 3
    assert any("compute_on_step" in text for text in texts())


def test_a_module_of_the_project_is_taken_that_an_installed_package_of_its_name_has_not(run, tmp_path):
    own = tmp_path / "detector" / "boxes"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("")
    (own / "transforms.py").write_text("SIDE = 800\n")
    text = f"import sys\nsys.path.append({str(own.parent)!r})\nimport boxes.transforms as chosen\nside = chosen.SIDE\n"
    assert run(text)["side"] == 800


def test_a_group_of_hydra_is_overridden_with_its_package_as_since_its_version_1_1(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "seed=1", "task=plate_slide"])
    said = "Could not override 'task'.\nDid you mean to override task@_global_?\nTo append use +task=plate_slide"
    assert amendment_of(ValueError(said)) == Amendment("word", "task=plate_slide", "task@_global_=plate_slide")


def test_a_broken_package_that_memlint_waits_for_is_done_without(run, tmp_path):
    place = tmp_path / "site-packages" / "tracker_of_another_time"
    place.mkdir()
    (place / "__init__.py").write_text("from tracker_of_another_time.forms import Gone\n")
    (place / "forms.py").write_text("")
    after_import("tracker_of_another_time", lambda _module: None)
    variables = run("import tracker_of_another_time as tracker\nlast = 4\n")
    assert (variables["tracker"].__name__, variables["last"]) == ("tracker_of_another_time", 4)


def test_rows_of_different_lengths_are_an_array_of_objects_where_no_type_is_asked_for(monkeypatch):
    for name in ("array", "asarray"):
        monkeypatch.setattr(np, name, getattr(np, name))
    rows = [[1, 2], [3]]
    with pytest.raises(ValueError, match="inhomogeneous") as caught:
        np.array(rows)
    amendment = amendment_of(caught.value)
    assert amendment == Amendment("ragged", "numpy")
    applying.amend(amendment)
    assert [np.array(rows).dtype, np.asarray(rows).dtype, np.array([1.0, 2.0]).dtype] == [object, object, np.float64]
    assert np.array(object=rows, copy=True).dtype == object
    for asked in ((float,), ()):
        with pytest.raises(ValueError, match="inhomogeneous"):
            np.array(rows, *asked, **({} if asked else {"dtype": float}))
