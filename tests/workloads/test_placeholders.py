"""Packages that are missing: no obstacle to a model that does without them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import pytest
import torch.utils.cpp_extension

from memlint.base.errors import TargetError, WorkloadError
from memlint.libraries import extensions
from memlint.workloads.construction.construct import build_program, complete
from memlint.workloads.discover import find_workloads
from memlint.workloads.missing_modules import remedy
from memlint.workloads.placeholders.absent_packages import assumptions
from memlint.workloads.placeholders.finders import expect
from memlint.workloads.placeholders.own_project import find_project
from memlint.workloads.placeholders.second_import import forget_users

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        {}return self.layer(x)
"""


def names(path):
    return [workload.name for workload in find_workloads(str(path), path.parent).workloads]


def texts():
    return [assumption.text for assumption in assumptions()]


@pytest.mark.parametrize(
    "use",
    [
        "import absent_cv2\n",
        "import absent_cv2.dnn as dnn\nfrom absent_cv2.flow import Flow\n",
        "import absent_cv2\nabsent_cv2.use('Agg')\nLOG = absent_cv2.logger(level=absent_cv2.INFO)\n",
        "import absent_cv2\ndef draw(image: absent_cv2.Mat | None, at: absent_cv2.Point['x y']): ...\n",
        "import absent_cv2\n@absent_cv2.jit(parallel=True)\ndef double(x): return 2 * x\nFOUR = double(2)\nassert FOUR == 4\n",
        "import absent_cv2\nassert not isinstance(1, absent_cv2.Mat)\n",
    ],
    ids=["imported", "parts", "called", "annotations", "decorator", "isinstance"],
)
def test_a_package_that_the_model_does_not_use_may_be_missing(write, use):
    path = write(use + NET.format(""))
    assert names(path) == ["Net"]
    (assumption,) = assumptions()
    assert assumption.text.endswith("replaces absent_cv2, which is not installed")
    assert (assumption.frame.path, assumption.frame.line) == (str(path), 5)


def test_a_script_that_lacks_a_package_is_still_said_to_be_one(write):
    path = write(
        """
    import absent_cv2
    def main():
        net = nn.Linear(absent_cv2.WIDTH, 4)
        net(torch.ones(2, 4)).sum().backward()
    if __name__ == "__main__":
        main()
    """,
        "train.py",
    )
    with pytest.raises(TargetError, match="replaces absent_cv2, which is not installed") as caught:
        find_workloads(str(path), path.parent)
    assert caught.value.hint == (
        f"This is a script: type memlint run {path}. Install what is missing, or build it where the project has its source."
    )


def test_a_model_that_uses_it_says_what_to_install(write):
    path = write("import absent_cv2\n" + NET.format("x = absent_cv2.blur(x)\n        "))
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError) as caught:
        build_program(workload, path.parent)
    assert caught.value.message.startswith("absent_cv2.blur is used, but absent_cv2 is not available")
    assert caught.value.hint.startswith("Install absent_cv2")


@pytest.mark.parametrize(
    "use", ["class Net(absent_cv2.Base): ...", "SIZE = absent_cv2.SIZE + 1", "list(absent_cv2.names)"]
)
def test_what_needs_the_package_itself_says_what_to_install(write, use):
    path = write(f"import absent_cv2\n{use}\n")
    with pytest.raises(WorkloadError, match=r"absent_cv2\.\w+ is used, but absent_cv2 is not available") as caught:
        names(path)
    assert f"{path}:6" in caught.value.message
    assert caught.value.hint.startswith("Install absent_cv2")


def test_a_file_that_can_do_without_is_told_that_it_has_to(write):
    write("try:\n    import absent_cv2\nexcept ImportError:\n    absent_cv2 = None\n", "drawing.py")
    path = write("import drawing\nimport absent_cv2\nassert drawing.absent_cv2 is None\n" + NET.format(""))
    assert names(path) == ["Net"]


def test_what_an_installed_package_lacks_is_replaced_where_the_project_imports_it(write):
    pytest.importorskip("torch")
    if "tensorboard" in sys.modules or importlib.util.find_spec("tensorboard"):
        pytest.skip("tensorboard is installed")
    path = write("from torch.utils.tensorboard import SummaryWriter\n" + NET.format(""))
    assert names(path) == ["Net"]
    assert texts()[0].endswith("replaces torch.utils.tensorboard, which is not installed")


def test_a_package_can_be_replaced_by_hand(write):
    write("raise RuntimeError('is broken')\n", "drawing.py")
    expect(["drawing"])
    path = write("try:\n    import drawing\nexcept ImportError:\n    raise\n" + NET.format(""))
    assert names(path) == ["Net"]
    assert texts() == ["a placeholder that fails when the model uses it replaces drawing, as --stub asks"]


def test_a_missing_module_of_the_project_itself_is_an_error(write):
    write("", "own/__init__.py")
    with pytest.raises(WorkloadError, match=r"No module named .own\.layers."):
        names(write("import own.layers\n" + NET.format("")))


def test_a_module_that_fails_when_it_is_imported_is_no_obstacle_to_a_model_that_does_without(write):
    write("class Words:\n    def __init__(self, path=open('/nowhere/labels.txt')): ...\n", "labels.py")
    write("from labels import Words\nfrom sizes import WIDTH\n", "data.py")
    write("WIDTH = 7\n", "sizes.py")
    path = write("from data import WIDTH, Words\nassert WIDTH == 7\n" + NET.format(""))
    assert names(path) == ["Net"]
    (text,) = texts()
    assert "replaces labels, which cannot be imported: FileNotFoundError" in text


def test_a_module_of_the_project_that_fails_is_no_package_to_install(write):
    failing = write("MAJOR = int(None.split('.')[0])\ndef act(x): return x\n", "acts.py")
    path = write("from acts import act\n" + NET.format("x = act(x)\n        "))
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError, match=r"acts cannot be imported: AttributeError") as caught:
        build_program(workload, path.parent)
    line = failing.read_text().splitlines().index("MAJOR = int(None.split('.')[0])") + 1
    assert caught.value.hint == f"The module is the project's own: it ends at {failing}:{line}, when it is imported."


def test_an_error_of_the_file_itself_is_no_reason_for_a_stand_in(write):
    path = write("SIZE = int('x')\n" + NET.format(""))
    with pytest.raises(WorkloadError, match="cannot be imported: ValueError"):
        names(path)


def test_another_file_may_derive_from_what_is_missing(write):
    write("import absent_cv2\nclass Wrapper(absent_cv2.Wrapper):\n    def step(self): ...\n", "envs.py")
    path = write("from envs import Wrapper\n" + NET.format("Wrapper(x)\n        "))
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError, match=r"absent_cv2.Wrapper is used, but absent_cv2 is not available"):
        build_program(workload, path.parent)


def test_a_class_that_is_registered_in_a_package_can_be_imported_again(write, tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "shelves"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Registry:\n    def __init__(self): self.classes = {}\n"
        "    def register(self, kind):\n        assert kind.__name__ not in self.classes\n"
        "        self.classes[kind.__name__] = kind\n        return kind\nMODELS = Registry()\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    path = write("from shelves import MODELS\n" + NET.format("").replace("class Net", "@MODELS.register\nclass Net"))
    path.write_text(path.read_text() + "import absent_cv2\n")
    try:
        assert names(path) == ["Net"]
    finally:
        sys.modules.pop("shelves", None)


def test_an_extension_that_cannot_be_compiled_fails_only_where_it_is_used(write, monkeypatch):
    monkeypatch.setattr(torch.utils.cpp_extension, "CUDA_HOME", "/where/it/is")
    for name in ("load", "load_inline"):  # to be put back
        monkeypatch.setattr(torch.utils.cpp_extension, name, getattr(torch.utils.cpp_extension, name))
    extensions.install()
    write(
        "from torch.utils.cpp_extension import load\nfused = load('fused', ['fused.cpp', 'fused_kernel.cu'])\n"
        "def act(x): return fused.act(x) if x.is_cuda else x.relu()\n",
        "op.py",
    )
    path = write("from op import act\n" + NET.format("x = act(x)\n        "))
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError) as caught:
        build_program(workload, path.parent)
    reason = "fused cannot be imported: OSError: the extension fused is not compiled: its kernels need a GPU"
    assert caught.value.message.startswith(f"fused.act is used, but {reason}")
    assert caught.value.hint.endswith(f"memlint check {path} --gpu=cpu")
    assert build_program(replace(workload, gpu="cpu"), path.parent).model is None


def test_what_no_script_builds_is_no_answer_for_a_model_that_needs_a_missing_package(write):
    path = write(
        "import absent_cv2\nclass Bias(nn.Linear):\n    def __init__(self): super().__init__(2, 2)\n"
        + NET.format("").replace("self.layer =", "absent_cv2.seed(); self.layer =")
    )
    assert names(path) == ["Bias"]
    (path.parent / "train.py").write_text(f"from {path.stem} import Net\nnet = Net()\nloss.backward()\n")
    with pytest.raises(WorkloadError, match=r"absent_cv2\.seed is used, but absent_cv2 is not available") as caught:
        names(path)
    assert caught.value.hint.startswith("Install absent_cv2")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("kernels/fused/fused_ops.cpp", ""),
        ("fused_ops.pyx", ""),
        ("kernels/setup.py", "setup(ext_modules=[CUDAExtension(name='own.fused_ops', sources=['ops.cu'])])"),
        ("kernels/setup.py", "setup(\n    name='fused_ops',\n    ext_modules=extensions(),\n)"),
    ],
)
def test_a_compiled_module_of_the_project_is_built_and_not_installed(write, source, text):
    path = write("import fused_ops\n" + NET.format("x = fused_ops.act(x)\n        "))
    place = path.parent / source
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError) as caught:
        build_program(workload, path.parent)
    assert caught.value.hint.startswith("Build fused_ops where memlint runs")
    assert f"its source is {place};" in caught.value.hint


def test_the_command_that_builds_a_compiled_module_puts_it_where_it_is_imported_from(write):
    path = write("import align\n" + NET.format("x = align.best(x)\n        "))
    write("from .align.core import best\n", "align/__init__.py")
    (path.parent / "align" / "core.pyx").write_text("def best(x): return x\n")
    setup = path.parent / "align" / "setup.py"
    setup.write_text("from distutils.core import setup\nfrom Cython.Build import cythonize\n")
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError) as caught:
        build_program(workload, path.parent)
    place, build = path.parent / "align", f"{sys.executable} setup.py build_ext --inplace"
    assert f"; type: mkdir -p {place / 'align'} && (cd {place} && {build}); " in caught.value.hint


def test_the_source_is_that_of_the_module_whose_outer_package_is_missing(write, monkeypatch):
    importer = write("from .ops.align.core import best\n", "align/__init__.py")
    (importer.parent / "core.pyx").write_text("def best(x): return x\n")
    (importer.parent / "setup.py").write_text("from Cython.Build import cythonize\n")
    monkeypatch.syspath_prepend(str(importer.parents[1]))
    hint = remedy("align.ops", str(importer))
    assert hint.startswith("Build align.ops.align.core where memlint runs")
    assert f"type: mkdir -p {importer.parent / 'ops' / 'align'} && (cd {importer.parent} && " in hint


def test_a_model_that_needs_arguments_is_offered_beside_a_stand_in(write):
    path = write("import absent_cv2\n" + NET.format("").replace("(self)", "(self, strange)"))
    found = find_workloads(str(path), path.parent)
    assert [(each.name, each.reason) for each in found.left_out] == [("Net", "Net needs strange")]
    assert found.left_out[0].call == "Net(strange=64)"


def test_what_a_file_does_without_and_then_uses_is_to_be_installed(write):
    path = write(
        """
        import torch
        try:
            from fast.attention import attend as fast_attend
        except ImportError:
            fast_attend = None

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 8)
            def forward(self, x):
                return fast_attend(self.layer(x))
        """
    )
    (workload,) = find_workloads(str(path), path.parent).workloads
    with pytest.raises(WorkloadError, match="no inputs were found") as caught:
        complete(workload, path.parent)
    assert caught.value.hint.startswith("Install fast where memlint runs")


def test_a_file_that_is_called_like_the_package_it_imports_does_not_import_itself(write, monkeypatch):
    path = write("import colorsys\nassert colorsys.rgb_to_hsv\n" + NET.format(""), "models/colorsys.py")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    names = [workload.name for workload in find_workloads(str(path), path.parents[1]).workloads]
    assert names == ["Net"]


def test_an_import_that_may_fail_does_not_find_what_only_a_script_of_a_folder_does(write, monkeypatch):
    path = write("from ..parts_of_test import SIZE\n" + NET.format(""), "package_of_test/inner/model.py")
    parts = path.parents[1] / "parts_of_test"
    parts.mkdir()
    for folder in path.parents[:2]:
        (folder / "__init__.py").touch()
    asks = "    from parts_of_test import deep\n    deep.missing\n"
    (parts / "__init__.py").write_text(f"try:\n{asks}except ImportError:\n    pass\nSIZE = 4\n")
    (parts / "deep.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    find_project(path.parents[2])
    assert [workload.name for workload in find_workloads(str(path), path.parents[2]).workloads] == ["Net"]


def test_a_submodule_that_was_not_fetched_is_named_with_the_command_that_fetches_it(tmp_path, monkeypatch):
    (tmp_path / "parts_of_others").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("parts_of_others")
    try:
        hint = remedy("parts_of_others.data", str(tmp_path / "model.py"))
        assert hint.endswith("complete the project, or import it by its new name.")
        (tmp_path / ".gitmodules").write_text('[submodule "p"]\n\tpath = parts_of_others\n\turl = https://a.b/c\n')
        hint = remedy("parts_of_others.data", str(tmp_path / "model.py"))
        assert hint.endswith(f"not fetched: type git -C {tmp_path} submodule update --init --recursive.")
    finally:
        del sys.modules["parts_of_others"]


def test_the_project_itself_may_be_the_package(write, monkeypatch):
    path = write("from project_of_mine.layers import Layer\n" + NET.format(""), "project_of_mine/model.py")
    (path.parent / "layers.py").write_text("class Layer: ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    find_project(path.parent)
    names = [workload.name for workload in find_workloads(str(path), path.parent).workloads]
    assert names == ["Net"]
    (text,) = texts()
    assert text == f"project_of_mine is in {path.parents[1]}, which is taken to be on the search path"
    monkeypatch.delitem(sys.modules, "project_of_mine.layers")
    monkeypatch.delitem(sys.modules, "project_of_mine")


def test_an_installed_object_that_answers_to_every_name_is_no_registry(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "boxes_of_all"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Any:\n"
        "    def __getattribute__(self, name):\n        return Any if name == '__class__' else object()\n"
        "class Slots: pass\nSlots.__module__ = int.real\n"  # some classes of compiled code have no text there
        "anything, slots, kinds = Any(), Slots(), {'mine': None}\n"
    )
    (tmp_path / "mine_of_boxes.py").write_text("class Mine: pass\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)
    import boxes_of_all
    import mine_of_boxes

    boxes_of_all.kinds["mine"] = mine_of_boxes.Mine
    forget_users(modules)
    assert "mine_of_boxes" not in sys.modules
    assert boxes_of_all.kinds == {}
    del sys.modules["boxes_of_all"]
