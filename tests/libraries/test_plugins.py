"""Stand-ins of other distributions: docs/library-plugins.md, whose example is installed here, and what breaks."""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import memlint_libraries
import pytest

from memlint.base import broken_plugins
from memlint.libraries import plugins
from memlint.libraries.finders import Finder
from memlint.libraries.library import Library
from memlint.libraries.plugins import GROUP, PluginError, Plugins

pytestmark = pytest.mark.usefixtures("copied_pythons")

PAGE = (Path(__file__).parents[2] / "docs/library-plugins.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
ASSUMED = "kernels of acme-kernels are not run: they take what the sources of version 1.4.0 say"
SCRIPT = """
import torch
from acme_kernels import gelu_linear

weight = torch.zeros(4096, 1024, device="cuda", requires_grad=True)
for _ in range(3):
    gelu_linear(torch.zeros(64, 1024, device="cuda"), weight).sum().backward()
"""


def install(site: Path, pyproject: str, **modules: str) -> None:
    """Lay a distribution as pip does into the folder `site`: its modules, its metadata and its entry points."""
    project = tomllib.loads(pyproject)["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entries = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, ""]), encoding="utf-8")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path):
    """A project that uses the package of the page."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "memlint.toml").touch()
    (folder / "model.py").write_text(FILES["model.py"], encoding="utf-8")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    return folder


def workload_of(project: Path, site: Path, *arguments: str) -> dict[str, Any]:
    """The record of the only workload, where packages are imported from the folder `site` as well."""
    paths = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "memlint", *arguments[:1], "--output-format", "json", "--select", "MEM010"]
    done = subprocess.run(
        [*command, *arguments[1:]],
        cwd=project,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    workloads: list[dict[str, Any]] = json.loads(done.stdout)["workloads"]
    return workloads[0]


def texts_of(workload: dict[str, Any]) -> list[str]:
    return [each["text"] for each in workload["assumptions"]]


def test_the_stand_in_of_the_page_is_used_by_check(project, tmp_path):
    site = tmp_path / "site-packages"
    install(site, FILES["pyproject.toml"], acme_stand_in=FILES["acme_stand_in.py"])
    workload = workload_of(project, site, "check", "--timeline", "model.py", "--batch", "64")
    assert workload["error"] is None
    assert ASSUMED in texts_of(workload)
    timeline = workload["timeline"]
    sites = [timeline["sites"][site] for site in timeline["buffer_sites"]]
    made = [
        (nbytes, site["line"])
        for site, nbytes in zip(sites, timeline["nbytes"], strict=True)
        if site["op"] == "memlint_acme_kernels.forward.default"
    ]
    assert made == 2 * [(256 << 10, 11), (1 << 20, 11)]  # workspace and output, in each of two steps


def test_one_that_is_developed_beside_the_project_is_used_by_run_and_its_lines_are_nobodys(project, tmp_path):
    site = tmp_path / "src"
    install(site, FILES["pyproject.toml"], acme_stand_in=FILES["acme_stand_in.py"])
    workload = workload_of(project, site, "run", "train.py")
    assert workload["error"] is None
    assert ASSUMED in texts_of(workload)
    assert {each["path"] for each in workload["estimate"]["at_peak"]} == {"train.py"}
    assert "memlint_acme_kernels.backward.default" in {each["op"] for each in workload["estimate"]["at_peak"]}


BROKEN = "the stand-in for acme_kernels that acme-stand-in 1.4.0 brings cannot be loaded: ZeroDivisionError: "


def test_a_broken_one_is_named_where_the_package_is_not_installed(project, tmp_path):
    site = tmp_path / "site-packages"
    install(site, FILES["pyproject.toml"], acme_stand_in="1 / 0\n")
    error = workload_of(project, site, "run", "train.py")["error"]
    assert BROKEN in error["message"]
    assert error["hint"] == "Update or uninstall acme-stand-in."


def test_a_broken_one_is_assumed_where_the_package_is_installed_until_it_is_mended(project, tmp_path):
    site = tmp_path / "site-packages"
    own = "from torch.nn.functional import linear as gelu_linear\n"
    install(site, FILES["pyproject.toml"], acme_stand_in="1 / 0\n", acme_kernels=own)
    workload = workload_of(project, site, "check", "model.py")
    assert workload["error"] is None
    assert any(text.startswith(BROKEN) for text in texts_of(workload)), texts_of(workload)
    (site / "acme_stand_in.py").write_text(FILES["acme_stand_in.py"], encoding="utf-8")
    texts = texts_of(workload_of(project, site, "check", "model.py"))
    assert ASSUMED in texts
    assert not any(text.startswith(BROKEN) for text in texts)


def test_a_mistake_in_a_function_of_a_stand_in_is_its_authors(project, tmp_path):
    site = tmp_path / "site-packages"
    text = FILES["acme_stand_in.py"].replace("temporary(4 * x.numel())", "temporary(4 * x.sizes())")
    install(site, FILES["pyproject.toml"], acme_stand_in=text)
    error = workload_of(project, site, "run", "train.py")["error"]
    assert "'Tensor' object has no attribute 'sizes'" in error["message"]
    assert "The stand-in for acme_kernels that acme-stand-in 1.4.0 brings raises it" in error["hint"]
    assert "acme_stand_in.py:12)" in error["hint"]


@pytest.fixture
def finder(monkeypatch):
    """Finds the packages of entries in this process, with modules that are text."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(broken_plugins, "_reasons", {})
    before = set(sys.modules)

    def find(site: Path, *entries: EntryPoint, **modules: str) -> None:
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(site))
        Finder((), Plugins(entries)).install()

    yield find
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]


MAKES = """
from memlint.libraries.library import Library
library = Library({name!r}, distribution="acme", version="1", extensions=("{name}_C",))
library.modules[{name!r}] = {{"VALUE": {value}}}
library.modules["{name}_C"] = {{"run": lambda: {value}}}
"""


def test_nothing_is_imported_before_the_program_imports_the_package(finder, tmp_path):
    finder(
        tmp_path, EntryPoint("acme_lazy", "acme_standing:library", GROUP),
        acme_standing=MAKES.format(name="acme_lazy", value=3),
    )  # fmt: skip
    assert importlib.util.find_spec("acme_lazy") is None
    assert "acme_standing" not in sys.modules
    import acme_lazy

    assert acme_lazy.VALUE == 3
    assert "acme_standing" in sys.modules


def test_a_package_that_is_installed_imports_its_compiled_module(finder, tmp_path):
    finder(
        tmp_path, EntryPoint("acme_real", "acme_standing:library", GROUP),
        acme_standing=MAKES.format(name="acme_real", value=4),
        acme_real="import acme_real_C\nVALUE = 0\nOWN = acme_real_C.run()\n",
    )  # fmt: skip
    import acme_real

    assert (acme_real.VALUE, acme_real.OWN) == (4, 4)


def test_a_package_may_bring_the_stand_in_for_its_own_compiled_module(finder, tmp_path):
    package = tmp_path / "acme_whole"
    package.mkdir()
    (package / "__init__.py").write_text("from acme_whole import _C\nRAN = _C.run()\n", encoding="utf-8")
    (package / "_memlint.py").write_text(
        "import sys\n"
        "from memlint.libraries.library import Library\n"
        "IS_FIRST = not hasattr(sys.modules['acme_whole'], 'RAN')\n"
        "library = Library('acme_whole', distribution='acme', version='2', extensions=('acme_whole._C',))\n"
        "@library.provides('acme_whole._C')\n"
        "def run():\n    return 8\n",
        encoding="utf-8",
    )
    finder(tmp_path, EntryPoint("acme_whole", "acme_whole._memlint:library", GROUP))
    import acme_whole

    assert acme_whole.RAN == 8
    assert sys.modules["acme_whole._memlint"].IS_FIRST


def test_another_package_may_need_a_library(finder, tmp_path):
    patched = (
        MAKES.format(name="acme_used", value=5) + "library.patch('acme_user')(lambda module: setattr(module, 'x', 6))"
    )
    finder(
        tmp_path, EntryPoint("acme_user", "acme_standing:library", GROUP),
        acme_standing=patched, acme_user="x = None\n",
    )  # fmt: skip
    import acme_user

    assert acme_user.x == 6


def test_where_one_is_broken_the_next_one_is_used_and_memlints_own_comes_last(finder, tmp_path):
    name = "acme_twice"
    entries = [
        EntryPoint(name, "memlint_libraries.acme_own:library", GROUP),
        EntryPoint(name, "acme_b:library", GROUP),
        EntryPoint(name, "acme_a:nothing", GROUP),
    ]
    finder(tmp_path, *entries, acme_a="nothing = 1\n", acme_b=MAKES.format(name=name, value=7))
    import acme_twice

    assert acme_twice.VALUE == 7
    (problem,) = broken_plugins.reasons()
    assert "TypeError: acme_a:nothing is 1, and no memlint.libraries.library.Library" in problem


def test_a_program_that_can_do_without_a_broken_one_goes_on(finder, tmp_path):
    finder(tmp_path, EntryPoint("acme_broken", "acme_standing:library", GROUP), acme_standing="raise SystemExit(3)\n")
    with pytest.raises(ImportError, match=r"acme_broken .* SystemExit: 3 \(.*acme_standing\.py:1\)") as raised:
        import acme_broken  # noqa: F401
    assert isinstance(raised.value, PluginError)
    assert "Update or uninstall acme_standing:library" in raised.value.hint


def test_every_stand_in_that_memlint_brings_has_a_library_that_can_be_loaded():
    brought = [each for each in entry_points(group=GROUP) if each.module.partition(".")[0] == plugins.BUILT_IN]
    loaded = {each.name: each.load() for each in brought}
    assert all(isinstance(library, Library) for library in loaded.values())
    assert {name for name, library in loaded.items() if library.name != name} == {"torchao"}  # which needs mslk
    files = {module.name for module in pkgutil.iter_modules(memlint_libraries.__path__)}
    assert files - {each.module.partition(".")[2] for each in brought} == {"groups", "points"}
