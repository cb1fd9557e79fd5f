"""The owner of a file: Python, an installed package, memlint or the user."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_folder_into_which_pip_has_installed_is_no_code_of_the_users_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "packages" / "net-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    program = "import sys; from memlint.base.ownership import is_users; print(*map(is_users, sys.argv[1:]))"
    files = [str(tmp_path / folder / "net.py") for folder in ("packages", "project")]
    search_path = os.pathsep.join(map(str, (tmp_path / "packages", tmp_path / "project")))
    environment = {**os.environ, "PYTHONPATH": search_path}
    done = subprocess.run([sys.executable, "-c", program, *files], env=environment, capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"True"]
