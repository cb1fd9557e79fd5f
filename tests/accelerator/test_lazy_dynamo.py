"""TorchDynamo is imported by who uses it, and by nobody else. Each test needs a process that has not imported it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import sys
from memlint.workload import torchvision_schemas
torchvision_schemas.install()
from memlint.accelerator import session
loaded = lambda: "torch._dynamo.convert_frame" in sys.modules
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_only_asks_about_it_does_not_import_it() -> None:
    run("""
import torch, torch.utils.checkpoint, torchvision.ops
weight = torch.nn.Parameter(torch.ones(2))
weight.sum().backward()
torch.optim.AdamW([weight]).step()
torch.utils.checkpoint.checkpoint(torch.exp, weight, use_reentrant=False).sum().backward()
assert torch._dynamo.config.verbose is False
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
with TransformGetItemToIndex():
    assert torch.arange(3)[torch.tensor(2)] == 2
assert not loaded()
""")


@pytest.mark.parametrize(
    "use",
    [
        "import torch; config = torch._dynamo.config; torch._dynamo.reset(); assert config is torch._dynamo.config",
        "import torch._dynamo; torch._dynamo.reset()",
        "from torch._dynamo.utils import counters; counters.clear()",
        "import torchvision.ops, torch; torch._dynamo.utils.counters.clear()",
        (
            "import torch; from torch._dynamo._trace_wrapped_higher_order_op import mod_index as used; "
            "from torch._dynamo import config, _trace_wrapped_higher_order_op as now; assert now.mod_index is used"
        ),
    ],
)
def test_whoever_uses_it_gets_the_real_one(use: str) -> None:
    run(
        f"{use}\nassert loaded()\nimport torch\nassert torch._dynamo is sys.modules['torch._dynamo']\n"
        "assert torch._dynamo.utils is sys.modules['torch._dynamo.utils'] and torch._dynamo.utils.__file__"
    )
