"""What source rules leave alone: code that was reported once and is right as it stands."""

import pytest

from memlint.lint.registry import load_rules
from memlint.lint.runner import check_source
from memlint.source.scopes import differentiates, is_test
from memlint.source.text import Source

WRAPS = "model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0], find_unused_parameters=True)\n"
FULL = "from torch.distributed.fsdp import FullStateDictConfig\n"


def codes(text):
    return {finding.code for finding in check_source(Source.from_text(text, "a.py"), load_rules().rules)}


def findings(text, code):
    return check_source(Source.from_text(text, "a.py"), [load_rules()[code]])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import torch\n" + WRAPS, "MEM605"),
        (
            "import torch\nindices = torch.zeros(1)\nfor i in range(n):\n    indices = torch.cat((indices, x[i]))\n",
            "MEM410",
        ),
        (
            "import torch\nfor parameter in model.parameters():\n    parameter.grad.zero_()\n",
            "MEM205",
        ),
        ("import torch\n\ndef f(model, path):\n    state_dict = torch.load(path)\n    model.cuda()\n", "MEM506"),
    ],
)
@pytest.mark.parametrize(
    "imported", ["import unittest", "import pytest", "from torch.testing._internal.common_utils import TestCase"]
)
def test_unit_tests_are_small_on_purpose(text, code, imported):
    assert code in codes(text)
    assert code not in codes(f"{imported}\n{text}")


def test_a_library_that_only_imports_numpys_testing_is_no_test():
    assert not is_test(Source.from_text("import numpy.testing\nimport torch\nimport pytest_like\n", "a.py"))


def test_a_configuration_of_fsdp_is_reported_where_a_state_dict_is_taken():
    taken = f"{FULL}\ndef save(model, kind):\n    set_state_dict_type(model, kind, FullStateDictConfig())\n"
    assert "MEM507" in codes(taken)
    default = f"{FULL}\ndef start(state):\n    state.config = FullStateDictConfig()\n    return state\n"
    assert "MEM507" not in codes(default)


def test_what_was_written_into_memory_is_read_where_it_was():
    text = (
        "import io\nimport torch\n\ndef copy(model):\n    b = io.BytesIO()\n    torch.save(model.state_dict(), b)\n"
        "    model.cuda()\n    state_dict = torch.load({})\n    model.load_state_dict(state_dict)\n"
    )
    assert "MEM506" in codes(text.format("path"))
    assert "MEM506" not in codes(text.format("b"))


def test_the_collector_matters_where_there_are_tensors_on_a_device():
    text = "import gc\nimport torch\n\ndef read(files):\n    gc.disable()\n    return [open(file) for file in files]\n"
    assert "MEM602" not in codes(text)
    assert "MEM602" in codes(text + "\ndevice = torch.device('cuda')\n")


def test_a_file_differentiates_where_a_word_ends_in_backward():
    assert differentiates(Source.from_text("self.manual_backward(loss)\n", "a.py"))
    assert not differentiates(Source.from_text("backwards = 1\n", "a.py"))


VALIDATES = """\
import torch

def validate_model(model, loader):
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(-1) == y).sum().item()
    return correct / len(loader)

def fit(model, loader, optimizer):
    history = []
    for x, y in loader:
        model(x).mean().backward()
        optimizer.step()
        val_acc = validate_model(model, loader)
        history.append(val_acc)
    plot(history)
"""


@pytest.mark.parametrize(
    "defined",
    [
        VALIDATES,
        VALIDATES.replace("def validate_model(", "class Trainer:\n  def validate_model(").replace(
            "= val", "= self.val"
        ),
        "from evaluation import validate_model\n" + VALIDATES.replace("def validate_model", "def other"),
    ],
    ids=["function", "method", "imported"],
)
def test_what_a_function_named_after_a_model_returns_is_no_output(defined):
    if "class" in defined:
        defined = defined.replace("\n    ", "\n      ")
    assert not {"MEM401", "MEM402", "MEM405"} & codes(defined)


def test_what_may_be_a_number_is_not_detached():
    text = "import torch\n\ndef evaluate(model, loader):\n    kept = []\n    for x in loader:\n        kept.append(model(x))\n"
    (finding,) = findings(text, "MEM402")
    assert finding.correction is None
    (finding,) = findings(f"{text}    return torch.stack(kept)\n", "MEM402")
    assert finding.correction is not None


DATA = """\
import numpy as np
import torch
from torch.utils.data import Dataset

class Shards(Dataset):
    def __init__(self, paths):
"""


@pytest.mark.parametrize("load", ["np.load(p, mmap_mode='r')", "np.load(p, 'r')", "torch.load(p, mmap=True)"])
def test_arrays_that_are_mapped_are_not_read(load):
    listed = f"{DATA}        self.shards = [{{}} for p in paths]\n"
    assert "MEM502" in codes(listed.format("np.load(p)"))
    assert "MEM502" in codes(listed.format("np.load(p, mmap_mode=None)"))
    assert "MEM502" not in codes(listed.format(load))


def test_a_profiler_that_a_flag_turns_on_is_nobodys_mistake():
    text = (
        "import torch\n\ndef fit(model, loader, args):\n"
        "    with torch.autograd.profiler.profile({}) as profiler:\n"
        "        for x in loader:\n            model(x).mean().backward()\n"
    )
    assert "MEM411" in codes(text.format(""))
    assert "MEM411" in codes(text.format("enabled=True"))
    for switch in ("args.enable_profiling", "enabled=args.enable_profiling", "False"):
        assert "MEM411" not in codes(text.format(switch))


def test_loads_onto_the_gpu_are_reported_once_for_a_file_and_corrected_together():
    load = "    net.load_state_dict(torch.load({!r}))\n"
    text = "import torch\n\ndef resume(net):\n    net.cuda()\n" + "".join(map(load.format, "abc"))
    (finding,) = findings(text, "MEM506")
    assert finding.line == 5
    assert "2 more" in finding.message
    assert "line 6" in finding.message
    assert [edit.text for edit in finding.correction.edits] == [', map_location="cpu"'] * 3
