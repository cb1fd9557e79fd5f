"""Which workloads files are a part of, and what is left out; imports are held against what Python itself loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from memlint.base import cache as cachedir
from memlint.base.errors import UsageError
from memlint.cli import main
from memlint.commands.affected import resolve_affected
from memlint.commands.targets import resolve, together
from memlint.source.imports import Import, ImportReader
from memlint.source.program_files import Project
from memlint.worker.capture_store import Store
from memlint.worker.protocol import Dependencies

pytestmark = pytest.mark.usefixtures("copied_pythons")

WORKLOAD = "def memlint_workload(batch): ...\n"
LEAK = """
import torch

def fit(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        torch.cuda.empty_cache()
"""


class Tree:
    """Files of a test, in the current directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, **files: str) -> None:
        for name, text in files.items():
            self[name] = text

    def __setitem__(self, name: str, text: str) -> None:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))

    def affected(self, *names: str, **options: object) -> list[str]:
        return sorted(r.target for each in resolve_affected(names, options) for r in each.requests)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    made = Tree(directory)
    made["pyproject.toml"] = "[tool.memlint]\n"
    return made


# --- imports, as Python resolves them

LAYOUTS = {
    "files beside one another": (
        "model.py",
        {"model.py": "import layers\nfrom blocks import Block", "layers.py": "", "blocks.py": "Block = 1"},
    ),
    "through others": ("model.py", {"model.py": "import a", "a.py": "import b", "b.py": "import c", "c.py": ""}),
    "in a circle": ("model.py", {"model.py": "import a", "a.py": "import b", "b.py": "import a"}),
    "absolute in a package": (
        "pkg/models/net.py",
        {
            "pkg/__init__.py": "import pkg.version",
            "pkg/version.py": "",
            "pkg/models/__init__.py": "",
            "pkg/models/net.py": "from pkg.layers import attention\nimport pkg.layers.norm as n",
            "pkg/layers/__init__.py": "",
            "pkg/layers/attention.py": "",
            "pkg/layers/norm.py": "",
            "pkg/layers/unused.py": "",
        },
    ),
    "relative in a package": (
        "pkg/models/net.py",
        {
            "pkg/__init__.py": "",
            "pkg/models/__init__.py": "from . import common",
            "pkg/models/common.py": "",
            "pkg/models/net.py": "from .common import *\nfrom ..layers import attention\nfrom .. import losses",
            "pkg/layers/__init__.py": "from .norm import Norm",
            "pkg/layers/norm.py": "Norm = 1",
            "pkg/layers/attention.py": "",
            "pkg/losses.py": "",
        },
    ),
    "namespace package": (
        "model.py",
        {
            "model.py": "import layers.attention\nfrom layers import norm",
            "layers/attention.py": "",
            "layers/norm.py": "",
        },
    ),
    "relative in a namespace package": (
        "models/net.py",
        {
            "models/net.py": "from .layers import x\nfrom ..losses import y",
            "models/layers.py": "x = 1",
            "losses.py": "y = 1",
        },
    ),
    "the folder of the file before the root": (
        "models/net.py",
        {"models/net.py": "import layers", "models/layers.py": "", "layers.py": ""},
    ),
    "the root beside the folder of the file": ("models/net.py", {"models/net.py": "import layers", "layers.py": ""}),
    "a package before a module of its name": (
        "model.py",
        {"model.py": "import layers", "layers.py": "", "layers/__init__.py": ""},
    ),
    "everything from a package": (
        "model.py",
        {"model.py": "from layers import *", "layers/__init__.py": "__all__ = ['a']", "layers/a.py": ""},
    ),
    "within functions and branches": (
        "model.py",
        {
            "model.py": "def f():\n    import a\nf()\ntry:\n    import b\nexcept ImportError:\n    b = None\nif True:\n    import c",
            **dict.fromkeys(("a.py", "b.py", "c.py"), ""),
        },
    ),
    "by name": (
        "pkg/net.py",
        {
            "pkg/__init__.py": "",
            "pkg/net.py": """
                import importlib
                from importlib import import_module as load
                importlib.import_module("pkg.a")
                load(".b", __package__)
                __import__("c")
            """,
            "pkg/a.py": "",
            "pkg/b.py": "",
            "c.py": "",
        },
    ),
    "encodings and broken neighbours": (
        "model.py",
        {"model.py": "# coding: latin-1\nimport a", "a.py": "", "broken.py": "def (", "json.py": ""},
    ),
}
LOADED = """
import json, sys
from pathlib import Path
from memlint.workloads.loading import load_file
answers = {}
for root, file in json.load(sys.stdin):
    before, path = set(sys.modules), list(sys.path)
    load_file(Path(root, file), Path(root))
    mine = {name: sys.modules.pop(name) for name in set(sys.modules) - before}
    sys.path[:] = path
    files = {Path(m.__file__) for m in mine.values() if getattr(m, "__file__", None)}
    answers[root] = sorted(str(f.relative_to(root)) for f in files if f.is_relative_to(root))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """By name of the layout: its folder, and the files in it that Python loads."""
    folders = {}
    for name, (_file, files) in LAYOUTS.items():
        tree = Tree(tmp_path_factory.mktemp("layout").resolve())
        for path, text in files.items():
            tree[path] = text
        folders[name] = tree.directory
    asked = [[str(folders[name]), file] for name, (file, _files) in LAYOUTS.items()]
    command = [sys.executable, "-P", "-c", LOADED]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
    answered = json.loads(done.stdout)
    return {name: (folder, answered[str(folder)]) for name, folder in folders.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_parts_of_a_program_are_the_files_that_python_loads(name, loaded):
    folder, files = loaded[name]
    parts = Project(folder, cache=False).parts([folder / LAYOUTS[name][0]])
    assert sorted(str(file.relative_to(folder)) for file in parts.files) == files
    assert not parts.undecided


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module\nimport_module(f'layers.{name}')",
        "from importlib import import_module\nmodules = map(import_module, names)",
        "import importlib\nimportlib.import_module('.a', package)",
        "import importlib\nimportlib.import_module(name='.a')",
        "import importlib.util as u\nu.spec_from_file_location('a', path)",
        "import runpy\nrunpy.run_path(path)",
        "__import__(name)",
        "__import__()",
        "exec(text)",
        "def (",
    ],
)
def test_an_import_that_only_running_it_decides_is_undecided(text, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(text)
    assert ImportReader(None)(file).undecided


@pytest.mark.parametrize(
    "text", ["import exec_utils", "model.exec(x)", "from importlib import metadata", "# exec(importlib)", "''"]
)
def test_what_only_looks_like_an_import_by_name_is_decided(text, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(text)
    assert not ImportReader(None)(file).undecided


def test_a_file_that_is_gone_imports_nothing(tmp_path):
    imports = ImportReader(None)(tmp_path / "gone.py")
    assert not imports.undecided
    assert imports.modules == frozenset()


def test_imports_are_kept_until_the_file_changes(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import a\nfrom .b import c\nimport_module('d')\nloss = 'losses.py::f'")
    first = ImportReader(tmp_path)(file)
    [entry] = (tmp_path / cachedir.NAME / "imports").glob("*.json")
    written = entry.stat().st_mtime_ns
    assert ImportReader(tmp_path)(file) == first == ImportReader(None)(file)
    assert entry.stat().st_mtime_ns == written
    file.write_text("import e")
    assert ImportReader(tmp_path)(file).modules == {Import("e")}
    for broken in ("", "[]", "{}", entry.read_text().replace('"modules": [', '"modules": [1, ')):
        entry.write_text(broken)
        assert ImportReader(tmp_path)(file).modules == {Import("e")}


def test_without_a_cache_nothing_is_written(tree):
    tree["one.py"] = WORKLOAD
    tree.affected("one.py")
    assert (tree.directory / cachedir.NAME).exists()
    cachedir.clean(tree.directory)
    resolve_affected(["one.py"], {}, cache=False)
    assert not (tree.directory / cachedir.NAME).exists()


def test_more_dots_than_folders_are_no_error(tmp_path):
    assert Project(tmp_path, cache=False)._files_of(Import("a", level=99), tmp_path, ()) == ()


# --- from files to workloads


def test_a_workload_is_affected_by_its_file_and_by_what_that_imports_but_not_by_others(tree):
    tree["one.py"] = f"import layers\n{WORKLOAD}"
    tree["two.py"] = WORKLOAD
    tree["layers.py"] = "from shared import norm"
    tree["shared/norm.py"] = ""
    tree["unrelated.py"] = ""
    assert tree.affected("one.py") == ["one.py"]
    assert tree.affected("two.py") == ["two.py"]
    assert tree.affected("layers.py") == ["one.py"]
    assert tree.affected("shared/norm.py") == ["one.py"]
    assert tree.affected("unrelated.py") == []
    assert tree.affected("unrelated.py", "two.py", "layers.py") == ["one.py", "two.py"]
    [targets] = resolve_affected(["layers.py"], {})
    assert targets.unaffected == ("two.py",)


def test_a_package_in_src_is_found_whether_or_not_it_is_installed(tree):
    tree["src/net/__init__.py"] = ""
    tree["src/net/attention.py"] = ""
    tree["workloads.py"] = f"from net.attention import Attention\n{WORKLOAD}"
    assert tree.affected("src/net/attention.py") == ["workloads.py"]


def test_a_module_on_a_path_that_the_program_makes_is_found_by_its_name(tree):
    tree["lib/deep/blocks/block.py"] = "import helper"
    tree["lib/deep/helper.py"] = ""
    tree["lib/block.py"] = ""
    tree["workloads.py"] = f"import sys\nsys.path.append('lib/deep')\nfrom blocks.block import Block\n{WORKLOAD}"
    assert tree.affected("lib/deep/blocks/block.py") == ["workloads.py"]
    assert tree.affected("lib/deep/helper.py") == ["workloads.py"]
    assert tree.affected("lib/block.py") == []


def test_a_workload_whose_imports_cannot_be_decided_is_affected_by_any_file_of_its_project(tree):
    tree["one.py"] = f"import registry\n{WORKLOAD}"
    tree["registry.py"] = "import importlib\n\ndef load(name):\n    return importlib.import_module(name)\n"
    tree["two.py"] = WORKLOAD
    tree["unrelated.py"] = ""
    assert tree.affected("unrelated.py") == ["one.py"]


def test_the_configuration_and_the_rules_of_a_project_affect_every_workload(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nrule-paths = ['lint_rules']\n"
    tree["lint_rules/acm001.py"] = ""
    tree.write(**{"one.py": WORKLOAD, "two.py": WORKLOAD})
    assert tree.affected("pyproject.toml") == ["one.py", "two.py"]
    assert tree.affected("lint_rules/acm001.py") == ["one.py", "two.py"]


def test_what_the_configuration_names_is_a_part_of_the_workload(tree):
    tree["pyproject.toml"] = """
        [[tool.memlint.workload]]
        name = "small"
        target = "net.py::Net"
        loss = "losses.py::masked"
        optimizer = "optimizers.py::make"

        [[tool.memlint.workload]]
        name = "llama"
        target = "configs/llama/config.json"

        [[tool.memlint.workload]]
        name = "module"
        target = "pkg.models::build"
        loss = "pkg.losses::loss"
    """
    tree.write(**dict.fromkeys(("net.py", "losses.py", "optimizers.py", "helper.py", "pkg/losses.py"), ""))
    tree["configs/llama/config.json"] = "{}"
    tree["configs/other/config.json"] = "{}"
    tree["losses.py"] = "import helper"
    tree["pkg/models.py"] = "from . import parts"
    tree["pkg/parts.py"] = ""
    for name in ("net.py", "losses.py", "optimizers.py", "helper.py"):
        assert tree.affected(name) == ["net.py"], name
    assert tree.affected("configs/llama/config.json") == ["configs/llama/config.json"]
    assert tree.affected("configs/other/config.json") == []
    for name in ("pkg/models.py", "pkg/parts.py", "pkg/losses.py"):
        assert tree.affected(name) == ["pkg.models::build"], name


def test_a_script_is_affected_by_what_it_imports_and_by_the_files_that_its_arguments_name(tree):
    tree["pyproject.toml"] = """
        [[tool.memlint.workload]]
        script = "train.py"
        args = ["--config", "configs/small.yaml", "--data=lists/train.txt", "--out", "."]

        [[tool.memlint.workload]]
        name = "module"
        module = "pkg.train"
    """
    tree["train.py"] = "import layers"
    tree["pkg/train.py"] = "from . import parts"
    named = ("layers.py", "other.py", "pkg/parts.py", "configs/small.yaml", "configs/large.yaml", "lists/train.txt")
    tree.write(**dict.fromkeys(named, ""))
    script = ["train.py --config configs/small.yaml --data=lists/train.txt --out ."]
    for name in ("train.py", "layers.py", "configs/small.yaml", "lists/train.txt"):
        assert tree.affected(name) == script, name
    for name in ("pkg/train.py", "pkg/parts.py"):
        assert tree.affected(name) == ["-m pkg.train"], name
    for name in ("other.py", "configs/large.yaml"):
        assert tree.affected(name) == [], name


def test_the_optimizer_of_all_workloads_is_a_part_of_each(tree):
    tree.write(**{"one.py": WORKLOAD, "optimizers.py": ""})
    assert tree.affected("optimizers.py") == []
    assert tree.affected("optimizers.py", optimizer="optimizers.py::make") == ["one.py"]


def test_a_file_that_a_declaration_names_is_a_part_of_it(tree):
    tree["models/net.py"] = """
        import memlint

        @memlint.workload(loss="losses.py::masked")
        def net(batch): ...
    """
    tree["models/losses.py"] = "import helper"
    tree["helper.py"] = ""
    assert tree.affected("models/losses.py") == ["models/net.py"]
    assert tree.affected("helper.py") == ["models/net.py"]


def test_texts_and_names_that_no_file_can_have_are_no_error(tree):
    long = "x" * 300
    tree["one.py"] = f"""
        import importlib
        PLACES = ("{long}.py::f", "{long}/y.py::f", "\\0.py::f", "nowhere.py::f", "\\ud800.py::f")
        for name in PLACES:
            importlib.import_module("{long}")
            importlib.import_module("a..b")
            importlib.import_module("\\ud800.a")
            importlib.import_module("\\0.a")
            importlib.import_module("")
        def memlint_workload(batch): ...
    """
    tree["other.py"] = ""
    assert tree.affected("one.py") == ["one.py"]
    assert tree.affected("other.py") == []


def test_files_that_an_earlier_analysis_has_read_are_parts_and_take_none_away(tree):
    tree.write(**{"one.py": f"import layers\n{WORKLOAD}", "layers.py": "", "sizes.yaml": "", "other.yaml": ""})
    [targets] = resolve_affected(["one.py"], {})
    read = {str(tree.directory / "sizes.yaml"): None}
    known = Dependencies(files=read, packages={}, variables={})
    Store(targets.requests[0]).write({}, known, ("", ""))
    assert tree.affected("sizes.yaml") == ["one.py"]
    assert tree.affected("layers.py") == ["one.py"]
    assert tree.affected("other.yaml") == []


def test_a_cache_that_cannot_be_read_adds_nothing(tree):
    tree.write(**{"one.py": WORKLOAD, "sizes.yaml": ""})
    [targets] = resolve_affected(["one.py"], {})
    known = Dependencies(files={str(tree.directory / "sizes.yaml"): None}, packages={}, variables={})
    Store(targets.requests[0]).write({}, known, ("", ""))
    assert tree.affected("sizes.yaml") == ["one.py"]
    (entry,) = (tree.directory / cachedir.NAME / "captures").glob("*.json")
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "dependencies": [1]}))
    assert tree.affected("sizes.yaml") == []


def test_a_deleted_file_affects_the_workloads_that_import_something_of_its_name(tree):
    tree["one.py"] = f"from pkg.layers import Block\n{WORKLOAD}"
    tree["two.py"] = f"import unrelated\n{WORKLOAD}"
    tree["pkg/__init__.py"] = ""
    assert tree.affected("pkg/layers.py") == ["one.py"]
    assert tree.affected("gone/folder/layers/__init__.py") == ["one.py"]
    assert tree.affected("gone/folder/deeper.py", "README.md") == []
    [targets] = resolve_affected(["pkg/layers.py"], {})
    assert targets.files == ()


def test_a_project_in_a_subfolder_is_looked_at_alone(tree):
    tree.write(**{"one.py": WORKLOAD, "layers.py": ""})
    tree["sub/pyproject.toml"] = "[tool.memlint]\nbatch = 3\n"
    tree["sub/two.py"] = f"import layers\n{WORKLOAD}"
    tree["sub/layers.py"] = ""
    assert tree.affected("sub/layers.py") == ["sub/two.py"]
    [targets] = resolve_affected(["sub/layers.py"], {})
    assert targets.root == tree.directory / "sub"
    assert targets.requests[0].settings.batch == 3
    assert tree.affected("sub/layers.py", "one.py") == ["one.py", "sub/two.py"]


def test_from_below_the_project_it_is_the_same(tree, monkeypatch):
    tree["one.py"] = f"import pkg.layers\n{WORKLOAD}"
    tree["pkg/layers.py"] = ""
    monkeypatch.chdir(tree.directory / "pkg")
    assert tree.affected("layers.py") == ["../one.py"]


def test_a_request_is_the_one_that_the_whole_project_makes(tree):
    """So that its answer is kept from one to the other."""
    tree["pkg/one.py"] = WORKLOAD
    [targets] = resolve_affected(["pkg/one.py"], {"batch": 4})
    assert targets.requests == resolve(".", {"batch": 4}).requests


def test_a_file_outside_of_the_project_belongs_to_its_own(tree, tmp_path):
    tree["one.py"] = WORKLOAD
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "setup.cfg").touch()
    (outside / "x.py").write_text(WORKLOAD)
    assert tree.affected(str(outside / "x.py")) == ["../outside/x.py"]


def test_a_link_stands_for_the_file_and_for_itself(tree):
    tree["one.py"] = f"import layers\n{WORKLOAD}"
    tree["real.py"] = ""
    Path("layers.py").symlink_to("real.py")
    assert tree.affected("real.py") == ["one.py"]
    assert tree.affected("layers.py") == ["one.py"]


@pytest.mark.parametrize("name", ["-q.py", "a b.py", "ä.py", "'.py", "--fix.py", "~x.py"])
def test_names_of_files_are_taken_as_they_are(tree, name):
    tree[name] = LEAK
    for option in ("--affected", "--no-exec"):
        done = CliRunner().invoke(main, ["check", option, "--output-format", "concise", name])
        assert done.exit_code == 1
        assert f"{name}:7:9: MEM601" in done.stdout


def test_source_rules_run_on_the_files_that_are_named_alone(tree):
    tree.write(**{"one.py": LEAK, "two.py": LEAK, "stub.pyi": "x: int", "data.yaml": "- x", "notes.toml": ""})
    [targets] = resolve_affected(["one.py", "stub.pyi", "data.yaml", "notes.toml", "gone.py"], {})
    assert list(map(str, targets.files)) == ["one.py", "stub.pyi"]


@pytest.mark.parametrize(
    ("names", "said"),
    [([], "there is none"), (["."], "is a directory"), (["one.py::Net"], "something in a file")],
)
def test_what_is_no_file_is_refused(tree, names, said):
    tree["one.py"] = WORKLOAD
    with pytest.raises(UsageError, match=said):
        resolve_affected(names, {})
    assert CliRunner().invoke(main, ["check", "--affected", *names]).exit_code == 2


@pytest.mark.parametrize("option", ["--affected", "--force-exclude"])
def test_a_name_that_no_file_can_have_is_an_error(tree, option):
    done = CliRunner().invoke(main, ["check", option, "x" * 300])
    assert done.exit_code == 2
    assert "File name too long" in done.stderr
    assert "mistake in memlint" not in done.stderr


def test_a_configured_target_that_is_gone_is_an_error(tree):
    tree["pyproject.toml"] = "[[tool.memlint.workload]]\ntarget = 'gone.py::Net'\n"
    (targets,) = resolve_affected(["gone.py"], {})
    ((name, error),) = targets.lost
    assert (name, error.message) == ("gone.py::Net", "gone.py does not exist")


def test_what_was_left_out_is_said_in_one_line_and_is_no_error(tree):
    tree.write(**{f"model_{number}.py": WORKLOAD for number in range(7)}, **{"unrelated.py": ""})
    done = CliRunner().invoke(main, ["check", "--affected", "unrelated.py"])
    assert done.exit_code == 0
    shown = ", ".join(f"model_{number}.py" for number in range(5))
    assert f"  not affected by these files: {shown} and 2 more\n" in done.stdout


def test_corrections_are_made_in_the_files_that_are_named_alone(tree):
    tree.write(**{"one.py": LEAK, "two.py": LEAK})
    done = CliRunner().invoke(main, ["check", "--affected", "--fix", "--unsafe-fixes", "one.py"])
    assert "empty_cache" not in Path("one.py").read_text(), done.output
    assert "empty_cache" in Path("two.py").read_text()


# --- exclude


def test_an_excluded_file_that_is_named_is_checked_unless_exclusion_is_forced(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['vendor', 'generated/*.py']\n"
    for name in ("vendor/deep/x.py", "generated/x.py", "mine/generated.py"):
        tree[name] = ""
    for name in ("vendor/deep/x.py", "generated/x.py"):
        assert resolve(name, {}).files == (Path(name),)
        forced = resolve(name, {}, force_exclude=True)
        assert (forced.files, forced.requests, forced.excluded) == ((), (), (Path(name),))
    assert resolve("mine/generated.py", {}, force_exclude=True).files == (Path("mine/generated.py"),)


def test_patterns_count_from_the_configuration_wherever_the_command_runs(tree, monkeypatch):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['src/vendor']\n"
    tree["src/vendor/x.py"] = ""
    monkeypatch.chdir(tree.directory / "src" / "vendor")
    assert resolve("x.py", {}, force_exclude=True).excluded == (Path("x.py"),)
    monkeypatch.chdir(tree.directory)
    assert resolve("src/vendor", {}, force_exclude=True).excluded == (Path("src/vendor"),)
    assert resolve(".", {}, force_exclude=True).files == ()


def test_patterns_of_exclude_are_those_of_a_gitignore(tree):
    tree["pyproject.toml"] = (
        "[tool.memlint]\n"
        "exclude = ['/top.py', 'src/*/gen', 'deep/**/x.py', 'only/', '*_old.py', 'kept/*', '!kept/ours.py']\n"
    )
    left_out = ("top.py", "src/a/gen/x.py", "deep/a/b/x.py", "only/x.py", "a/b_old.py", "kept/theirs.py")
    kept = ("src/top.py", "src/a/b/gen/x.py", "deep/a/y.py", "a/only.py", "kept/ours.py")
    tree.write(**dict.fromkeys((*left_out, *kept), ""))
    assert sorted(map(str, resolve(".", {}).files)) == sorted(kept)
    assert [str(file) for file in resolve("src", {}).files] == ["src/top.py", "src/a/b/gen/x.py"]
    assert [resolve(name, {}, force_exclude=True).excluded for name in left_out] == [(Path(n),) for n in left_out]
    assert [resolve(name, {}, force_exclude=True).excluded for name in kept] == [()] * len(kept)


def test_within_an_excluded_folder_that_is_named_patterns_count_from_it(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['vendor', '*_old.py']\n"
    tree.write(**dict.fromkeys(("vendor/x.py", "vendor/x_old.py", "vendor/vendor/x.py", "vendor/sub/x.py"), ""))
    assert list(map(str, resolve("vendor", {}).files)) == ["vendor/x.py", "vendor/sub/x.py"]
    assert list(map(str, resolve("vendor/sub", {}).files)) == ["vendor/sub/x.py"]


def test_a_pattern_without_meaning_is_an_error(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['!']\n"
    with pytest.raises(UsageError, match="exclude"):
        resolve(".", {})


@pytest.mark.usefixtures("executed_pythons")
def test_only_exclude_takes_the_library_for_patterns(tree):
    tree["one.py"] = LEAK
    code = "import sys\nfrom memlint.cli import main\nmain(['check', '--no-exec', 'one.py'], standalone_mode=False)\n"
    code += "assert 'pathspec' not in sys.modules and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MEM601" in done.stdout
    assert not done.stderr


def test_an_excluded_file_is_not_checked_but_still_a_part_of_a_workload(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['vendor']\n"
    tree["vendor/layers.py"] = LEAK
    tree["one.py"] = f"import vendor.layers\n{WORKLOAD}"
    [targets] = resolve_affected(["vendor/layers.py"], {}, force_exclude=True)
    assert targets.files == ()
    assert [request.target for request in targets.requests] == ["one.py"]


def test_nothing_but_excluded_files_is_clean_and_said(tree):
    tree["pyproject.toml"] = "[tool.memlint]\nexclude = ['vendor']\n"
    tree.write(**{"vendor/x.py": LEAK, "vendor/y.py": LEAK})
    done = CliRunner().invoke(main, ["check", "--no-exec", "--force-exclude", "vendor/x.py", "vendor/y.py"])
    assert done.exit_code == 0
    assert "left out by `exclude`: vendor/x.py, vendor/y.py" in done.stdout
    assert CliRunner().invoke(main, ["check", "--no-exec", "vendor/x.py"]).exit_code == 1


def test_a_stub_that_is_named_is_read_and_not_imported(tree):
    tree["stub.pyi"] = "x: int"
    done = CliRunner().invoke(main, ["check", "stub.pyi"])
    assert done.exit_code == 0, done.output


def test_a_broken_file_hides_nothing_in_the_files_named_beside_it(tree):
    tree.write(**{"one.py": LEAK, "broken.py": "def (", "two.py": LEAK})
    done = CliRunner().invoke(
        main, ["check", "--no-exec", "--output-format", "concise", "one.py", "broken.py", "two.py"]
    )
    assert done.exit_code == 2
    assert "one.py:7:9: MEM601" in done.stdout
    assert "two.py:7:9: MEM601" in done.stdout
    assert "broken.py" in done.output


def test_findings_in_files_that_are_named_are_kept_for_the_next_run(tree):
    tree.write(**{"one.py": LEAK, "two.py": LEAK})
    CliRunner().invoke(main, ["check", "--no-exec", "one.py", "two.py"])
    assert len(list((tree.directory / cachedir.NAME / "source").glob("*.json"))) == 2


def test_neighbours_of_one_project_are_checked_as_one_and_others_apart(tree):
    tree["sub/memlint.toml"] = ""
    tree.write(**{"one.py": WORKLOAD, "two.py": WORKLOAD, "sub/three.py": WORKLOAD})
    names = ("one.py", "two.py", "sub/three.py", "one.py::memlint_workload", "two.py")
    merged = together([resolve(name, {}) for name in names])
    assert [[request.target for request in each.requests] for each in merged] == [
        ["one.py", "two.py"],
        ["sub/three.py"],
        ["one.py::memlint_workload"],
        ["two.py"],
    ]
