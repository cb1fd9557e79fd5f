"""Files whose classes read what only their `__main__` block has."""

import sys

import torch

from memlint.workloads import main_names
from memlint.workloads.construction.construct import complete
from memlint.workloads.discover import find_workloads
from memlint.workloads.loading import load_file

FILE = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(width, len(words))
    def forward(self, x): return self.layer(x)

if __name__ == "__main__":
    words = "one two three".split()
    width = height = 2 * len(words)
    log = open("/nowhere/log", "w")
    net = Net().cuda()
"""


def test_a_class_is_built_with_the_values_of_the_block_and_nothing_else_of_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(main_names, "_given", {})
    path = tmp_path / "words_net.py"
    path.write_text(FILE)
    module = load_file(path)
    try:
        assert (module.Net().layer.in_features, module.Net().layer.out_features) == (6, 3)
        assert not hasattr(module, "height")
        (text,) = main_names.assumptions()
        assert (text.text, text.frame.line) == ("width, words as the file's `__main__` has them", 11)
    finally:
        del sys.modules["words_net"]


def test_the_default_dtype_is_that_of_the_block(tmp_path, monkeypatch):
    monkeypatch.setattr(main_names, "_given", {})
    path = tmp_path / "half_net.py"
    text = FILE.replace("width, len(words)", "4, 4").replace(
        '    words = "one', '    torch.set_default_dtype(torch.bfloat16)\n    words = "one'
    )
    path.write_text(f"import torch\n{text}")
    try:
        workload, _ = complete(find_workloads(str(path), tmp_path).workloads[0])
        assert workload.dtype == "bfloat16"
        assert [each.text for each in main_names.assumptions()] == [
            "default dtype torch.bfloat16 as the file's `__main__` has it"
        ]
    finally:
        torch.set_default_dtype(torch.float32)
        del sys.modules["half_net"]
