"""A library's own tests on its stand-in: whether the functions that are known take what it is called with there.

    python benchmarks/library_tests.py CHECKOUT/tests/test_flash_attn.py -k "not 0.17"
    python benchmarks/library_tests.py CHECKOUT/test --most 1000 --device cpu

The tests run in a checkout of the library, on a simulated GPU, or with `--device cpu` on the host alone. What is on the
GPU has shapes and no values: comparisons of values are taken to hold there, and derivatives by differences. Functions
run that TorchScript would compile. Of many tests some are drawn. A test that needs a function that is not known counts
apart, and so does one that reads a value itself.
"""

from __future__ import annotations

import random
import runpy
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import torch
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from memlint_libraries import pyg_lib, spconv, torch_cluster, torch_scatter, torch_sparse, transformer_engine

from memlint.accelerator.device import is_virtual
from memlint.accelerator.values import content
from memlint.cuda.session import virtual_device
from memlint.libraries.finders import StandIn
from memlint.libraries.installation import install
from memlint.libraries.library import UnknownFunctionError
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.memory.devices import device_named


class Drawn:
    """Draws tests, and keeps how they ended."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.outcomes: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Some of them, the same each time."""
        if len(items) > self.most:
            items[:] = random.Random(0).sample(items, self.most)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:  # noqa: ARG002
        """Count it."""
        report = yield
        if report.when == "call" or report.failed or report.skipped:
            self.outcomes[self._outcome(report, call.excinfo)] += 1
        return report

    def _outcome(self, report: Any, failure: Any) -> str:
        if report.passed or report.skipped:
            return str(report.outcome)
        unknown = unknown_attribute(failure.value) or failure.value
        if isinstance(unknown, UnknownFunctionError):
            self.unknown[str(unknown).partition(" of ")[0]] += 1
            return "function not known"
        return "value read" if failure.typename == "AssertionError" else "failed"


def _holding(compare: Any) -> Any:
    def compared(*tensors: Any, **options: Any) -> Any:
        return any(map(is_virtual, tensors)) or compare(*tensors, **options)

    return compared


def _close(compare: Any) -> Any:
    def compared(left: Any, right: Any, **options: Any) -> None:
        if any(map(is_virtual, (left, right))):
            assert (left.shape, left.dtype) == (right.shape, right.dtype)
        else:
            compare(left, right, **options)

    return compared


def _deriving(check: Any) -> Any:
    """Gradients on the device have shapes alone."""

    def checked(function: Any, inputs: Any, **options: Any) -> Any:
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if not any(map(is_virtual, inputs)):
            return check(function, inputs, **options)
        differentiated = _listed(inputs)
        results = function(*inputs)
        gradients = torch.autograd.grad(sum(each.sum() for each in _listed(results)), differentiated)
        return [each.shape for each in gradients] == [each.shape for each in differentiated]

    return checked


def _listed(tensors: Any) -> list[Any]:
    """Those of one or several that require a gradient."""
    given = tensors if isinstance(tensors, tuple) else (tensors,)
    return [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]


class _Values(list[Any]):
    """What `tolist` gives of a shape whose values are not known: it equals lists of that shape."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and len(self) == len(other) and all(map(_alike, self, other))

    __hash__ = None  # type: ignore[assignment]


def _alike(mine: Any, other: Any) -> bool:
    return bool(mine == other) if isinstance(mine, list) else not isinstance(other, list)


def _of_shape(shape: Sequence[int]) -> Any:
    return _Values(_of_shape(shape[1:]) for _ in range(shape[0])) if shape else 0


def _knowing(tolist: Any) -> Any:
    def listed(tensor: torch.Tensor) -> Any:
        return _of_shape(tensor.shape) if is_virtual(tensor) and content(tensor) is None else tolist(tensor)

    return listed


def _testing(device: str) -> dict[str, Any]:
    """What `torch_scatter.testing` and its like have."""

    def tensor(values: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return None if values is None else torch.tensor(values, device=device).to(dtype)

    floating = [torch.float, torch.double]
    return {
        "reductions": ["sum", "add", "mean", "min", "max"],
        "dtypes": [*floating, torch.int, torch.long],
        "grad_dtypes": floating,
        "floating_dtypes": floating,
        "devices": [torch.device(device)],
        "tensor": tensor,
    }


def _decorators(device: str) -> dict[str, Any]:
    """What `pyg_lib.testing` has."""
    as_it_is = dict.fromkeys(("withSeed", "onlyTriton"), lambda test: test)
    on_gpu = pytest.mark.skipif(device == "cpu", reason="CUDA not available")
    return {**as_it_is, "onlyCUDA": on_gpu, "withCUDA": pytest.mark.parametrize("device", [torch.device(device)])}


def _support_transformer_engine() -> None:
    """What its tests use beside layers: initializers, a state that they reset, and its compiled module."""
    modules = transformer_engine.library.modules
    names = ("init_method_normal", "scaled_init_method_normal")
    modules["transformer_engine.pytorch.utils"] = {name: lambda *_: None for name in names}
    reset = SimpleNamespace(reset=lambda: None, FP8_TENSORS_RECOMPUTE_BUFFER=[])
    modules["transformer_engine.pytorch.quantization"] = {"FP8GlobalStateManager": reset}
    of_attention = "transformer_engine.pytorch.attention.dot_product_attention.utils"
    modules[of_attention] = {"check_set_window_size": lambda _mask, window: window}
    compiled = StandIn("transformer_engine_torch")
    compiled.library = transformer_engine.library
    dtypes = ("kByte", "kInt32", "kFloat32", "kFloat16", "kBFloat16", "kFloat8E4M3", "kFloat8E5M2")
    compiled.DType = Enum("DType", dtypes)  # type: ignore[attr-defined]
    sys.modules["transformer_engine_torch"] = compiled


def _support_spconv(tests: Path) -> None:
    """What its tests take of the package beside layers: its own file of helpers, where arrays have shapes alone."""
    path = tests.parent.parent / "spconv" / "test_utils.py"
    if not path.exists():
        return
    helpers = runpy.run_path(str(path))

    def of_one_shape(_case: Any, left: Any, right: Any, **_: Any) -> None:
        assert left.shape == right.shape

    helpers["TestCase"].assertAllClose = of_one_shape
    spconv.library.modules["spconv.test_utils"] = helpers


@click.command()
@click.argument("tests", type=click.Path(exists=True, path_type=Path))
@click.option("-k", "chosen", default="", help="As pytest's.")
@click.option("--most", default=100, show_default=True, help="Tests that are drawn.")
@click.option("--gpu", default="h100-80gb", show_default=True)
@click.option("--device", default="cuda:0", show_default=True, help="Of tests that ask the library for devices.")
def main(tests: Path, chosen: str, most: int, gpu: str, device: str) -> None:
    """Run the tests of a library, and count how they end."""
    install()
    for each in (torch_cluster, torch_scatter, torch_sparse):
        each.library.modules[f"{each.library.name}.testing"] = _testing(device)
    pyg_lib.library.modules["pyg_lib.testing"] = _decorators(device)
    _support_transformer_engine()
    _support_spconv(tests.resolve())
    sys.path.append(str(tests if tests.is_dir() else tests.parent))  # some have a module of helpers beside them
    torch.jit.script = lambda function, *_, **__: function  # type: ignore[assignment]
    torch.allclose, torch.equal = _holding(torch.allclose), _holding(torch.equal)
    torch.testing.assert_close = _close(torch.testing.assert_close)
    torch.autograd.gradcheck = _deriving(torch.autograd.gradcheck)
    torch.autograd.gradgradcheck = _deriving(torch.autograd.gradgradcheck)
    drawn = Drawn(most)
    options = ["-q", "--import-mode=importlib", "-pno:cacheprovider", "-pno:xdist", "--tb=line", "-c/dev/null"]
    with nullcontext() if device == "cpu" else virtual_device(device_named(gpu)):
        torch.Tensor.tolist = _knowing(torch.Tensor.tolist)  # type: ignore[method-assign]
        pytest.main([*options, *(["-k", chosen] if chosen else []), str(tests)], plugins=[drawn])
    print(tabulate(drawn.outcomes.most_common(), headers=["outcome", "tests"], tablefmt="github"))
    print(*(f"not known, {number} times: {name}" for name, number in drawn.unknown.most_common()), sep="\n")


if __name__ == "__main__":
    main()
