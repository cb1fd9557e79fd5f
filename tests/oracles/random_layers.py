"""Layers that random programs are made of: each keeps the shape of what it is given. Sizes are small."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations, parametrize

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    Make = Callable[[random.Random, int], nn.Module]
    """Takes what chooses its options, and the width of its input (channels of an image)."""

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Mish),
    *(nn.LogSigmoid, nn.PReLU, nn.Softsign, nn.Hardtanh, nn.Tanhshrink, lambda: nn.ReLU(inplace=True), nn.ReLU6),
    *(lambda: nn.GELU("tanh"), lambda: nn.Softmax(-1), lambda: nn.LogSoftmax(-1), nn.CELU, nn.SELU, nn.RReLU),
)


class Apply(nn.Module):
    """A function of the input and of weights."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...], name: str = "") -> None:
        super().__init__()
        self.function = function
        self.name = name
        self.weights = nn.ParameterList(torch.randn(shape) / math.sqrt(shape[-1]) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


class First(nn.Module):
    """The first result of a layer that has several."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Heads(nn.Module):
    """Attention of a few heads by `attend`, which is given query, key and value."""

    def __init__(self, width: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.heads = heads
        self.attend = attend
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class SelfAttention(nn.Module):
    """`nn.MultiheadAttention` of a sequence with itself."""

    def __init__(self, layer: nn.MultiheadAttention, options: Mapping[str, Any], *, masked: bool) -> None:
        super().__init__()
        self.layer = layer
        self.options = options
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        options = dict(self.options)
        if self.masked:
            length = x.shape[1 if self.layer.batch_first else 0]
            options["attn_mask"] = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.layer(x, x, x, **options)[0]


class Square(torch.autograd.Function):
    """Saves its input, and another tensor that its backward does not read."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x.abs())
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        return grad * 2 * x


class Kept(torch.autograd.Function):
    """Keeps tensors as attributes of its context, and recomputes with a graph of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.x, ctx.scale = x.detach(), scale
        return x.sin() * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            y = x.sin() * ctx.scale
        return torch.autograd.grad(y, x, grad)[0], None


class InPlace(torch.autograd.Function):
    """Changes its input, and makes gradients of several things."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        ctx.save_for_backward(weight)
        return x.mul_(1 + weight.detach().mean())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (weight,) = ctx.saved_tensors
        return grad * (1 + weight.mean()), grad.sum() / weight.numel() * torch.ones_like(weight)


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Routed(nn.Module):
    """Experts, of which every row takes two, weighed."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, num_experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(num_experts))

    def forward(self, x: Tensor) -> Tensor:
        weights, picked = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = (weights * (picked == number)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


class Ensemble(nn.Module):
    """Copies of a layer under `torch.func.vmap`, averaged."""

    def __init__(self, width: int, num_copies: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_copies, width, width) / width)
        self.bias = nn.Parameter(torch.zeros(num_copies, width))
        self.layer = [nn.Linear(width, width)]  # not a part of the model

    def forward(self, x: Tensor) -> Tensor:
        def call(weight: Tensor, bias: Tensor) -> Tensor:
            return torch.func.functional_call(self.layer[0], {"weight": weight, "bias": bias}, (x,)).relu()

        return torch.func.vmap(call)(self.weight, self.bias).mean(0)


class Denoised(nn.Module):
    """A step down the gradient of an energy, by torch.func, that a gradient goes through."""

    def __init__(self, width: int, *, per_sample: bool) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.per_sample = per_sample

    def forward(self, x: Tensor) -> Tensor:
        grad = torch.func.grad(lambda each: self.energy(each).sum())
        return x - 0.1 * (torch.func.vmap(grad)(x) if self.per_sample else grad(x))


def _linear(choose: random.Random, width: int) -> nn.Module:
    hidden = choose.choice((width, 2 * width, width // 2, 48))
    bias = choose.random() < 0.8
    return nn.Sequential(nn.Linear(width, hidden, bias=bias), choose.choice(ACTIVATIONS)(), nn.Linear(hidden, width))


def _parametrized(choose: random.Random, width: int) -> nn.Module:
    layer = nn.Linear(width, width)
    kind = choose.choice(("weight_norm", "spectral_norm", "orthogonal", "symmetric", "old_weight_norm", "cayley"))
    if kind == "symmetric":
        parametrize.register_parametrization(layer, "weight", Symmetric())
        return layer
    if kind == "old_weight_norm":
        return torch.nn.utils.weight_norm(layer)
    if kind == "cayley":
        return parametrizations.orthogonal(layer, orthogonal_map="cayley")
    return getattr(parametrizations, kind)(layer)


def _kept_by_itself(x: Tensor, weight: Tensor) -> Tensor:
    y = x * weight
    box: list[Any] = [y]
    box.append(box)
    return y.tanh()


def _closed_over(x: Tensor, weight: Tensor) -> Tensor:
    def repeat(times: int) -> Tensor:
        return x * weight if times == 0 else repeat(times - 1) + x

    return repeat(2).sigmoid()


def _gathered(x: Tensor, weight: Tensor) -> Tensor:
    order = torch.arange(x.shape[-1]).flip(0)
    return torch.gather(x * weight, -1, order.expand_as(x)).index_select(-1, order)


def _scattered(x: Tensor, weight: Tensor) -> Tensor:
    index = (torch.arange(x.shape[-1]) // 2).expand_as(x)
    return torch.zeros_like(x).scatter_add(-1, index, x * weight)


def _indexed(x: Tensor, weight: Tensor) -> Tensor:
    rows = torch.arange(x.shape[0]).flip(0)
    y = (x * weight)[rows]
    y[:, 0] = y[:, 1]
    return y


def _distances(x: Tensor, centres: Tensor, values: Tensor) -> Tensor:
    return torch.cdist(x, centres.expand(*x.shape[:-2], *centres.shape)).neg().softmax(-1) @ values


def _one_norm(x: Tensor, centres: Tensor, values: Tensor) -> Tensor:
    return torch.cdist(x, centres, p=1.0).neg().softmax(-1) @ values


_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "cycle": _kept_by_itself,
    "recursion": _closed_over,
    "gather": _gathered,
    "scatter": _scattered,
    "index": _indexed,
    "square": lambda x, weight: Square.apply(x * weight),
    "kept": lambda x, weight: Kept.apply(x * weight, 0.5),
    "in place": lambda x, weight: InPlace.apply(x * 1.0, weight),
    "cumsum": lambda x, weight: (x * weight).cumsum(-1) / x.shape[-1],
    "sort": lambda x, weight: (x * weight).sort(-1).values,
    "normalize": lambda x, weight: F.normalize(x * weight, dim=-1),
    "logsumexp": lambda x, weight: x - (x * weight).logsumexp(-1, keepdim=True),
    "var": lambda x, weight: x * weight / (x.var(-1, keepdim=True) + 1).sqrt(),
    "glu": lambda x, weight: F.glu(torch.cat([x, x * weight], -1), -1),
    "chunks": lambda x, weight: torch.cat([each * 2 for each in (x * weight).chunk(4, -1)], -1),
    "stack": lambda x, weight: torch.stack([x * weight, x.exp().clamp(max=3), x.sin()]).mean(0),
    "where": lambda x, weight: torch.where(x > 0, x * weight, x.expm1()),
    "masked": lambda x, weight: (x * weight).masked_fill(x > 1, 0.0),
    "clamp": lambda x, weight: (x * weight).clamp(-1, 1) + x.detach(),
    "power": lambda x, weight: (x.abs() + 1).pow(0.5) * weight,
    "maximum": lambda x, weight: torch.maximum(x, weight).minimum(x + 1),
    "amax": lambda x, weight: x - (x * weight).amax(-1, keepdim=True),
    "roll": lambda x, weight: (x * weight).roll(1, -1).flip(-1) + x,
    "lerp": lambda x, weight: torch.lerp(x, weight.expand_as(x), 0.3),
    "addcmul": lambda x, weight: torch.addcmul(x, x, weight, value=0.5),
    "no grad": lambda x, weight: x * weight + F.gelu(x.detach()) * 0.1,
    "dropout": lambda x, weight: F.dropout(x * weight, 0.1),
    "copies": lambda x, weight: (x * weight).clone().mul_(2).add_(x),
    "kron": lambda x, weight: x * torch.kron(weight[:2], weight[: x.shape[-1] // 2]),
    "tril": lambda x, weight: (x.unsqueeze(-1) * weight).tril().sum(-1),
}
"""Functions of the input and of one weight as wide as it."""


def _function(choose: random.Random, width: int) -> nn.Module:
    name = choose.choice(sorted(_FUNCTIONS))
    return Apply(_FUNCTIONS[name], (width,), name=name)


def _centres(choose: random.Random, width: int) -> nn.Module:
    centres = choose.choice((5, 16, 30))
    kind = choose.choice((_distances, _one_norm))
    return Apply(kind, (centres, width), (centres, width), name=kind.__name__)


def _bilinear(_choose: random.Random, width: int) -> nn.Module:
    return Apply(lambda x, w: torch.einsum("...i,...j,kij->...k", x, x, w), (width, width, width), name="bilinear")


def _low_rank(choose: random.Random, width: int) -> nn.Module:
    rank = choose.choice((2, 4))
    return Apply(lambda x, a, b: x + (x @ a) @ b, (width, rank), (rank, width), name="low rank")


def _linear_algebra(choose: random.Random, width: int) -> nn.Module:
    functions: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
        "solve": lambda x, w: torch.linalg.solve(w @ w.T + 2 * torch.eye(width), x.flatten(0, -2).T).T.view_as(x),
        "inverse": lambda x, w: x @ torch.linalg.inv(w @ w.T + torch.eye(width)),
        "cholesky": lambda x, w: x @ torch.linalg.cholesky(w @ w.T + torch.eye(width)),
        "qr": lambda x, w: x @ torch.linalg.qr(w).Q,
        "matrix_exp": lambda x, w: x @ torch.matrix_exp(w - w.T),
        "logdet": lambda x, w: x / (w @ w.T + torch.eye(width)).logdet().abs().add(1),
        "norm": lambda x, w: x / torch.linalg.matrix_norm(w),
    }
    name = choose.choice(sorted(functions))
    return Apply(functions[name], (width, width), name=name)


ANY: Mapping[str, Make] = {
    "linear": _linear,
    "function": _function,
    "parametrized": _parametrized,
    "centres": _centres,
    "layer norm": lambda choose, width: nn.LayerNorm(width, elementwise_affine=choose.random() < 0.7),
    "rms norm": lambda _choose, width: nn.RMSNorm(width),
    "routed": lambda choose, width: Routed(width, choose.choice((2, 4))),
    "ensemble": lambda choose, width: Ensemble(width, choose.choice((2, 3))),
    "bilinear": _bilinear,
    "low rank": _low_rank,
    "linear algebra": _linear_algebra,
}
"""Layers of anything whose last dimension is as wide as they."""


def _recurrent(choose: random.Random, width: int) -> nn.Module:
    kind = choose.choice((nn.LSTM, nn.LSTM, nn.GRU, nn.GRU, nn.RNN))
    options = {"num_layers": choose.choice((1, 2)), "batch_first": choose.random() < 0.5, "bidirectional": False}
    if choose.random() < 0.3:
        options["bidirectional"] = True
        return First(kind(width, width // 2, **options))
    if kind is nn.LSTM and choose.random() < 0.2:
        return First(nn.LSTM(width, 2 * width, proj_size=width, **options))
    return First(kind(width, width, dropout=0.1 if options["num_layers"] == 2 else 0.0, **options))


def _multihead(choose: random.Random, width: int) -> nn.Module:
    layer = nn.MultiheadAttention(
        width,
        choose.choice((1, 2, 4)),
        dropout=choose.choice((0.0, 0.0, 0.1)),
        batch_first=choose.random() < 0.5,
        add_zero_attn=choose.random() < 0.1,
    )
    options = {"need_weights": choose.random() < 0.5, "average_attn_weights": choose.random() < 0.5}
    return SelfAttention(layer, options, masked=choose.random() < 0.4)


def _encoder(choose: random.Random, width: int) -> nn.Module:
    heads, dropout, first = choose.choice((2, 4)), choose.choice((0.0, 0.1)), choose.random() < 0.5
    activation = choose.choice(("relu", "gelu"))
    return nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, activation, batch_first=True, norm_first=first)


def _attention(choose: random.Random, width: int) -> nn.Module:
    causal, heads = choose.random() < 0.5, choose.choice((1, 2, 4))
    dropout = choose.choice((0.0, 0.0, 0.2))
    kind = choose.choice(("fused", "math", "mask", "bias", "by hand", "by hand"))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if kind == "by hand":
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            if causal:
                scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
            return F.dropout(scores.softmax(-1), dropout) @ v
        mask = None
        if kind in ("mask", "bias"):
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
            mask = mask if kind == "mask" else torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -1.0)
        if kind == "math":
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        causally = causal and mask is None
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, is_causal=causally)

    return Heads(width, heads, attend)


class Rotated(nn.Module):
    """Rotary positions."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / (torch.arange(half, dtype=x.dtype) + 1)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Channels(nn.Module):
    """A layer of channels before rows, of a sequence."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


def _conv1d(choose: random.Random, width: int) -> nn.Module:
    kernel, groups = choose.choice((1, 3, 5)), choose.choice((1, 1, width))
    return Channels(nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups))


OF_SEQUENCES: Mapping[str, Make] = {
    "recurrent": _recurrent,
    "multihead": _multihead,
    "encoder": _encoder,
    "attention": _attention,
    "rotated": lambda _choose, _width: Rotated(),
    "conv1d": _conv1d,
    "group norm": lambda choose, width: Channels(nn.GroupNorm(choose.choice((1, 2, 4)), width)),
    "batch norm": lambda _choose, width: Channels(nn.BatchNorm1d(width)),
    "denoised": lambda choose, width: Denoised(width, per_sample=choose.random() < 0.5),
}
"""Layers of [batch, length, width]."""

OF_ROWS: Mapping[str, Make] = {
    "batch norm": lambda _choose, width: nn.BatchNorm1d(width),
    "denoised": lambda choose, width: Denoised(width, per_sample=choose.random() < 0.5),
}
"""Layers of [batch, width]."""


def _conv2d(choose: random.Random, width: int) -> nn.Module:
    kernel, groups = choose.choice((1, 3, 5)), choose.choice((1, 1, 2, width))
    return nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=groups, bias=choose.random() < 0.5)


def _down_and_up(choose: random.Random, width: int) -> nn.Module:
    up: Callable[[], nn.Module] = choose.choice(
        (
            lambda: nn.Upsample(scale_factor=2),
            lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
            lambda: nn.Upsample(scale_factor=2, mode="bicubic"),
            lambda: nn.ConvTranspose2d(width, width, 2, stride=2),
            lambda: nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.PixelShuffle(2)),
        )
    )
    down: Callable[[], nn.Module] = choose.choice(
        (
            lambda: nn.MaxPool2d(2),
            lambda: nn.AvgPool2d(2),
            lambda: nn.Conv2d(width, width, 2, stride=2),
            lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4 * width, width, 1)),
        )
    )
    return nn.Sequential(down(), choose.choice(ACTIVATIONS)(), up())


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Excited(nn.Module):
    """Channels that are weighed by what the whole image has of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 1)
        self.gate = nn.Sequential(*layers, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


OF_IMAGES: Mapping[str, Make] = {
    "conv2d": _conv2d,
    "down and up": _down_and_up,
    "channel norm": lambda _choose, width: ChannelNorm(width),
    "group norm": lambda choose, width: nn.GroupNorm(choose.choice((1, 2, 4)), width),
    "batch norm": lambda _choose, width: nn.BatchNorm2d(width),
    "instance norm": lambda choose, width: nn.InstanceNorm2d(width, affine=choose.random() < 0.5),
    "excited": lambda _choose, width: Excited(width),
    "activation": lambda choose, _width: choose.choice(ACTIVATIONS)(),
    "dropout": lambda _choose, _width: nn.Dropout2d(0.1),
    "pool": lambda choose, _width: choose.choice((nn.MaxPool2d, nn.AvgPool2d))(3, 1, 1),
    "reflection": lambda _choose, _width: nn.Sequential(nn.ReflectionPad2d(1), nn.AvgPool2d(3, 1)),
}
"""Layers of [batch, channels, height, width]."""
