"""The VS Code extension: what it does with VS Code, the server as VS Code's library speaks with it, and its package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pygls")

EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"


def ran(*command, cwd, **environment):
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """The extension with what it needs from npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not there")
    folder = tmp_path_factory.mktemp("vscode") / "extension"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules", "*.vsix"))
    status, output = ran("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    if status:
        pytest.skip(f"npm cannot install: {output.strip().splitlines()[-1]}")
    return folder


@pytest.mark.slow
def test_the_extension_and_the_server_understand_each_other(extension):
    command = json.dumps([sys.executable, "-m", "memlint", "lsp"])
    status, output = ran("node", "--test", "test/", cwd=extension, MEMLINT_LSP=command)
    assert status == 0, output
    assert "# skipped 0" in output
    assert "# fail 0" in output


@pytest.mark.slow
def test_the_package_has_what_the_extension_needs(extension):
    status, output = ran("npm", "run", "package", "--", "-o", "memlint.vsix", cwd=extension)
    assert status == 0, output
    with zipfile.ZipFile(extension / "memlint.vsix") as package:
        names = set(package.namelist())
    assert {"extension/extension.js", "extension/node_modules/vscode-languageclient/package.json"} <= names
    assert not any(name.startswith("extension/test/") for name in names)


def test_settings_of_the_extension_are_those_of_the_server():
    from memlint.language_server.options import Options

    manifest = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
    settings = {name.removeprefix("memlint.") for name in manifest["contributes"]["configuration"]["properties"]}
    assert settings - {"command"} == set(Options().model_dump(by_alias=True))
    defaults = {
        name.removeprefix("memlint."): entry["default"]
        for name, entry in manifest["contributes"]["configuration"]["properties"].items()
        if name != "memlint.command"
    }
    assert defaults == Options().model_dump(by_alias=True)
