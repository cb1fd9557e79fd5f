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
