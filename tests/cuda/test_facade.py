"""The program sees a machine with one GPU, and the process is as it was when it is over."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset

from memlint.base.errors import TraceError
from memlint.cuda.session import virtual_device
from memlint.memory.devices import CATALOGUE, device_named
from tests.accelerator.bytes import live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memlint.accelerator.ledger import Ledger

A100 = device_named("a100-80gb")
NAMES: list[Any] = ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), torch.device("cuda:0"), 0]
FACTORIES: list[Callable[..., torch.Tensor]] = [
    lambda **k: torch.empty(2, 3, **k),
    lambda **k: torch.zeros((2, 3), **k),
    lambda **k: torch.ones(2, 3, **k),
    lambda **k: torch.full((2, 3), 1.5, **k),
    lambda **k: torch.rand(2, 3, **k),
    lambda **k: torch.randn(2, 3, **k),
    lambda **k: torch.randint(5, (2, 3), **k),
    lambda **k: torch.randperm(6, **k),
    lambda **k: torch.arange(6, **k),
    lambda **k: torch.linspace(0, 1, 6, **k),
    lambda **k: torch.logspace(0, 1, 6, **k),
    lambda **k: torch.eye(3, **k),
    lambda **k: torch.tensor([1, 2], **k),
    lambda **k: torch.tensor(3.0, **k),
    lambda **k: torch.as_tensor([1.0], **k),
    lambda **k: torch.asarray([1.0], **k),
    lambda **k: torch.empty_strided((2, 3), (3, 1), **k),
    lambda **k: torch.empty_permuted((2, 3), (1, 0), **k),
    lambda **k: torch.scalar_tensor(2, **k),
    lambda **k: torch.tril_indices(3, 3, **k),
    lambda **k: torch.triu_indices(3, 3, **k),
    lambda **k: torch.hann_window(4, **k),
    lambda **k: torch.bartlett_window(4, **k),
    lambda **k: torch.fft.fftfreq(4, **k),
    lambda **k: torch.fft.rfftfreq(4, **k),
    lambda **k: torch.complex(torch.ones(2, **k), torch.ones(2, **k)),
    lambda **k: torch.range(0, 3, **k),
    lambda **k: torch.vander(torch.ones(3, **k)),
    lambda **k: torch.nn.Linear(2, 3, **k).weight,
    lambda **k: torch.nn.Embedding(2, 3, **k).weight,
    lambda **k: torch.nn.BatchNorm2d(2, **k).running_mean,
    lambda **k: torch.zeros(3, **k).new_tensor([1]),
    lambda **k: torch.ones(3, dtype=torch.bfloat16, **k),
    lambda **k: torch.nn.Parameter(torch.ones(3, **k)),
    lambda **k: torch.zeros(3, **k).type(torch.float64),
    lambda **k: torch.signal.windows.hann(4, **k),
    lambda **k: torch.cartesian_prod(torch.arange(2, **k), torch.arange(3, **k)),
]


EARLY: list[Callable[..., torch.Tensor]] = [
    lambda zeros=torch.zeros, **k: zeros(2, 3, **k),
    lambda arange=torch.arange, **k: arange(6, **k),
    lambda randn=torch.randn, **k: randn(2, 3, **k),
    lambda full=torch.full, **k: full((2,), 3.0, **k),
    lambda eye=torch.eye, **k: eye(3, **k),
    lambda randint=torch.randint, **k: randint(5, (3,), **k),
    lambda **k: torch.normal(0.0, 1.0, (2, 3), **k),
    lambda linspace=torch.linspace, **k: linspace(0, 1, 3, **k),
    lambda zeros_like=torch.zeros_like, **k: zeros_like(torch.ones(2), **k),
    lambda empty=torch.empty, **k: empty(3, dtype=torch.half, **k),
]
"""Functions taken from PyTorch before there was a virtual device, as by `from torch import zeros`."""


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    with virtual_device(A100) as ledger:
        yield ledger


def assert_on_gpu(tensor: torch.Tensor) -> None:
    assert tensor.device == torch.device("cuda", 0)
    assert tensor.device.type == "cuda"
    assert tensor.device.index == 0
    assert str(tensor.device) == "cuda:0"
    assert tensor.is_cuda
    assert not tensor.is_cpu
    assert tensor.get_device() == 0


# --- making tensors --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", FACTORIES)
def test_factories_take_every_name_of_the_gpu(gpu: Ledger, make: Any) -> None:
    expected = None
    for name in NAMES:
        made = make(device=name)
        assert_on_gpu(made)
        assert not made.requires_grad or isinstance(made, nn.Parameter)
        expected = expected or (made.shape, made.stride(), made.dtype)
        assert (made.shape, made.stride(), made.dtype) == expected
    on_host = make(device="cpu")
    assert (on_host.shape, on_host.stride(), on_host.dtype) == expected
    assert str(on_host.device) == "cpu"
    assert str(make(device="meta").device) == "meta"


@pytest.mark.parametrize("make", EARLY)
def test_functions_imported_early_make_tensors_of_the_gpu(gpu: Ledger, make: Any) -> None:
    for name in ("cuda", "cuda:0", torch.device("cuda", 0)):
        made = make(device=name)
        assert_on_gpu(made)
        assert torch.cuda.memory_allocated() == 512
        assert_on_gpu(made + torch.ones((), device="cuda"))
        del made
    with torch.device("cpu"):
        assert str(make(device="cpu").device) == "cpu"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", FACTORIES)
def test_device_contexts_and_the_default_device_apply(gpu: Ledger, make: Any) -> None:
    with torch.device("cuda"):
        assert_on_gpu(make())
        assert str(make(device="cpu").device) == "cpu"
        with torch.device("cpu"):
            assert str(make().device) == "cpu"
        assert_on_gpu(make())
    assert str(make().device) == "cpu"

    torch.set_default_device("cuda")
    try:
        assert_on_gpu(make())
        assert torch.get_default_device().type == "cuda"
    finally:
        torch.set_default_device(None)
    assert str(make().device) == "cpu"


LIKE: list[Callable[..., torch.Tensor]] = [
    lambda x, **k: torch.empty_like(x, **k),
    lambda x, **k: torch.zeros_like(x, **k),
    lambda x, **k: torch.ones_like(x, **k),
    lambda x, **k: torch.rand_like(x, **k),
    lambda x, **k: torch.randn_like(x, **k),
    lambda x, **k: torch.full_like(x, 2, **k),
    lambda x, **k: torch.randint_like(x, 5, **k),
    lambda x, **k: x.new_empty(2, 3, **k),
    lambda x, **k: x.new_zeros((2, 3), **k),
    lambda x, **k: x.new_ones(2, 3, **k),
    lambda x, **k: x.new_full((2, 3), 4, **k),
    lambda x, **k: x.new_empty_strided((2, 3), (3, 1), **k),
    lambda x, **k: x.new_tensor([[1.0, 2, 3], [4, 5, 6]], **k),
]


@pytest.mark.parametrize("make", LIKE)
def test_like_and_new_follow_their_tensor_or_the_device_given(gpu: Ledger, make: Any) -> None:
    host, device, big = torch.rand(2, 3), torch.rand(2, 3, device="cuda"), torch.rand(1024, 1024)
    assert_on_gpu(make(device))
    assert_on_gpu(make(host, device="cuda"))
    assert_on_gpu(make(big, device="cuda:0"))
    for made in (make(host), make(device, device="cpu"), make(big), make(host, device=torch.device("cpu"))):
        assert str(made.device) == "cpu"
    half = make(device, dtype=torch.float16)
    assert half.dtype is torch.float16
    assert make(device).shape == (2, 3)
    assert str(make(device, device="meta").device) == "meta"
    with torch.device("cuda"):
        assert str(make(host).device) == "cpu"


@pytest.mark.parametrize("shape", [(2, 3), (1024, 1024)])
def test_what_is_made_like_a_meta_tensor_is_on_the_device_given(gpu: Ledger, shape: tuple[int, int]) -> None:
    like = torch.ones(shape, device="meta")
    for place in ("cpu", "cuda:0"):
        for make in (torch.empty_like, torch.zeros_like, torch.rand_like):
            made = make(like, device=place)
            assert (str(made.device), made.shape, made.stride()) == (place, like.shape, like.stride())
        assert str(like.new_ones(1024, 1024, device=place).device) == place
        assert torch.full_like(like, 3.0, device=place).sum().item() == 3 * like.numel()
    assert torch.empty_like(like).is_meta


def test_ops_are_tried_out_on_host_tensors_of_any_size(gpu: Ledger) -> None:
    with FakeTensorMode():
        small, big = torch.empty(8, 1024), torch.empty(1024, 1024)
        made = small @ big, small @ torch.zeros_like(big), small @ small.new_ones(1024, 1024)
    assert {each.device.type for each in made} == {"cpu"}
    assert gpu.births == []


def test_memory_of_the_host_is_one_however_it_came_there(gpu: Ledger) -> None:
    offloaded = torch.nn.Parameter(torch.ones(1 << 20, device="cuda").cpu())
    gradient = torch.zeros(1 << 20)
    offloaded.grad = gradient
    assert offloaded.grad is not None
    assert offloaded.grad.device.type == "cpu"
    with pytest.raises(RuntimeError, match="device"):
        torch.nn.Parameter(torch.ones(4, device="cuda")).grad = torch.zeros(4)
    del offloaded.grad
    assert offloaded.grad is None
    small = torch.zeros(2)
    small.data = torch.ones(4, device="cuda").cpu()
    assert small.tolist() == [1.0] * 4


def test_data_of_the_gpu_takes_the_place_of_the_hosts_in_tensors_of_every_kind(gpu: Ledger) -> None:
    buffers = nn.BatchNorm1d(8)
    buffers.register_buffer("ids", torch.arange(8).expand(1, -1))
    frozen = nn.Parameter(torch.zeros(8), requires_grad=False)
    frozen.note = "kept"  # type: ignore[attr-defined]
    for tensor in (torch.arange(8), torch.zeros(8), frozen, nn.Parameter(torch.zeros(8)), *buffers.buffers()):
        kind, values = type(tensor), tensor.tolist()
        tensor.data = tensor.to("cuda")
        assert (type(tensor), tensor.is_cuda, tensor.tolist()) == (kind, True, values)
    assert (frozen.requires_grad, frozen.note) == (False, "kept")  # type: ignore[attr-defined]
    assert {str(each.device) for each in buffers.buffers()} == {"cuda:0"}
    del tensor, buffers, frozen
    assert live(gpu) == 0


def test_data_made_in_inference_mode_takes_the_place_of_other_data_and_the_other_way_round(gpu: Ledger) -> None:
    layer, outside = nn.Linear(8, 8, device="cuda"), torch.ones(4, device="cuda")
    with torch.inference_mode():
        layer.weight.data = layer.weight.data.clamp(-1, 1)
        inside = torch.zeros(2, device="cuda")
        inside.data = outside
    assert inside.shape == (4,)
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    before = live(gpu)
    layer.weight = None  # type: ignore[assignment]
    assert live(gpu) <= before - 8 * 8 * 4


_LEAVES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.ones(2, 3, requires_grad=True),
    lambda: torch.zeros_like(torch.ones(2, 3), requires_grad=True),
    lambda: torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True),
    lambda: torch.ones(2, 3).requires_grad_(),
    lambda: torch.ones(2, 3, device="cuda").cpu().detach().requires_grad_(),
    lambda: torch.from_numpy(torch.ones(2, 3).numpy()).requires_grad_(),
    lambda: torch.rand(3, 2).T.requires_grad_(),
]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("make", _LEAVES)
def test_leaves_of_the_host_get_gradients_of_what_is_on_the_host_and_on_the_gpu(make: Any) -> None:
    x, on_host, on_gpu = make(), nn.Linear(3, 4), nn.Linear(4, 2, device="cuda")
    assert (x.is_leaf, x.requires_grad, str(x.device)) == (True, True, "cpu")
    on_gpu(on_host(x).relu().cuda()).sum().backward()
    assert (x.grad.shape, x.grad.stride(), str(x.grad.device)) == (x.shape, x.stride(), "cpu")
    (again,) = torch.autograd.grad(on_gpu(on_host(x * 2).cuda()).sum(), [x])
    assert str(again.device) == "cpu"


@pytest.mark.usefixtures("gpu")
def test_a_leaf_that_is_made_by_assignment_keeps_its_values() -> None:
    x = torch.arange(3.0)
    alias = x
    x.requires_grad = True
    optimizer = torch.optim.SGD([x], lr=0.5)
    (x * nn.Linear(3, 3)(x)).sum().backward()
    x.grad.fill_(2.0)  # type: ignore[union-attr]
    optimizer.step()
    assert alias is x
    assert x.tolist() == [-1.0, 0.0, 1.0]
    with pytest.raises(RuntimeError, match="floating point"):
        torch.arange(3).requires_grad_()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_what_is_no_leaf_requires_its_gradient_anyway(place: str) -> None:
    output = nn.Linear(3, 4, device=place)(torch.ones(2, 3, device=place))
    assert output.requires_grad_() is output  # as transformers asks of embeddings where inputs are checkpointed
    for refused in (lambda: output.requires_grad_(False), lambda: setattr(output, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="leaf variables"):
            refused()


def test_data_from_numpy_and_tensors(gpu: Ledger) -> None:
    import numpy as np

    array = np.arange(6.0)
    for made in (
        torch.from_numpy(array).cuda(),
        torch.tensor(array, device="cuda"),
        torch.as_tensor(array, device="cuda"),
        torch.asarray(array, device="cuda"),
    ):
        assert_on_gpu(made)
        assert made.dtype is torch.float64
        assert made.tolist() == [0, 1, 2, 3, 4, 5]
    x = torch.rand(3, device="cuda")
    assert torch.as_tensor(x) is x
    assert_on_gpu(torch.as_tensor(x, dtype=torch.float16))
    assert torch.tensor([torch.tensor(1.0), 2.0], device="cuda").tolist() == [1, 2]
    assert_on_gpu(torch.tensor([1.0], device="cuda", requires_grad=True))


def test_requires_grad_dtype_and_layout_arguments_are_kept(gpu: Ledger) -> None:
    x = torch.zeros(2, 3, 4, 4, device="cuda", dtype=torch.float64, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    assert x.dtype is torch.float64
    y = torch.empty(2, 3, 4, 4, device="cuda", memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.ones(2, device="cuda", pin_memory=False).tolist() == [1, 1]


@pytest.mark.parametrize("numbers", [4, 1 << 19])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.empty(n, pin_memory=True),
        lambda n: torch.zeros((n,), pin_memory=True, dtype=torch.half),
        lambda n: torch.empty(n, pin_memory=True, device="cpu"),
        lambda n: torch.empty_strided((n,), (1,), pin_memory=True),
        lambda n: torch.rand(n, device="cuda").new_empty(n, device="cpu", pin_memory=True),
        lambda n: torch.zeros(n).new_zeros(n, pin_memory=True),
        lambda n: torch.zeros_like(torch.rand(n), pin_memory=True),
        lambda n: torch.empty_like(torch.rand(n, device="cuda"), device="cpu", pin_memory=True),
        lambda n: torch.tensor([1.0] * n, pin_memory=True),
    ],
)
def test_pinned_tensors_of_any_size_are_the_hosts(
    gpu: Ledger, make: Callable[[int], torch.Tensor], numbers: int
) -> None:
    pinned = make(numbers)
    assert (str(pinned.device), pinned.shape) == ("cpu", (numbers,))
    assert pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    before = len(gpu.events)
    assert_on_gpu(pinned.cuda(non_blocking=True))
    assert len(gpu.events) > before


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["device", "is_cuda", "is_cpu", "data", "grad", "requires_grad"])
def test_an_attribute_says_whose_it_is_as_torchdynamo_asks(name: str) -> None:
    assert getattr(torch.Tensor, name).__objclass__ is torch.Tensor


@pytest.mark.parametrize("numbers", [4, 1 << 19])
@pytest.mark.usefixtures("gpu")
def test_a_pinned_copy_is_told_from_its_original(numbers: int) -> None:
    x = torch.ones(numbers)
    pinned = x.pin_memory()
    assert (pinned.is_pinned(), pinned[2:].is_pinned(), pinned.untyped_storage().is_pinned()) == (True, True, True)
    assert (x.is_pinned(), pinned.clone().is_pinned(), pinned.cuda().is_pinned()) == (False, False, False)
    for pin in (torch.Tensor.pin_memory, lambda t: torch.zeros_like(t, pin_memory=True)):
        with pytest.raises(RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor' only dense CPU tensors"):
            pin(x.cuda())


def test_activations_are_saved_in_pinned_host_memory(gpu: Ledger) -> None:
    x = torch.rand(8, 64, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = x.exp()
    y.sum().backward()
    assert x.grad is not None
    assert_on_gpu(x.grad)


# --- moving ----------------------------------------------------------------------------------------------------------


def test_a_file_of_tokens_is_read_into_an_empty_tensor(gpu: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "tokens.bin"
    file.write_bytes(b"\7\0" * (1 << 20))
    tokens = torch.empty(1 << 20, dtype=torch.uint16, pin_memory=True)
    with file.open("rb", buffering=0) as opened:
        assert opened.readinto(tokens.numpy()) == 2 << 20
    assert (tokens == 7).all()


@pytest.mark.parametrize(
    "move",
    [
        *(lambda x, n=n: x.to(n) for n in NAMES),
        lambda x: x.cuda(),
        lambda x: x.cuda(0),
        lambda x: x.cuda(device="cuda:0"),
        lambda x: x.cuda(non_blocking=True),
        lambda x: x.to(device="cuda"),
        lambda x: x.to("cuda", torch.float32),
        lambda x: x.to("cuda", non_blocking=True),
        lambda x: x.to("cuda", dtype=torch.float32, copy=True),
        lambda x: x.to(torch.zeros(1, device="cuda")),
        lambda x: x.to(other=torch.zeros(1, device="cuda")),
        lambda x: x.type("torch.cuda.FloatTensor"),
        lambda x: x.pin_memory().to("cuda", non_blocking=True),
        lambda x: x.type(torch.cuda.FloatTensor),
        lambda x: x.to("cuda", memory_format=torch.preserve_format),
        lambda x: x.to(torch.device("cuda", torch.cuda.current_device())),
    ],
)
def test_every_way_to_move_a_tensor(gpu: Ledger, move: Any) -> None:
    for x in (torch.arange(4.0), torch.zeros(1 << 19)):
        moved = move(x)
        assert_on_gpu(moved)
        assert moved.shape == x.shape
        assert moved.dtype is torch.float32
        assert moved[1].item() == x[1].item()
        for back in (
            moved.cpu(),
            moved.to("cpu"),
            moved.to(torch.device("cpu")),
            moved.to(device="cpu"),
            moved.to(x),
            moved.type("torch.FloatTensor"),
        ):
            assert str(back.device) == "cpu"
            assert back[1].item() == x[1].item()


def test_moving_to_where_it_is_gives_the_tensor_itself(gpu: Ledger) -> None:
    x = torch.rand(3, device="cuda")
    assert x.cuda() is x
    assert x.to("cuda") is x
    assert x.to(x.device, x.dtype) is x
    assert x.to("cuda", copy=True) is not x
    y = torch.rand(3)
    assert y.cpu() is y
    assert y.to("cpu") is y
    big = torch.rand(1 << 20)
    assert big.cpu() is big
    assert big.to("cpu") is big


def test_types_name_the_device(gpu: Ledger) -> None:
    x = torch.rand(3, device="cuda")
    assert x.type() == "torch.cuda.FloatTensor"
    assert x.half().type() == "torch.cuda.HalfTensor"
    assert x.long().cpu().type() == "torch.LongTensor"
    assert torch.rand(1 << 20).type() == "torch.FloatTensor"
    assert isinstance(x, torch.Tensor)
    assert_on_gpu(torch.cuda.FloatTensor(2, 3))
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]
    assert x.type(torch.float16).dtype is torch.float16
    assert "cuda:0" in repr(x)
    assert "cuda:0" in str(nn.Parameter(x))
    assert "vgpu" not in repr(x)


def test_modules_report_the_gpu(gpu: Ledger) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).cuda()
    assert next(model.parameters()).device == torch.device("cuda:0")
    assert next(model.parameters()).is_cuda
    y = model(torch.rand(4, 2, device=next(model.parameters()).device))
    assert_on_gpu(y)


def test_generators_of_the_gpu(gpu: Ledger) -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    assert_on_gpu(torch.rand(3, device="cuda", generator=generator))
    assert_on_gpu(torch.randperm(3, device="cuda", generator=generator))
    x = torch.zeros(3, device="cuda")
    x.normal_(generator=generator).uniform_(generator=generator).bernoulli_(0.5, generator=generator)
    assert_on_gpu(torch.multinomial(torch.ones(4, device="cuda"), 2, generator=generator))
    on_host = torch.Generator().manual_seed(3)
    assert on_host.device.type == "cpu"
    assert torch.rand(3, generator=on_host).shape == (3,)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    state = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(state)
    with torch.random.fork_rng():
        torch.rand(2, device="cuda")


def test_a_random_state_that_was_on_the_gpu_can_be_set_again(gpu: Ledger) -> None:
    generator = torch.Generator().manual_seed(3)
    sent = generator.get_state().to("cuda")
    first = torch.rand(3, generator=generator).tolist()
    assert torch.rand(3, generator=generator.set_state(sent.cpu())).tolist() == first
    generator.set_state(torch.empty_like(sent).cpu())  # of another rank: nobody knows it
    torch.set_rng_state(sent.cpu())
    assert torch.get_rng_state().tolist() == sent.tolist()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_data_loaders_run_in_the_process(gpu: Ledger, num_workers: int) -> None:
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    loader = DataLoader(
        data, batch_size=4, pin_memory=True, num_workers=num_workers, persistent_workers=num_workers > 0
    )
    for _ in range(2):
        batches = [(x.cuda(non_blocking=True), y.to("cuda")) for x, y in loader]
        assert [tuple(x.shape) for x, _ in batches] == [(4,), (4,), (2,)]
        assert_on_gpu(batches[0][0])
        assert batches[2][1].tolist() == [8, 9]


def test_data_parallel_on_one_gpu_copies_the_gradient_of_what_came_in(gpu: Ledger) -> None:
    model = nn.DataParallel(nn.Linear(256, 256, device="cuda"), [0])
    batch = torch.randn(64, 256, device="cuda", requires_grad=True)
    output = model(model(batch))
    before = live(gpu)
    output.sum().backward()
    made = live(gpu) - before - 256 * 256 * 4 - 256 * 4
    assert batch.grad is not None
    assert batch.grad.device == torch.device("cuda", 0)
    assert made >= 64 * 256 * 4


def test_lazy_modules_find_their_shapes_on_the_gpu(gpu: Ledger) -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)).cuda()
    model(torch.rand(2, 3, 8, 8, device="cuda")).sum().backward()
    assert model[3].weight.shape == (2, 144)
    for parameter in model.parameters():
        assert_on_gpu(parameter)
        assert parameter.grad is not None


def test_transforms_of_functions_work(gpu: Ledger) -> None:
    model = nn.Linear(4, 1).cuda()
    parameters = dict(model.named_parameters())

    def loss(parameters: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x[None],)).sum()

    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, torch.rand(3, 4, device="cuda"))
    assert grads["weight"].shape == (3, 1, 4)
    assert_on_gpu(grads["weight"])
    assert torch.func.vmap(lambda x: torch.zeros_like(x) + x.new_ones(4))(torch.rand(3, 4, device="cuda")).shape == (
        3,
        4,
    )


def test_a_tensor_moves_under_vmap(gpu: Ledger) -> None:
    x = torch.rand(3, 4, device="cuda")
    assert torch.func.vmap(lambda row: row.to(x.device) & True)(x > 0.5).shape == (3, 4)


def test_data_parallel_has_one_gpu(gpu: Ledger) -> None:
    model = nn.DataParallel(nn.Linear(4, 2).cuda())
    assert_on_gpu(model(torch.rand(3, 4, device="cuda")))
    assert_on_gpu(model(torch.rand(3, 4)))


# --- questions about the GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [
        # printed by PyTorch's get_device_properties, a T4's by deviceQuery
        *[("t4", 4), ("a100-40gb", 40), ("h100-80gb", 50), ("h200", 60), ("b200", 126), ("rtx4090", 72)],
        *[("rtx5080", 64), ("rtx-pro-6000", 128)],
        # NVIDIA's whitepapers: GV100 6144 KB, GA102 6144 KB, GB202 98304 KB
        *[("v100-16gb", 6), ("rtx3090", 6), ("rtx5090", 96)],
    ],
)
def test_each_gpu_has_its_own_l2_cache(gpu: str, mib: int) -> None:
    with virtual_device(device_named(gpu)):
        assert torch.cuda.get_device_properties(0).L2_cache_size == mib << 20


@pytest.mark.parametrize("device", [d for d in CATALOGUE.values() if d.is_cuda], ids=lambda d: d.name)
def test_the_gpu_is_the_one_of_the_catalogue(device: Any) -> None:
    with virtual_device(device):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert torch.cuda.get_device_name() == torch.cuda.get_device_name(0) == device.title
        assert torch.cuda.get_device_capability() == device.capability
        properties = torch.cuda.get_device_properties("cuda:0")
        assert (properties.major, properties.minor) == device.capability
        assert properties.total_memory == device.total_nbytes
        assert properties.multi_processor_count == device.num_sms
        assert properties.L2_cache_size > 0
        assert torch.cuda.is_bf16_supported()
        assert torch.distributed.is_nccl_available()
        assert torch.cuda.nccl.version() >= (2, 10)
        assert torch.cuda.is_bf16_supported(including_emulation=False) == (device.capability >= (8, 0))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.bfloat16
        assert torch.cuda.mem_get_info()[1] == device.total_nbytes
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("cuda")


def test_memory_statistics_follow_the_allocator(gpu: Ledger) -> None:
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
    x = torch.empty(1000, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == 1024
    assert torch.cuda.memory_reserved() == 2 << 20
    y = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated("cuda:0") == 1024 + (3 << 20)
    assert torch.cuda.memory_reserved(0) == 22 << 20
    free, _ = torch.cuda.mem_get_info()
    del y
    assert torch.cuda.memory_allocated() == 1024
    assert torch.cuda.max_memory_allocated() == 1024 + (3 << 20)
    assert torch.cuda.memory_reserved() == 22 << 20
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 2 << 20
    assert torch.cuda.max_memory_reserved() == 22 << 20
    assert torch.cuda.mem_get_info()[0] == free + (20 << 20)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 1024
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 1024
    assert stats["requested_bytes.all.current"] == 1000
    del x
    assert torch.cuda.memory_allocated() == 0
    assert isinstance(torch.cuda.memory_summary(), str)


def test_host_tensors_use_no_memory_of_the_gpu(gpu: Ledger) -> None:
    model = nn.Linear(1000, 1000)
    big = torch.zeros(1 << 24)
    assert torch.cuda.memory_allocated() == 0
    del model, big
    assert torch.cuda.memory_reserved() == 0


def test_streams_events_and_ranges_do_nothing(gpu: Ledger) -> None:
    stream = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(stream):
        x = torch.rand(3, device="cuda")
        x.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    stream.wait_event(end)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.query()
    torch.cuda.synchronize()
    with torch.cuda.device(0), torch.cuda.device("cuda:0"):
        torch.cuda.set_device(0)
    torch.cuda.nvtx.range_push("x")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("x"):
        pass
    with torch.profiler.record_function("x"):
        torch.rand(3, device="cuda")
    torch.cuda.default_stream().synchronize()


# --- the process afterwards ------------------------------------------------------------------------------------------


def _attributes() -> dict[str, Any]:
    owners = (
        torch,
        torch.cuda,
        torch.Tensor,
        torch.nn.Parameter,
        torch.nn.Module,
        torch.UntypedStorage,
        torch.amp,
        torch.accelerator,
        torch.cuda.nvtx,
        torch.backends.cuda,
        torch.backends.cudnn,
        torch.utils.data,
        torch.utils._device,
        torch.autograd,
        torch._C,
    )
    return {f"{owner.__name__}.{name}": value for owner in owners for name, value in vars(owner).items()}


def _changed(before: dict[str, Any]) -> list[str]:
    after = _attributes()
    return [name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)]


def _everything() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("cuda")
    optimizer = torch.optim.Adam(model.parameters())
    with torch.autocast("cuda"):
        model(torch.rand(3, 4, device="cuda")).sum().backward()
    optimizer.step()


def test_everything_is_undone() -> None:
    with virtual_device(A100):  # what PyTorch loads at first use stays
        _everything()
    before, multithreading = _attributes(), torch.autograd.is_multithreading_enabled()
    with virtual_device(A100):
        _everything()
    assert not _changed(before)
    assert torch.autograd.is_multithreading_enabled() == multithreading
    assert torch.rand(3).device.type == "cpu"
    assert not torch.cuda.is_available() or torch.version.cuda
    assert torch.zeros(1 << 20).device.type == "cpu"


def test_everything_is_undone_after_an_exception() -> None:
    before = _attributes()
    with (  # noqa: PT012  (it must raise inside)
        pytest.raises(ZeroDivisionError),
        virtual_device(A100),
        torch.autocast("cuda"),
        torch.device("cuda"),
    ):
        torch.rand(3)
        _ = 1 / 0
    assert not _changed(before)
    assert not torch.is_autocast_enabled("cuda")
    with virtual_device(A100) as ledger:
        assert not ledger.births


def test_no_second_device_within_the_first() -> None:
    with virtual_device(A100), pytest.raises(TraceError, match="active already"):
        virtual_device(A100).__enter__()
    with virtual_device(A100):
        assert torch.cuda.is_available()


def test_cpu_programs_run_on_the_virtual_host() -> None:
    with virtual_device(device_named("cpu")) as ledger:
        assert not torch.cuda.is_available()
        model = nn.Linear(100, 100, bias=False)
        assert str(model.weight.device) == "cpu"
        assert [b.nbytes for b in ledger.births].count(40_000) == 1
        y = model(torch.rand(2, 100))
        assert str(y.device) == "cpu"
        y.sum().backward()
        assert torch.arange(3).tolist() == [0, 1, 2]


def test_warnings_do_not_name_the_device() -> None:
    with warnings.catch_warnings(record=True) as caught, virtual_device(A100):
        warnings.simplefilter("always")
        _everything()
    assert not [w for w in caught if "vgpu" in str(w.message)]


def test_each_function_of_pytorch_that_is_replaced_is_one_of_its_own():
    """Dynamo has a handler for each, and refuses to compile anything where one function stands in two places."""
    with virtual_device(A100):
        names = ("current_stream", "set_stream", "synchronize")
        functions = [getattr(owner, name) for owner in (torch.cuda, torch.accelerator) for name in names]
        assert len({*functions}) == len(functions)


def _scripted(x: torch.Tensor) -> torch.Tensor:
    ones = torch.ones_like(x) * ((x >= -3.0) & (x <= 3.0))
    return ones + torch.zeros(x.shape[0], device=x.device, dtype=x.dtype)[:, None]


def test_torchscript_compiles_functions_that_make_tensors() -> None:
    with virtual_device(device_named("a100-80gb")):
        x = torch.zeros(1024, 256, device="cuda")
        y = torch.jit.script(_scripted)(x)
        assert y.is_cuda
        assert y.shape == x.shape
        assert torch.jit.script(_scripted)(torch.ones(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert torch.jit.script(_scripted)(torch.ones(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_large_batch_is_pinned_without_a_copy_and_a_small_one_with_one() -> None:
    with virtual_device(device_named("a100-80gb")):
        large = torch.from_numpy(np.zeros(2**26, np.uint8))
        small = torch.from_numpy(np.zeros(2**10, np.uint8))
        for tensor, is_shared in ((large, True), (small, False)):
            pinned = tensor.pin_memory()
            assert pinned.is_pinned()
            assert (pinned.data_ptr() == tensor.data_ptr()) is is_shared
            assert pinned.cuda(non_blocking=True).shape == tensor.shape
