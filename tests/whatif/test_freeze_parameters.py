"""Freezing parameters in a program."""

import pytest
import torch

from memlint.whatif.change import ChangedProgram, NotApplicableError
from memlint.whatif.changes import FreezeParameters


class Small:
    """A program of one layer on the host."""

    def __init__(self, model):
        self.model = model

    def setup(self):
        """Everything is there."""

    def step(self):
        self.model(torch.ones(1, 2)).sum().backward()


def test_only_the_named_parameters_get_no_gradient():
    program = ChangedProgram(Small(torch.nn.Linear(2, 3)), FreezeParameters(("weight",)))
    program.setup()
    program.step()
    assert program.model.weight.grad is None
    assert program.model.bias.grad is not None


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 3, bias=False), None], ids=["no such parameter", "no model"])
def test_it_does_not_apply_where_there_is_no_such_parameter(model):
    with pytest.raises(NotApplicableError):
        ChangedProgram(Small(model), FreezeParameters(("bias",))).setup()
