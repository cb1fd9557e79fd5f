"""Files whose classes read what only their `__main__` block has."""

import sys

from memlint.workloads import main_names
from memlint.workloads.loading import load_file

FILE = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(width, len(words))

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
        assert (text.text, text.frame.line) == ("width, words as the file's `__main__` has them", 10)
    finally:
        del sys.modules["words_net"]
