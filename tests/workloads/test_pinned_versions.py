"""Versions of packages that a project asks for, and others that are installed."""

import runpy
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest

from memlint.base.errors import WorkloadError
from memlint.workloads import pinned_versions
from memlint.workloads.loading import load_file
from memlint.workloads.pinned_versions import of_another_version, requirement_for
from memlint.workloads.user_errors import reported, what_to_do

_INSTALLED = version("networkx")
_CALLS = "import networkx\n\n\ndef build():\n    return networkx.function_of_another_version()\n"
_PINS = {
    "requirements.txt": "torch\nnetworkx==1.11  # newer ones have no such function\n",
    "environment.yml": "dependencies:\n  - networkx=1.11\n",
    "docker/environment.yaml": "dependencies:\n  - pip:\n    - networkx==1.11\n",
    "INSTALL.md": "1. pip install networkx==1.11 matplotlib\n",
    "README.md": "# Net\n\nIt needs `networkx==1.11`.\n",
    "pyproject.toml": '[project]\nname = "net"\ndependencies = ["networkx<2"]\n',
    "setup.py": 'setup(install_requires=["networkx>=1.9, <=1.11"])\n',
}


def _error(folder: Path, code: str = _CALLS) -> Exception:
    (folder / "nets").mkdir()
    file = folder / "nets" / "model.py"
    file.write_text(code)
    with pytest.raises((TypeError, AttributeError, KeyError)) as caught:
        load_file(file, folder).build()
    return caught.value


@pytest.mark.parametrize("name", _PINS)
def test_an_error_on_a_line_that_uses_another_version_names_the_one_that_the_project_asks_for(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(_PINS[name])
    hint = of_another_version(_error(tmp_path))
    assert "The project asks for networkx" in hint
    assert f"{tmp_path / name}:" in hint
    assert f"and {_INSTALLED} is installed: pip install" in hint


@pytest.mark.parametrize(
    "line",
    [
        "(networkx == 1).astype(int)",
        "{}['width'], networkx.Graph",
        "type('Rows', (), {})().length, networkx",
        "[0][DATA:]",
        "networkx.Graph and {} / 2",
    ],
)
def test_a_package_that_a_line_only_names_has_nothing_to_do_with_what_another_object_lacks(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    assert (
        of_another_version(
            _error(tmp_path, f"import networkx\nDATA = networkx.Graph()\ndef build():\n    return {line}\n")
        )
        == ""
    )


def test_a_package_may_have_another_name_in_an_environment_of_conda(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(pinned_versions._OF_CONDA, "networkx", "nx")
    (tmp_path / "environment.yml").write_text("dependencies:\n  - nx=1.11=py38_0\n")
    assert "pip install networkx==1.11" in of_another_version(_error(tmp_path))


def test_the_cause_of_an_error_of_another_kind_counts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    wrapped = RuntimeError("Error in call to target 'nets.model.build'")
    wrapped.__cause__ = _error(tmp_path)
    assert "The project asks for networkx" in of_another_version(wrapped)


def test_an_error_that_a_package_raises_from_one_of_its_own_has_the_line_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    raised = _error(tmp_path)
    wrapped = RuntimeError("Validation error").with_traceback(raised.__traceback__)
    wrapped.__cause__ = TypeError("expected int, got str")
    assert "The project asks for networkx" in of_another_version(wrapped)


def test_a_version_that_is_installed_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"networkx>={_INSTALLED}\n")
    assert of_another_version(_error(tmp_path)) == ""


def test_an_error_that_has_nothing_to_do_with_the_package_does_not_name_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    code = "import networkx\n\n\ndef build():\n    graph = networkx.Graph()\n    return {}.nothing\n"
    assert of_another_version(_error(tmp_path, code)) == ""


def test_a_call_of_the_projects_own_function_is_of_no_package(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    code = """
        import networkx

        class Net(networkx.Graph):
            def loss(self, rate):
                return rate

            def step(self):
                return self.loss(1, 2)

        def build():
            return Net().step()
    """
    hint = what_to_do(_error(tmp_path, textwrap.dedent(code)))
    assert hint == f"Let {tmp_path}/nets/model.py:9 and {tmp_path}/nets/model.py:5 agree: both are the project's own."


def test_an_error_raised_inside_of_the_package_counts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    code = "from networkx import Graph as make\n\n\ndef build():\n    graph = make()\n    return graph.add_weighted_edges_from(3)\n"
    assert "networkx==1.11" in of_another_version(_error(tmp_path, code))


def test_a_name_that_cannot_be_imported_from_another_version_counts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    file = tmp_path / "model.py"
    file.write_text("def build():\n    from networkx import function_of_another_version\n")
    with pytest.raises(WorkloadError) as caught, reported("the model cannot be built"):
        load_file(file, tmp_path).build()
    assert f"networkx==1.11 ({tmp_path / 'requirements.txt'}:1)" in caught.value.hint


def test_a_lower_bound_does_not_say_that_the_newest_version_will_do(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("networkx>=1.9\n")
    error = _error(tmp_path)
    assert "no file of the project names the one it was written for" in what_to_do(error)
    (tmp_path / "requirements.txt").write_text(f"networkx>=1.9,<={_INSTALLED}\n")
    assert "networkx" not in what_to_do(error)


def test_arguments_that_pydantic_refuses_for_a_package_are_of_its_version(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "site-packages/crops_of_before"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "def crop(**given):\n    raise ValueError('1 validation error for InitSchema\\nstd_range\\n  a tuple')\n"
    )
    (package.parent / "crops_of_before-2.0.8.dist-info").mkdir()
    (package.parent / "crops_of_before-2.0.8.dist-info/METADATA").write_text("Name: crops_of_before\nVersion: 2.0.8\n")
    monkeypatch.syspath_prepend(str(package.parent))
    file = tmp_path / "model.py"
    file.write_text("import crops_of_before\n\n\ndef build():\n    crops_of_before.crop(std_range=10)\n")
    with pytest.raises(ValueError, match="std_range") as caught:
        load_file(file, tmp_path).build()
    assert what_to_do(caught.value).endswith("type pip install 'crops-of-before<2'.")


def test_where_no_file_names_a_version_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\nnetworkx\n")
    hint = what_to_do(_error(tmp_path))
    assert hint.startswith(
        f"networkx {_INSTALLED} is installed, and no file of the project names the one it was written"
    )
    assert hint.endswith(f"type pip install 'networkx<{_INSTALLED.partition('.')[0]}'.")


@pytest.mark.parametrize(
    ("installed", "older"), [("5.13.0", "5"), ("0.36.0", "0.36"), ("1.0.31", "1"), ("0.0.7", "0.0.7")]
)
def test_of_older_versions_those_are_named_in_which_names_may_still_be_there(tmp_path, monkeypatch, installed, older):
    monkeypatch.setattr(pinned_versions, "version", lambda _distribution: installed)
    hint = pinned_versions.version_hint("networkx", str(tmp_path / "model.py:1"))
    assert hint.endswith(f"type pip install 'networkx<{older}'.")


def test_a_module_of_pythons_has_no_other_version_though_a_package_of_its_name_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_versions, "version", lambda _distribution: "1.4.0")
    assert not pinned_versions.version_hint("argparse", str(tmp_path / "model.py:1"))


def test_an_older_pytorch_is_never_to_be_installed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.8.0\n")
    code = "import torch\n\n\ndef build():\n    return torch.function_of_another_version()\n"
    assert "pip install" not in what_to_do(_error(tmp_path, code))


@pytest.mark.parametrize(
    ("module", "asked", "distribution"),
    [
        ("cv2", "numpy\nopencv-python-headless==4.8\n", "opencv-python-headless"),
        ("cv2", "numpy\n", ""),
        ("skimage.io", "scikit_image>=0.19\n", "scikit_image"),
        ("clip", "-e git+https://github.com/someone/CLIP.git@main\n", "git+https://github.com/someone/CLIP.git"),
        ("yaml", "  - PyYAML=6.0\n", "PyYAML"),
        ("Levenshtein", "python-Levenshtein\n", "python-Levenshtein"),
        ("util", "pillow\n", ""),
    ],
)
def test_the_projects_requirements_say_under_which_name_a_module_is_installed(tmp_path, module, asked, distribution):
    (tmp_path / "requirements.txt").write_text(asked)
    assert requirement_for(module, tmp_path / "src/model.py") == distribution


def test_a_package_that_is_there_under_another_name_has_the_version_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text("networkx-full==1.11\n")
    monkeypatch.setattr(pinned_versions, "distribution_of", lambda _package: "networkx-full")
    assert f"{_INSTALLED} is installed: pip install networkx-full==1.11" in of_another_version(_error(tmp_path))


@pytest.mark.parametrize("code", ["def taken[T](x: T) -> T:\n    return = x\n", "from typing import NoNameOfToday\n"])
def test_what_this_python_cannot_read_names_the_one_that_the_project_asks_for(code: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "net"\nrequires-python = ">=3.99"\n')
    file = tmp_path / "model.py"
    file.write_text(code)
    with pytest.raises((SyntaxError, ImportError)) as caught:
        runpy.run_path(str(file))
    assert what_to_do(caught.value).startswith(f"The project asks for Python >=3.99 ({tmp_path}/pyproject.toml:3), and")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "net"\nrequires-python = ">=3.9"\n')
    assert "Python" not in what_to_do(caught.value)


@pytest.mark.parametrize("changing", [("networkx",), ()])
def test_an_assertion_in_a_package_that_changes_much_is_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changing: tuple[str, ...]
) -> None:
    import networkx as nx

    names: dict[str, object] = {}
    place = str(Path(nx.__path__[0], "pools.py"))
    exec(compile("def pooled(kind):\n    assert kind == 'avg', kind\n", place, "exec"), names)
    monkeypatch.setattr(nx, "pooled", names["pooled"], raising=False)
    monkeypatch.setattr(pinned_versions, "_CHANGING", changing)
    (tmp_path / "requirements.txt").write_text("networkx==1.11\n")
    (tmp_path / "model.py").write_text("import networkx\n\n\ndef build():\n    return networkx.pooled(True)\n")
    with pytest.raises(AssertionError) as caught:
        load_file(tmp_path / "model.py", tmp_path).build()
    assert bool(of_another_version(caught.value)) is bool(changing)
