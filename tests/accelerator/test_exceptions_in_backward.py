"""An exception that leaves a backward reaches the caller: on a device made in Python, PyTorch itself ends the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("copied_pythons")

SCRIPT = """
import sys
import torch
from torch.utils.checkpoint import checkpoint
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

class Stop(Exception):
    pass

def stop(*_):
    raise Stop("here")

def values(device):
    return torch.randn(2, 4, device=device, requires_grad=True)

def hook_of_a_tensor(device):
    y = values(device).exp()
    y.register_hook(stop)
    y.sum().backward()

def hook_after_accumulation(device):
    x = values(device)
    x.register_post_accumulate_grad_hook(stop)
    x.exp().sum().backward()

def hook_of_a_saved_tensor(device):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, stop):
        y = values(device).exp().sum()
    torch.autograd.grad(y, y.grad_fn.next_functions[0][0].next_functions[0][0].variable)

def kernel(device):
    y = values(device).exp()
    y.register_hook(lambda gradient: gradient + torch.ones(3, device=device))
    y.sum().backward()

def backward_inside_a_backward(device):
    def fails_again(_):
        raise Stop("there") if recomputed else Stop("too early")
    recomputed = []
    def block(x):
        y = x.exp()
        if torch.is_grad_enabled():
            recomputed.append(True)
            y.register_hook(fails_again)
        return y
    checkpoint(block, values(device), use_reentrant=True).sum().backward()

def early_stop(device):
    layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)]).to(device)
    y = values(device)
    for _ in range(2):
        y = checkpoint(layers, y, use_reentrant=False)
    y.sum().backward()

device = device_named(sys.argv[1])
for program in (hook_of_a_tensor, hook_after_accumulation, hook_of_a_saved_tensor, kernel, backward_inside_a_backward, early_stop):
    with virtual_device(device):
        try:
            program("cuda" if device.is_cuda else "cpu")
        except Exception as error:
            print(program.__name__, type(error).__name__, str(error).split(" (")[0], sep=": ")
        else:
            print(program.__name__, "ends", sep=": ")
"""


@pytest.mark.parametrize("gpu", ["a100-80gb", "cpu"])
def test_exceptions_in_a_backward_are_raised_where_it_was_called(gpu: str) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT, gpu], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [
        "hook_of_a_tensor: Stop: here",
        "hook_after_accumulation: Stop: here",
        "hook_of_a_saved_tensor: Stop: here",
        "kernel: RuntimeError: The size of tensor a",
        "backward_inside_a_backward: Stop: there",
        "early_stop: ends",
    ], ran.stderr
    assert ran.returncode == 0, ran.stderr
