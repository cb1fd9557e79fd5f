from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
assert "torchvision" not in sys.modules
import torchvision
assert torchvision.models.resnet18()(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)
assert torch.ops.torchvision.roi_align.default._schema.arguments[-1].name == "aligned"
"""


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_torchvision_imports_with_or_without_its_compiled_operators():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
