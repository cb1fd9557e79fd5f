"""The PyTorch on the GPU need not be the one that is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from memlint.base.errors import UsageError
from memlint.cli import main
from memlint.cuda.session import virtual_device
from memlint.cuda.versions import torch_version
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.targets.workload import Workload
from memlint.targets.workload_tables import render_declaration, workload_from_table
from memlint.tracing.recorder import trace_program

pytestmark = pytest.mark.usefixtures("copied_pythons")

A100 = device_named("a100-80gb")
MIB = 2**20


class Linear:
    def setup(self) -> None:
        self.layer = torch.nn.Linear(64, 64, device="cuda")
        self.x = torch.zeros(8, 64, device="cuda")

    def step(self) -> None:
        self.layer(self.x)


@pytest.mark.parametrize(("version", "kept", "given_back"), [((2, 8), 0, 2), ((2, 10), 1, 0), ((2, 13), 0, 0)])
def test_the_workspace_of_cublaslt_is_that_of_the_version(version: tuple[int, int], kept: int, given_back: int) -> None:
    trace = trace_program(Linear(), replace(A100, torch=version), num_steps=2).trace
    workspaces = [buffer for buffer in trace.buffers if buffer.nbytes == MIB]
    assert sum(buffer.died is None for buffer in workspaces) == kept
    assert sum(buffer.died is not None for buffer in workspaces) == given_back


@pytest.mark.parametrize(("version", "dtype"), [((2, 11), torch.float16), ((2, 12), torch.float32)])
def test_autocast_has_the_lists_of_the_version(version: tuple[int, int], dtype: torch.dtype) -> None:
    with virtual_device(replace(A100, torch=version)), torch.autocast("cuda", dtype=torch.float16):
        x = torch.zeros(4, 64, device="cuda", dtype=torch.float16)
        assert torch.nn.functional.rms_norm(x, (64,)).dtype is dtype


class Fragmented:
    """Blocks whose places decide what is reserved: 72 MiB if the lowest address is taken first, 58 if the highest is."""

    def setup(self) -> None:
        self.blocks: dict[int, torch.Tensor] = {}

    def step(self) -> None:
        for number, mib, dies in (
            *((1, 6, 0), (2, 9, 0), (3, 3, 1), (4, 11, 0), (5, 25, 4), (6, 3, 2), (0, 0, 5), (7, 9, 6), (8, 6, 8)),
            *((9, 25, 0), (10, 14, 3)),
        ):
            if mib:
                self.blocks[number] = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
            self.blocks.pop(dies, None)


def test_the_driver_s_addresses_decide_nothing_where_free_blocks_are_taken_by_age() -> None:
    """PyTorch 2.13 orders by age (pytorch/pytorch#183591): fixtures/allocator holds its binary's answers."""
    bounds = {}
    for version in ((2, 12), (2, 13)):
        gpu = replace(A100, torch=version)
        trace = trace_program(Fragmented(), gpu, num_steps=1).trace
        assert trace.streams.oldest_first is (version == (2, 13))
        bounds[version] = [nbytes / MIB for nbytes in estimate(Timeline.of(trace), gpu, trace.nodes).reserved]
    assert bounds[2, 12] == [53, 72, 77]
    assert bounds[2, 13] == [67, 72, 77]


def test_outside_of_a_simulation_and_by_default_it_is_the_installed() -> None:
    installed = tuple(map(int, torch.__version__.split(".")[:2]))
    assert torch_version() == installed
    with virtual_device(A100):
        assert torch_version() == installed
    with virtual_device(replace(A100, torch=(2, 9))):
        assert torch_version() == (2, 9)
    assert torch_version() == installed


def test_a_declaration_names_it() -> None:
    table = {"name": "net", "target": "torch.nn::Module", "torch": "2.8"}
    workload = workload_from_table(table, Path(), "here", origin="config")
    assert workload.device == replace(A100, torch=(2, 8))
    assert 'torch = "2.8"' in render_declaration(workload)
    assert "torch =" not in render_declaration(replace(workload, torch=""))


@pytest.mark.parametrize("version", ["2", "1.6", "0.4", "2.10.1", "newest"])
def test_what_is_no_known_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError) as error:
        Workload("net", "model.py::Net", torch=version)
    assert version in error.value.message
    assert "1.7" in error.value.hint


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    source = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(512, 512)\n"
    Path("model.py").write_text(source)
    return "model.py"


def answer(*arguments: str) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--output-format", "json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


NOT_UNIFIED = pytest.mark.skipif(torch_version() < (2, 13), reason="cuBLASLt has its own workspace up to torch 2.12")


@NOT_UNIFIED
def test_check_says_what_was_asked_for_and_what_it_covers(model: str) -> None:
    (here,) = answer("check", model, "--no-sweep")["workloads"]
    (there,) = answer("check", model, "--no-sweep", "--torch", "2.10")["workloads"]
    assert (here["torch"], there["torch"]) == ("", "2.10")
    texts = [
        [text["text"] for text in each["assumptions"] if text["text"].startswith("torch 2.10")]
        for each in (here, there)
    ]
    assert [len(each) for each in texts] == [0, 1]
    requested = [each["estimate"]["peak"]["requested"]["estimate"] for each in (here, there)]
    assert requested[1] == requested[0] + MIB


@NOT_UNIFIED
def test_sweep_takes_it(model: str) -> None:
    rows = [answer("sweep", model, "--batch", "8", *more)["sweeps"][0]["rows"] for more in ((), ("--torch", "2.10"))]
    assert rows[1][0]["requested"]["estimate"] == rows[0][0]["requested"]["estimate"] + MIB


def test_the_context_is_an_input_of_every_command_and_says_that_it_was_given(model: str) -> None:
    def device_of(*arguments: str) -> tuple[Any, Any]:
        (workload,) = answer("check", model, "--no-sweep", *arguments)["workloads"]
        return workload["estimate"]["peak"]["device"], workload

    here, seen = device_of()
    given, measured = device_of("--context", "|    0   N/A  N/A     12345      C   python     1740MiB |")
    assert given["estimate"] - here["estimate"] == (1740 << 20) - A100.context_nbytes
    assert (measured["context"], "context" in seen) == (1740 << 20, False)
    of_seen, of_measured = (each["estimate"]["doubtful"][0] for each in (seen, measured))
    assert of_seen["cause"] == of_measured["cause"] == "context"
    assert "--context" in of_seen["why"]
    assert "as given" in of_measured["why"]
    assert of_measured["above"] < of_seen["above"]
    (sweep,) = answer("sweep", model, "--batch", "8", "--context", "1740MiB")["sweeps"]
    assert sweep["rows"][0]["device"] == given
    old, _ = device_of("--torch", "1.12")
    assert old["estimate"] - here["estimate"] == pytest.approx(2.5 * A100.context_nbytes, abs=2 * MIB)


@pytest.mark.slow
@NOT_UNIFIED
def test_fit_takes_it(model: str) -> None:
    fits = [answer("fit", model, "--gpu", "t4", *more)["fits"][0] for more in ((), ("--torch", "2.10"))]
    here, there = (fit["ways"][0] for fit in fits)
    assert there["largest"]["batch"] <= here["largest"]["batch"]  # where one MiB more is no segment more, equal
    devices = [way["parts"]["device"]["estimate"] for way in (here, there)]
    assert devices[1] == devices[0] + 2 * MIB  # of a batch of 8: the workspace is a segment of its own


def kept_by_rms_norm(version: tuple[int, int], dtype: torch.dtype) -> list[int]:
    """Bytes that the forward of RMSNorm leaves for backward, the largest first."""

    class Norm:
        def setup(self) -> None:
            self.norm = torch.nn.RMSNorm(256, eps=1e-6, device="cuda", dtype=dtype)
            self.x = torch.zeros(64, 256, device="cuda", dtype=dtype, requires_grad=True)

        def step(self) -> None:
            self.y = self.norm(self.x)

    trace = trace_program(Norm(), replace(A100, torch=version), num_steps=1).trace
    return sorted((buffer.nbytes for buffer in trace.buffers if buffer.died is None), reverse=True)


HALF, WHOLE, ROWS = 64 * 256 * 2, 64 * 256 * 4, 64 * 4


@pytest.mark.parametrize(
    ("version", "dtype", "kept"),
    [
        # the input, the output, and the root of each row
        ((2, 9), torch.float32, [WHOLE, WHOLE, 1024, ROWS]),
        # the products before and after the weight as well
        ((2, 4), torch.float32, [WHOLE, WHOLE, WHOLE, 1024, ROWS]),
        # all of it in halves; since 2.5 what comes before the rounding in float32; since 2.7 the product with the weight too
        ((2, 4), torch.bfloat16, [HALF, HALF, HALF, 512, ROWS // 2]),
        ((2, 6), torch.bfloat16, [WHOLE, HALF, HALF, HALF, 512, ROWS]),
        ((2, 8), torch.bfloat16, [WHOLE, WHOLE, HALF, HALF, 512, ROWS]),
        ((2, 13), torch.bfloat16, [HALF, HALF, 512, ROWS]),
    ],
)
def test_rms_norm_is_one_kernel_since_2_9(version: tuple[int, int], dtype: torch.dtype, kept: list[int]) -> None:
    assert kept_by_rms_norm(version, dtype) == kept


@pytest.mark.parametrize(("version", "strides"), [((2, 8), (512, 1, 16)), ((2, 9), (512, 32, 1))], ids=["2.8", "2.9"])
def test_einsum_multiplies_in_the_order_of_its_operands_before_2_9(
    version: tuple[int, int], strides: tuple[int, ...]
) -> None:
    with virtual_device(replace(A100, torch=version)):
        left, right = torch.zeros(4, 32, 64, device="cuda"), torch.zeros(4, 16, 64, device="cuda")
        result = torch.einsum("bij,bkj->bki", left, right)
        assert (tuple(result.shape), result.stride()) == ((4, 16, 32), strides)
        assert torch.einsum("bij,bkj->bik", left, right).stride() == (512, 16, 1)
        assert torch.einsum("...ij,...kj->...ik", left, right).shape == (4, 32, 16)


@pytest.mark.parametrize("version", [(2, 4), (2, 13)])
def test_where_makes_a_tensor_on_the_gpu_of_each_scalar(version: tuple[int, int]) -> None:
    class Where:
        def setup(self) -> None:
            self.x = torch.zeros(64, 64, device="cuda")
            self.positive = self.x > 0

        def step(self) -> None:
            torch.where(self.positive, self.x, 0.0)
            torch.where(self.positive, 1.0, 0.0)

    trace = trace_program(Where(), replace(A100, torch=version), num_steps=1).trace
    assert [buffer.nbytes for buffer in trace.buffers if buffer.died is not None] == [4, 64 * 64 * 4, 4, 4, 64 * 64 * 4]


@pytest.mark.parametrize(("version", "num_kept"), [((1, 7), 2), ((1, 10), 2), ((1, 11), 1), ((2, 13), 1)])
@pytest.mark.parametrize("softmax", [torch.softmax, torch.log_softmax])
def test_softmax_keeps_its_input_as_well_before_1_11(
    softmax: Callable[..., torch.Tensor], version: tuple[int, int], num_kept: int
) -> None:
    """derivatives.yaml up to torch 1.10: `_softmax_backward_data(grad, result, dim, self)`."""

    class Softmax:
        def setup(self) -> None:
            self.x = torch.zeros(64, 1024, device="cuda", requires_grad=True)

        def step(self) -> None:
            self.x.grad = None
            softmax(self.x * 2, -1).sum().backward()

    trace = trace_program(Softmax(), replace(A100, torch=version), num_steps=1).trace
    forward = [b for b in trace.buffers if b.phase.value == "forward" and b.nbytes == 64 * 1024 * 4]
    backward = next(node.index for node in trace.nodes if node.phase.value == "backward")
    assert sum(b.died is not None and b.died >= backward for b in forward) == num_kept
