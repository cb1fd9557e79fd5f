"""Packages that are missing where a script is run: those that no tensor passes through are done without."""

from __future__ import annotations

import os
import runpy
import sys
import textwrap

import pytest
import torch
import torch.utils.cpp_extension

from memlint.libraries import extensions
from memlint.source.required_packages import required_packages
from memlint.workloads.placeholders.absent_packages import (
    AbsentError,
    assumptions,
    has_called,
    is_missing,
    lacking,
    missing,
)
from memlint.workloads.placeholders.finders import expect_in_script
from memlint.workloads.placeholders.objects import is_placeholder
from memlint.workloads.placeholders.own_project import find_project
from memlint.workloads.user_errors import what_to_do

_OWN = (
    "parts",
    "own_package",
    "a_library",
    "tools_of_mine",
    "layers_of_mine",
    "absent_rows",
    "own_words",
    "hiding",
    "absent_vit",
)
"""Packages and modules that these tests write."""


@pytest.fixture(autouse=True)
def no_modules_of_tests():
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script as `memlint run` does, as far as its packages are concerned; the files beside it are `modules`."""

    def run(text, stubs=(), **modules):
        for name, content in {**modules, "train": text}.items():
            path = tmp_path / f"{name.replace('__', os.sep)}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(content), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        script = tmp_path / "train.py"
        find_project(tmp_path, [tmp_path / "elsewhere"])
        expect_in_script(stubs, lambda: required_packages(script, tmp_path, is_missing))
        return runpy.run_path(str(script), run_name="__main__")

    return run


def texts():
    return [assumption.text for assumption in assumptions()]


def test_a_package_of_the_project_is_found_behind_the_plain_folder_in_which_it_is_built(run, tmp_path):
    package = tmp_path / "elsewhere/absent_vit/absent_vit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class Vit: ...")
    variables = run("from absent_vit import Vit\nname = Vit.__name__")
    assert variables["name"] == "Vit"
    (text,) = texts()
    assert text.endswith("elsewhere/absent_vit, which is taken to be on the search path")


@pytest.mark.parametrize("is_caught", [True, False])
def test_the_version_of_a_missing_package_is_unknown_and_the_error_names_the_package(run, is_caught):
    if is_caught:
        run("import absent_rows\nassert getattr(absent_rows, '__version__', None) is None")
        return
    with pytest.raises(AttributeError) as caught:
        run("import absent_rows\nassert absent_rows.__version__ >= '1.0'")
    assert what_to_do(caught.value).startswith("Install absent_rows where memlint runs")


def test_loggers_do_nothing_wherever_they_are_used(run):
    variables = run("""
        import comet_ml, visdom
        from clearml import Task
        run = comet_ml.Experiment(project_name="p", config={"lr": 1})
        if run.id is not None and run.is_alive:
            run.log_metric("loss", 0.5)
        with comet_ml.train() as context:
            context["epoch"] = 1
        class Log(Task):
            def __init__(self, name):
                super().__init__(name)
                self.name = name
        log = Log("mine")
        log.report_scalar("loss", 1)
        figure, (left, right) = visdom.subplots(1, 2)
        left.plot([1, 2])
        points = [point for point in visdom.points()]
        name = log.name
        import os
        path = os.fspath(run.folder)
    """)
    assert (variables["name"], variables["points"]) == ("mine", [])
    assert variables["path"] == "."
    assert texts() == [
        f"a placeholder that does nothing replaces {name}, which is not installed"
        for name in ("comet_ml", "visdom", "clearml")
    ]


def test_progress_bars_give_what_they_are_made_for(run):
    variables = run("""
        from progressbar import progressbar
        bar = progressbar(["a", "b"], prefix="epoch")
        bar.update(1)
        items, number = list(bar), len(bar)
    """)
    assert (variables["items"], variables["number"]) == (["a", "b"], 2)


def test_metrics_are_numbers(run):
    variables = run("""
        from seqeval.metrics import f1_score
        best = max(0.0, f1_score([1], [2]))
        text, half = f"{f1_score([1], [2]):.2f}", f1_score([1], [2]) / 2
        precision, recall = f1_score([1], [2])
    """)
    assert (variables["best"], variables["text"], variables["half"]) == (0.0, "0.00", 0.0)


def test_what_needs_a_value_that_only_the_package_has_says_so(run):
    with pytest.raises(AbsentError, match=r"comet_ml.config.width is used, but comet_ml is not available"):
        run("""
            import comet_ml
            [0] * comet_ml.config.width
        """)


def test_a_package_is_missed_where_it_is_used_and_all_others_are_named(run):
    with pytest.raises(AbsentError) as caught:
        run(
            """
            import cv2_absent
            from parts.blocks import Block
            try:
                import absent_optional
            except ImportError:
                absent_optional = None
            if absent_optional:
                import absent_extra
            assert absent_optional is None
            def main():
                import absent_late
                absent_blocks = Block.kind
                cv2_absent.imread("image.png").shape[0] + 1
            main()
            """,
            parts__blocks="""
            import contextlib
            import absent_blocks.registry
            with contextlib.suppress(ImportError):
                import absent_faster
            REGISTRY = absent_blocks.registry.Registry("blocks")
            @REGISTRY.register(name="block")
            class Block(absent_blocks.Base):
                kind = 1
            def export():
                import absent_export
            """,
        )
    assert caught.value.message.startswith("cv2_absent.imread().shape is used, but cv2_absent is not available")
    assert "train.py:14" in caught.value.message
    assert caught.value.package == "cv2_absent"
    names = "cv2_absent, absent_blocks and absent_late"
    assert caught.value.hint.startswith(f"Install {names} where memlint runs, {sys.prefix}: pip install cv2-absent ")
    assert "pip install cv2-absent absent-blocks absent-late; or" in caught.value.hint


def test_a_file_that_the_script_can_do_without_is_told_that_it_lacks_a_package(run):
    variables = run(
        """
        import importlib
        try:
            from parts.fancy import Fancy
        except ImportError:
            Fancy = None
        try:
            fancy = importlib.import_module("parts.fancy")
        except ImportError:
            fancy = None
        """,
        parts__fancy="import absent_kernels\nclass Fancy: ...",
    )
    assert variables["Fancy"] is variables["fancy"] is None
    assert texts() == []


def test_an_import_whose_error_is_raised_again_is_not_done_without(run):
    variables = run("""
        try:
            import absent_kernels
        except ImportError as error:
            raise ImportError("install it") from error
        name = absent_kernels.__name__
    """)
    assert variables["name"] == "absent_kernels"


def test_a_class_of_a_missing_package_fails_when_it_is_made(run):
    with pytest.raises(AbsentError, match=r"absent_base.Module is used"):
        run("""
            import absent_base
            class Net(absent_base.Module):
                def __init__(self, width):
                    self.width = width
            Net(4)
        """)


def test_a_decorator_that_would_call_the_script_is_missed(run):
    with pytest.raises(AbsentError, match=r"absent_hydra.main\(\) is used"):
        run("""
            import absent_hydra
            @absent_hydra.main(config_path="conf")
            def main(config):
                print(config)
            main()
        """)


def test_a_library_may_import_a_part_of_a_package_to_do_without(run, tmp_path):
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text("import absent_tracker.parts\nPART = absent_tracker.parts.Part\n", encoding="utf-8")
    sys.path.insert(0, str(library.parent))
    try:
        run("import absent_tracker\nimport a_library\na_library.PART().send(1)\n", stubs=("absent_tracker",))
    finally:
        sys.path.remove(str(library.parent))
    assert texts() == ["a placeholder that does nothing replaces absent_tracker, as --stub asks"]


def test_the_project_is_found_where_it_would_be_installed(run):
    variables = run("from own_package.parts import SIZE", elsewhere__own_package__parts="SIZE = 3")
    assert variables["SIZE"] == 3
    (text,) = texts()
    assert text.startswith("own_package is in ")
    assert text.endswith("elsewhere, which is taken to be on the search path")


def test_code_that_asks_for_a_package_hears_that_it_is_missing(run):
    variables = run("""
        import importlib.util
        is_there = importlib.util.find_spec("absent_probe") is not None
    """)
    assert variables["is_there"] is False
    assert texts() == []


@pytest.mark.parametrize(
    ("name", "distribution"),
    [("cv2", "opencv-python"), ("PIL.Image", "Pillow"), ("sklearn.svm", "scikit-learn"), ("yaml", "PyYAML")],
)
def test_hints_name_what_pip_installs(name, distribution):
    from memlint.workloads.missing_modules import remedy

    assert f": pip install {distribution}; " in remedy(name, "/nowhere/train.py")


def test_a_file_of_the_project_that_is_not_there_is_no_package(run):
    from memlint.workloads.user_errors import what_to_do

    with pytest.raises(ModuleNotFoundError) as caught:
        run("import parts.blocks\nimport parts.missing_file", parts__blocks="")
    assert what_to_do(caught.value).startswith("There is no parts.missing_file in ")


def test_a_module_of_the_project_is_found_in_whichever_folder_it_is(run):
    variables = run(
        """
        import tools_of_mine
        from layers_of_mine import norms
        from layers_of_mine.norms import Norm
        kind = tools_of_mine.kind
        """,
        lib__tools_of_mine="kind = 1",
        third__layers_of_mine__norms="class Norm: ...",
    )
    assert (variables["kind"], variables["norms"].Norm) == (1, variables["Norm"])
    (folder,) = {text.partition(" is in ")[2] for text in texts() if text.startswith("tools_of_mine")}
    assert folder.endswith("lib, which is taken to be on the search path")


def test_a_version_that_only_the_installation_writes_is_one_that_says_nothing(run):
    variables = run(
        "from tools_of_mine.parts import kind, version",
        tools_of_mine__parts="""
            from .version import __gitsha__, __version__ as version
            try:
                from ._version import commit
            except ImportError:
                kind = "guarded"
        """,
    )
    assert (variables["version"], variables["kind"]) == ("0.0.0", "guarded")
    text = "tools_of_mine.version, which the installation writes, is not there: it says 0.0.0"
    assert text in texts()


def test_a_handler_before_the_one_of_the_import_needs_the_package_whose_errors_are_caught(run):
    variables = run("""
        try:
            import absent_log
            absent_log.open(".")
            sha = 1 / 0
        except absent_log.errors.NotFoundError:
            sha = "none"
        except ImportError:
            sha = "no package"
        except ZeroDivisionError:
            sha = "logged"
    """)
    assert variables["sha"] == "logged"


def test_what_a_missing_package_makes_of_a_class_decorates_a_function(run):
    variables = run(
        "from tools_of_mine import Net, Other, to_numpy\nwidth = Other(3).width\n",
        tools_of_mine="""
            from absent_dispatch import convert, wrapped

            class Net:
                def __init__(self, width):
                    self.width = width

            @convert.register(Net)
            def to_numpy(net):
                return net.width

            @wrapped
            class Other(Net): ...
        """,
    )
    assert (variables["to_numpy"](variables["Net"](4)), variables["width"]) == (4, 3)


@pytest.mark.parametrize("package", ["tools_of_mine", "tools/of/mine"])
def test_a_project_that_is_not_installed_may_ask_for_its_own_version(run, tmp_path, package):
    (tmp_path / package).mkdir(parents=True, exist_ok=True)
    (tmp_path / package / "__init__.py").write_text("")
    variables = run(
        """
        from importlib.metadata import PackageNotFoundError
        from tools_of_mine.parts import kind, version_of
        try:
            version_of("absent-tools")
        except PackageNotFoundError:
            other = "absent"
        """,
        tools_of_mine__parts="""
            from importlib.metadata import version as version_of
            kind = version_of("tools-of-mine")
        """,
    )
    assert (variables["kind"], variables["other"]) == ("0.0.0", "absent")
    assert "tools_of_mine is the project, which is not installed: its version is 0.0.0" in texts()


def test_a_package_that_the_project_only_has_the_name_of_is_to_be_installed_and_own_modules_never(run):
    with pytest.raises(AbsentError) as caught:
        run(
            """
            from absent_rows import load_rows
            def main():
                import own_words
            len(load_rows())
            """,
            lib__absent_rows="def other(): ...",
            lib__own_words="import absent_words",
        )
    assert "pip install absent-rows absent-words;" in caught.value.hint


def test_a_module_of_a_folder_that_an_installed_package_of_its_name_hides_is_found(run, tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "hiding"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("load = 1")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    variables = run(
        """
        from hiding.rows import Rows
        import hiding
        load = hiding.load
        """,
        elsewhere__hiding__rows="class Rows: ...",
    )
    assert (variables["Rows"].__name__, variables["load"]) == ("Rows", 1)
    (text,) = (text for text in texts() if text.startswith("hiding.rows"))
    assert text == f"hiding.rows is in {tmp_path / 'elsewhere'}, where the installed package hiding hides it"


def test_a_script_goes_on_without_a_package_that_gets_no_tensor_and_gives_no_number(run):
    variables = run("""
        import absent_paths, absent_images, torch
        root = absent_paths.setup_root(".git", pythonpath=True)
        with absent_images.reading() as images:
            change = absent_images.Compose([absent_images.Flip(p=0.5), images.Blur()])
        changed = change(image="a.png")["image"]
        optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)
        schedule = absent_images.Warmup(optimizer, total_epoch=3)
        schedule.step()
    """)
    assert is_placeholder(variables["changed"])
    assert has_called()
    assert missing() == ["absent_paths", "absent_images"]
    assert texts()[0] == (
        "a placeholder that fails when a tensor or a number passes through it replaces absent_paths, "
        "which is not installed"
    )


@pytest.mark.parametrize(
    "use",
    [
        "absent_parts.attention(torch.zeros(2))",
        "absent_parts.Loss()([torch.zeros(2)])",
        "absent_parts.wrap(model=torch.nn.Linear(2, 2))",
        "absent_parts.Adam(torch.nn.Linear(2, 2).parameters(), lr=1)",
        "torch.nn.Linear(absent_parts.make('env').space.shape[0] + 2, 2)",
        "torch.optim.SGD(absent_parts.build('net').parameters(), lr=1)",
    ],
)
def test_a_package_on_the_way_of_tensors_or_sizes_is_missed(run, use):
    with pytest.raises(AbsentError, match="absent_parts is not available") as caught:
        run(f"import torch, absent_parts, absent_words\n{use}\n")
    assert "pip install absent-parts absent-words;" in caught.value.hint


def test_a_trainers_logger_does_nothing_where_its_service_is_not_installed(run, tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "pytorch_lightning"
    (package / "loggers").mkdir(parents=True)
    (package / "__init__.py").write_text("from pytorch_lightning import loggers\nkind = loggers.WandbLogger\n")
    (package / "loggers/__init__.py").write_text("from pytorch_lightning.loggers.wandb import WandbLogger\n")
    refuses = "class WandbLogger:\n    def __init__(self, project):\n        raise ModuleNotFoundError('wandb')\n"
    (package / "loggers/wandb.py").write_text(refuses)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    variables = run("""
        import pytorch_lightning
        logger = pytorch_lightning.loggers.WandbLogger(project="p")
        logger.log_metrics({"loss": 1.0})
        loggers, is_one = list(logger), isinstance(1, pytorch_lightning.kind)
    """)
    assert (variables["loggers"], variables["is_one"]) == ([], False)
    assert texts() == [
        "a placeholder that does nothing replaces pytorch_lightning.loggers.wandb, which is not installed"
    ]
    for name in [each for each in sys.modules if each.startswith("pytorch_lightning")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_module_that_projects_name_so_is_never_a_package_to_install():
    from memlint.workloads.missing_modules import remedy

    assert "pip install" not in remedy("util", "/nowhere/train.py")


def test_errors_of_others_say_that_they_have_met_a_placeholder(run):
    with pytest.raises(TypeError, match="PlaceholderOfMissingPackage"):
        run("import torch, absent_parts\ntorch.zeros(2, absent_parts.make('env').size)\n")
    assert lacking().startswith("Install absent_parts where memlint runs")


FUSED = "from torch.utils import cpp_extension\nfused = cpp_extension.load('fused', ['fused.cu'])\n"


@pytest.fixture
def not_compiled(monkeypatch):
    for name in ("load", "load_inline"):  # to be put back
        monkeypatch.setattr(torch.utils.cpp_extension, name, getattr(torch.utils.cpp_extension, name))
    extensions.install()


def test_an_extension_that_is_not_compiled_fails_only_where_it_is_used(run, not_compiled):
    assert run(f"{FUSED}done = True\n")["done"]
    with pytest.raises(AbsentError, match=r"fused\.act is used, but fused cannot be imported") as caught:
        run(f"import torch\n{FUSED}fused.act(torch.ones(2))\n")
    assert 'memlint.op("fused.act"' in caught.value.hint


def test_a_module_from_cython_that_nobody_has_built_does_nothing(run, tmp_path):
    (tmp_path / "aligned").mkdir()
    (tmp_path / "aligned" / "core.pyx").write_text("cpdef void fill(int[:] path):\n    path[0] = 1\n")
    text = "from aligned.paths import fill\npath = [0]\nfill(path)\n"
    assert run(text, aligned__paths="from .core import fill\n")["path"] == [0]
    with pytest.raises(ModuleNotFoundError):
        run("import aligned.other\n")


def test_a_script_that_catches_the_error_of_an_extension_goes_on_by_itself(run, not_compiled):
    assert run(f"try:\n{textwrap.indent(FUSED, '    ')}except Exception:\n    fused = None\n")["fused"] is None
