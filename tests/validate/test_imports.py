"""Imports of `memlint validate` and of the process that runs the real step, in Pythons of their own."""

from __future__ import annotations

import subprocess
import sys


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from memlint.cli import main;"
        "assert CliRunner().invoke(main, ['validate', '--help']).exit_code == 0;"
        "import memlint.commands.validate.validate;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_real_step_runs_in_a_process_that_knows_no_virtual_accelerator() -> None:
    code = (
        "import pathlib, sys, torch, memlint.session.measuring;"
        "from memlint.session.process_setup import ProcessSetup;"
        "ProcessSetup(pathlib.Path(), ['wandb'], simulates=False).arm();"
        "assert 'memlint.accelerator.registration' not in sys.modules;"
        "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
