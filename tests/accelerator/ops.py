"""A table of calls: operations of PyTorch on small operands, for running on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Make = Callable[[str], tuple[Any, ...]]


@dataclass(frozen=True)
class Call:
    """`function(*operands)`. Operands are made on the device; float ones require gradients unless `backward` is false."""

    name: str
    function: Callable[..., Any]
    operands: tuple[Any, ...]
    """A shape: random floats of it. ("int", high, *shape): random integers. ("bool", *shape). A callable: of the device."""
    backward: bool = True
    strides: bool = True
    """Whether CUDA lays its results out as the CPU does."""

    def __str__(self) -> str:
        return self.name


def operand(spec: Any, device: str) -> Any:
    if callable(spec):
        return spec(device)
    if not isinstance(spec, tuple):
        return spec
    if spec and spec[0] == "int":
        return torch.randint(0, spec[1], spec[2:], device=device)
    if spec and spec[0] == "bool":
        return torch.ones(spec[1:], dtype=torch.bool, device=device)
    return torch.rand(spec, device=device).add_(0.1)


def channels_last(*shape: int) -> Callable[[str], torch.Tensor]:
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return lambda device: torch.rand(shape, device=device).contiguous(memory_format=layout)


def transposed(*shape: int) -> Callable[[str], torch.Tensor]:
    """Of the shape given with its last two dimensions swapped."""
    return lambda device: torch.rand(shape, device=device).transpose(-1, -2)


def positive_definite(n: int) -> Callable[[str], torch.Tensor]:
    return lambda device: torch.eye(n, device=device) * 3


def offsets(*numbers: int) -> Callable[[str], torch.Tensor]:
    return lambda device: torch.tensor(numbers, device=device)


class Applied:
    """A module made where its input is: `module(x)` with its parameters' gradients."""

    def __init__(self, make: Callable[[], nn.Module], pick: Callable[[Any], Any] = lambda y: y) -> None:
        self.make = make
        self.pick = pick

    def __call__(self, *operands: torch.Tensor) -> Any:
        module = self.make().to(operands[0].device)
        return self.pick(module(*operands))


def _with(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    return lambda x: function(x, *args, **kwargs)


_UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "positive",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
_ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "atan2",
    "fmod",
    "remainder",
    "hypot",
    "logaddexp",
    "true_divide",
    "copysign",
]
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "isclose"]
_REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "norm",
    "logsumexp",
    "amax",
    "amin",
    "median",
    "max",
    "min",
    "cumsum",
    "cumprod",
    "all",
    "any",
    "argmax",
    "argmin",
]

CALLS: list[Call] = [
    *(Call(n, getattr(torch, n), ((3, 4),)) for n in _UNARY),
    *(Call(f"F.{n}", getattr(F, n), ((3, 4),)) for n in _ACTIVATIONS),
    *(Call(f"{n}-broadcast", getattr(torch, n), ((3, 1, 4), (2, 1))) for n in _BINARY),
    *(Call(f"{n}-transposed", getattr(torch, n), (transposed(3, 4), (4, 3))) for n in _BINARY[:4]),
    *(Call(f"{n}-number", _with(getattr(torch, n), 2), ((3, 4),)) for n in ("add", "sub", "mul", "div", "pow")),
    *(Call(n, getattr(torch, n), ((3, 4), (3, 4)), backward=False) for n in _COMPARISONS),
    *(
        Call(f"{n}-dim", _with(getattr(torch, n), dim=1), ((3, 4, 2),), n not in ("all", "any", "argmax", "argmin"))
        for n in _REDUCTIONS
    ),
    *(
        Call(f"{n}-keepdim", _with(getattr(torch, n), dim=-1, keepdim=True), ((3, 4),))
        for n in ("sum", "mean", "std", "var", "logsumexp", "amax", "max")
    ),
    *(
        Call(f"{n}-all", getattr(torch, n), ((3, 4),))
        for n in ("sum", "mean", "prod", "std", "var", "max", "min", "norm", "median")
    ),
    Call("rsub", lambda x: 1 - x, ((3, 4),)),
    Call("rdiv", lambda x: 1 / x, ((3, 4),)),
    Call("half-plus-float", lambda x, y: x.half() + y, ((3, 4), (3, 4))),
    Call("half-times-number", lambda x: x.half() * 2.5, ((3, 4),)),
    Call("int-plus-float", lambda x, y: x + y, (("int", 5, 3, 4), (3, 4))),
    Call("int-divided", lambda x: x / 2, (("int", 5, 3, 4),), backward=False),
    Call("bool-sum", torch.sum, (("bool", 3, 4),), backward=False),
    Call("in-place-chain", lambda x: x.clone().add_(1).mul_(2).neg_().relu_(), ((3, 4),)),
    Call("clamp", lambda x: x.clamp(0.2, 0.8), ((3, 4),)),
    Call("clamp-tensor", torch.clamp, ((3, 4), (4,), (3, 1))),
    Call("lerp", torch.lerp, ((3, 4), (3, 4), (4,))),
    Call("addcmul", torch.addcmul, ((3, 4), (3, 1), (4,))),
    Call("addcdiv", torch.addcdiv, ((3, 4), (3, 1), (4,))),
    Call("where", torch.where, (("bool", 3, 4), (3, 1), (4,))),
    Call("where-number", lambda m, x: torch.where(m, x, 0.0), (("bool", 3, 4), (3, 4))),
    Call("nan_to_num", torch.nan_to_num, ((3, 4),)),
    Call("complex", torch.complex, ((3, 4), (3, 4)), backward=False),
    Call("polar-abs", lambda r, a: torch.polar(r, a).abs(), ((3, 4), (3, 4)), backward=False),
    Call("view_as_complex", lambda x: torch.view_as_real(torch.view_as_complex(x) * 1j), ((3, 4, 2),)),
    Call("aminmax", torch.aminmax, ((3, 4),)),
    Call("var_mean", lambda x: torch.var_mean(x, dim=1), ((3, 4),)),
    Call("std-unbiased", lambda x: x.std(dim=(0, 2), unbiased=False), ((3, 4, 2),)),
    Call("norm-2-dims", lambda x: torch.linalg.vector_norm(x, dim=(1, 2)), ((3, 4, 2),)),
    Call("matrix_norm", torch.linalg.matrix_norm, ((3, 4, 2),)),
    Call("normalize", F.normalize, ((3, 4),)),
    Call("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), ((3, 4),)),
    Call("cosine_similarity", F.cosine_similarity, ((3, 4), (3, 4))),
    Call("pairwise_distance", F.pairwise_distance, ((3, 4), (3, 4))),
    Call("softmax", lambda x: x.softmax(1), ((3, 4, 2),)),
    Call("log_softmax", lambda x: x.log_softmax(-1), ((3, 4, 2),)),
    Call("softmax-float", lambda x: x.half().softmax(1, dtype=torch.float32), ((3, 4),)),
    Call("softmin", lambda x: F.softmin(x, 1), ((3, 4),)),
    Call("gumbel_softmax", lambda x: F.gumbel_softmax(x, hard=True), ((3, 4),)),
    Call("glu", F.glu, ((3, 4),)),
    Call("prelu", F.prelu, ((3, 4), (4,))),
    Call("threshold", lambda x: F.threshold(x, 0.5, 0.0), ((3, 4),)),
    Call("dropout", lambda x: F.dropout(x, 0.5), ((3, 4),)),
    Call("dropout2d", lambda x: F.dropout2d(x, 0.5), ((3, 4, 2, 2),)),
    Call("alpha_dropout", lambda x: F.alpha_dropout(x, 0.5, training=True), ((3, 4),)),
    # products
    Call("mm", torch.mm, ((3, 4), (4, 5))),
    Call("mm-transposed", lambda a, b: a @ b.t(), ((3, 4), (5, 4))),
    Call("bmm", torch.bmm, ((2, 3, 4), (2, 4, 5))),
    Call("matmul-broadcast", torch.matmul, ((2, 1, 3, 4), (5, 4, 2))),
    Call("matmul-vector", torch.matmul, ((2, 3, 4), (4,))),
    Call("vector-matmul", torch.matmul, ((3,), (2, 3, 4))),
    Call("mv", torch.mv, ((3, 4), (4,))),
    Call("dot", torch.dot, ((4,), (4,))),
    Call("outer", torch.outer, ((3,), (4,))),
    Call("addmm", torch.addmm, ((5,), (3, 4), (4, 5))),
    Call("baddbmm", torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    Call("addmv", torch.addmv, ((3,), (3, 4), (4,))),
    Call("linear", F.linear, ((2, 3, 4), (5, 4), (5,))),
    Call("linear-no-bias", F.linear, ((2, 3, 4), (5, 4))),
    Call("linear-transposed-input", F.linear, (transposed(2, 4, 3), (5, 4), (5,))),
    Call("bilinear", F.bilinear, ((3, 4), (3, 5), (2, 4, 5), (2,))),
    Call("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), ((2, 3, 4), (2, 5, 4))),
    Call("einsum-three", lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), ((2, 3), (3, 4), (4, 5))),
    Call("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), ((2, 3, 4), (3, 4, 5))),
    Call("kron", torch.kron, ((2, 3), (4, 5))),
    Call(
        "chain_matmul",
        torch.linalg.multi_dot,
        (lambda d: [operand(s, d) for s in ((2, 3), (3, 4), (4, 5))],),
        backward=False,
    ),
    Call("cdist", torch.cdist, ((2, 3, 4), (2, 5, 4))),
    Call("cdist-large", torch.cdist, ((1, 30, 4), (1, 26, 4))),
    Call("cross", torch.linalg.cross, ((4, 3), (4, 3))),
    Call("trace", torch.trace, ((4, 4),)),
    Call("matrix_power", lambda x: torch.linalg.matrix_power(x, 3), ((4, 4),)),
    # linear algebra
    Call("cholesky", torch.linalg.cholesky, (positive_definite(4),), strides=False),
    Call("inverse", torch.linalg.inv, (positive_definite(4),), strides=False),
    Call("solve", torch.linalg.solve, (positive_definite(4), (4, 2)), strides=False),
    Call("det", torch.linalg.det, (positive_definite(4),), strides=False),
    Call("geqrf", torch.geqrf, ((4, 3),), backward=False),
    Call("gamma", lambda x: torch.distributions.Gamma(x, x).rsample(), ((3, 4),)),
    Call("dirichlet", lambda x: torch.distributions.Dirichlet(x).rsample(), ((3, 4),)),
    Call("normal", lambda m, s: torch.distributions.Normal(m, s).rsample(), ((3, 4), (3, 4))),
    Call("categorical", lambda x: torch.distributions.Categorical(x).sample((2,)), ((3, 4),), backward=False),
    Call("bernoulli", lambda x: torch.bernoulli(x * 0.5), ((3, 4),)),
    Call("poisson", torch.poisson, ((3, 4),), backward=False),
    Call("fake_quantize", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), ((3, 4),)),
    Call("slogdet", lambda x: torch.linalg.slogdet(x)[1], (positive_definite(4),), strides=False),
    Call("qr", torch.linalg.qr, ((4, 3),), strides=False),
    Call("svd", lambda x: torch.linalg.svd(x, full_matrices=False)[1], ((4, 3),), strides=False),
    Call("eigh", torch.linalg.eigvalsh, (positive_definite(4),), strides=False),
    Call(
        "triangular",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        (positive_definite(4), (4, 2)),
        strides=False,
    ),
    # shapes
    Call("cat", lambda a, b: torch.cat([a, b], 1), ((3, 4), (3, 2))),
    Call(
        "cat-channels-last", lambda a, b: torch.cat([a, b], 1), (channels_last(2, 3, 4, 4), channels_last(2, 5, 4, 4))
    ),
    Call("stack", lambda a, b: torch.stack([a, b], -1), ((3, 4), (3, 4))),
    Call("hstack", lambda a, b: torch.hstack([a, b]), ((3, 4), (3, 4))),
    Call("split", lambda x: [p * 2 for p in x.split(2, 1)], ((3, 5),)),
    Call("chunk", lambda x: [p + 1 for p in x.chunk(3, -1)], ((3, 7),)),
    Call("unbind", lambda x: [p.exp() for p in x.unbind(1)], ((3, 4),)),
    Call("tensor_split", lambda x: x.tensor_split((1, 3), 1)[1].exp(), ((3, 4),)),
    Call("reshape-copies", lambda x: x.transpose(0, 1).reshape(-1), ((3, 4),)),
    Call("flatten", lambda x: x.permute(0, 2, 1).flatten(1), ((3, 4, 2),)),
    Call("unflatten", lambda x: x.unflatten(1, (2, 2)) * 1, ((3, 4),)),
    Call("movedim", lambda x: x.movedim(0, -1).contiguous(), ((3, 4, 2),)),
    Call("expand", lambda x: x.expand(3, 4) * 1, ((3, 1),)),
    Call("repeat", lambda x: x.repeat(2, 3), ((3, 4),)),
    Call("tile", lambda x: x.tile(2, 1, 3), ((3, 4),)),
    Call("repeat_interleave", lambda x: x.repeat_interleave(2, dim=1), ((3, 4),)),
    Call("roll", lambda x: x.roll((1, 2), (0, 1)), ((3, 4),)),
    Call("flip", lambda x: x.flip(0, 1), ((3, 4),)),
    Call("rot90", torch.rot90, ((3, 4),)),
    Call("tril", torch.tril, ((3, 4),)),
    Call("triu", lambda x: x.triu(1), ((3, 4),)),
    Call("diag", torch.diag, ((4,),)),
    Call("diagonal", lambda x: x.diagonal() * 2, ((4, 4),)),
    Call("diag_embed", torch.diag_embed, ((3, 4),)),
    Call("unfold", lambda x: x.unfold(1, 2, 1) * 1, ((3, 4),)),
    Call("pad-constant", lambda x: F.pad(x, (1, 2, 0, 1)), ((3, 4),)),
    Call("pad-reflect", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), ((1, 2, 3, 4),)),
    Call("pad-replicate", lambda x: F.pad(x, (1, 1), mode="replicate"), ((1, 3, 4),)),
    Call("pad-circular", lambda x: F.pad(x, (1, 1), mode="circular"), ((1, 3, 4),)),
    Call("meshgrid", lambda a, b: [g * 1 for g in torch.meshgrid(a, b, indexing="ij")], ((3,), (4,))),
    Call("cartesian", lambda a, b: torch.cartesian_prod(a, b), ((3,), (4,))),
    Call("as_strided", lambda x: x.as_strided((2, 2), (1, 2)) * 2, ((3, 4),)),
    Call("squeeze", lambda x: x.squeeze().unsqueeze(0) * 2, ((3, 1, 4),)),
    Call("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), ((1, 8, 3, 3),)),
    Call("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), ((1, 2, 4, 4),)),
    Call("channel_shuffle", lambda x: F.channel_shuffle(x, 2), ((1, 4, 3, 3),)),
    Call("fold", lambda x: F.fold(x, (4, 4), (2, 2)), ((1, 8, 9),)),
    Call("unfold-image", lambda x: F.unfold(x, (2, 2)), ((1, 2, 4, 4),)),
    Call("to-half", lambda x: x.to(torch.float16), ((3, 4),)),
    Call("to-channels-last", lambda x: x.to(memory_format=torch.channels_last), ((2, 3, 4, 4),)),
    Call("clone-preserves", lambda x: x.clone(), (transposed(3, 4),)),
    Call("empty_like-then-copy", lambda x: torch.empty_like(x).copy_(x), (transposed(3, 4),)),
    # indexing
    Call("index_select", lambda x, i: x.index_select(1, i), ((3, 4), ("int", 4, 2))),
    Call("index", lambda x, i: x[i], ((3, 4), ("int", 3, 5))),
    Call("index-two", lambda x, i, j: x[i, j], ((3, 4), ("int", 3, 5), ("int", 4, 5))),
    Call("index-middle", lambda x, i: x[:, i, None], ((3, 4, 2), ("int", 4, 5))),
    Call("index-apart", lambda x, i, j: x[i, :, j], ((3, 4, 2), ("int", 3, 5), ("int", 2, 5))),
    Call("index-mask-known", lambda x: x[torch.tensor([True, False, True], device=x.device)], ((3, 4),)),
    Call("index-step", lambda x: x[::2, 1:] * 1, ((3, 4),)),
    Call("index_put", lambda x, i, v: x.clone().index_put_((i,), v, accumulate=True), ((3, 4), ("int", 3, 2), (2, 4))),
    Call("setitem", lambda x, v: _set(x.clone(), v), ((3, 4), (4,))),
    Call("gather", lambda x, i: x.gather(1, i), ((3, 4), ("int", 4, 3, 2))),
    Call("scatter", lambda x, i, v: x.scatter(1, i, v), ((3, 4), ("int", 1, 3, 1), (3, 1))),
    Call("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), ((3, 4), ("int", 4, 3, 2), (3, 2))),
    Call("scatter_reduce", lambda x, i, v: x.scatter_reduce(1, i, v, "sum"), ((3, 4), ("int", 4, 3, 2), (3, 2))),
    Call("index_add", lambda x, i, v: x.index_add(0, i, v), ((3, 4), ("int", 3, 2), (2, 4))),
    Call("index_select-none", lambda x, i: x.index_select(0, i), ((0, 4), ("int", 1, 0))),
    Call("index_add-none", lambda x, i, v: x.index_add(0, i, v), ((0, 4), ("int", 1, 0), (0, 4))),
    Call("index_reduce-none", lambda x, i, v: x.index_reduce(0, i, v, "mean"), ((0, 4), ("int", 1, 0), (0, 4))),
    Call("index_copy", lambda x, i, v: x.index_copy(0, i, v), ((3, 4), ("int", 1, 1), (1, 4))),
    Call("index_fill", lambda x, i: x.index_fill(0, i, 2.0), ((3, 4), ("int", 3, 2))),
    Call("masked_fill", lambda x, m: x.masked_fill(m, -1e9), ((3, 4), ("bool", 4))),
    Call("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), ((3, 4), ("bool", 3, 4), (12,))),
    Call("take", lambda x, i: x.take(i), ((3, 4), ("int", 12, 5))),
    Call("take_along_dim", lambda x, i: x.take_along_dim(i, 1), ((3, 4), ("int", 4, 3, 1))),
    Call("select_scatter", lambda x, v: x.select_scatter(v, 0, 1), ((3, 4), (4,))),
    Call("slice_scatter", lambda x, v: x.slice_scatter(v, 1, 1, 3), ((3, 4), (3, 2))),
    Call("sort", lambda x: x.sort(1, descending=True)[0], ((3, 4),)),
    Call("argsort", lambda x: x.argsort(0), ((3, 4),), backward=False),
    Call("topk", lambda x: x.topk(2, 1), ((3, 4),)),
    Call("kthvalue", lambda x: x.kthvalue(2, 1), ((3, 4),)),
    Call("mode", lambda x: x.mode(1), ((3, 4),)),
    Call("searchsorted", torch.searchsorted, ((4,), (3,)), backward=False),
    Call("bucketize", lambda x, b: torch.bucketize(x, b), ((3, 4), (5,)), backward=False),
    Call("one_hot", lambda x: F.one_hot(x, 6), (("int", 6, 3, 4),), backward=False),
    Call("histc", lambda x: torch.histc(x, 5), ((12,),), backward=False),
    Call("cummax", lambda x: x.cummax(1), ((3, 4),)),
    Call("logcumsumexp", lambda x: x.logcumsumexp(1), ((3, 4),)),
    Call("cummin", lambda x: x.cummin(0), ((3, 4),)),
    Call("diff", torch.diff, ((3, 4),)),
    Call("quantile", lambda x: torch.quantile(x, 0.5, dim=1), ((3, 4),)),
    Call("embedding", F.embedding, (("int", 5, 2, 3), (5, 4))),
    Call("embedding-padding", lambda i, w: F.embedding(i, w, padding_idx=0), (("int", 5, 2, 3), (5, 4))),
    Call(
        "embedding_bag", lambda i, w, o: F.embedding_bag(i, w, o), (("int", 5, 6), (5, 4), offsets(0, 2)), strides=False
    ),
    # convolutions
    Call("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), ((2, 3, 8), (4, 3, 3), (4,))),
    Call("conv2d", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), ((2, 3, 8, 8), (4, 3, 3, 3), (4,))),
    Call("conv2d-grouped", lambda x, w: F.conv2d(x, w, groups=2), ((2, 4, 8, 8), (6, 2, 3, 3))),
    Call("conv2d-depthwise", lambda x, w: F.conv2d(x, w, groups=4, dilation=2), ((2, 4, 8, 8), (4, 1, 3, 3))),
    Call("conv2d-channels-last", lambda x, w: F.conv2d(x, w), (channels_last(2, 3, 8, 8), (4, 3, 3, 3)), strides=False),
    Call("conv2d-same", lambda x, w: F.conv2d(x, w, padding="same"), ((2, 3, 8, 8), (4, 3, 3, 3))),
    Call("conv2d-unbatched", lambda x, w: F.conv2d(x, w), ((3, 8, 8), (4, 3, 3, 3))),
    Call("conv3d", lambda x, w, b: F.conv3d(x, w, b), ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), (3,))),
    Call("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2), ((2, 3, 8), (3, 4, 3), (4,))),
    Call(
        "conv_transpose2d",
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1),
        ((2, 3, 4, 4), (3, 4, 3, 3), (4,)),
    ),
    Call(
        "conv_transpose2d-grouped",
        lambda x, w, b: F.conv_transpose2d(x, w, b, groups=2),
        ((2, 4, 4, 4), (4, 3, 3, 3), (6,)),
    ),
    Call("conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w), ((1, 2, 3, 3, 3), (2, 3, 2, 2, 2))),
    Call("conv_tbc", lambda x, w, b: torch.conv_tbc(x, w, b, 1), ((5, 2, 3), (3, 3, 4), (4,)), strides=False),
    # pooling and interpolation
    Call("max_pool1d", lambda x: F.max_pool1d(x, 2), ((2, 3, 8),)),
    Call("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), ((2, 3, 8, 8),)),
    Call("max_pool2d-channels-last", lambda x: F.max_pool2d(x, 2), (channels_last(2, 3, 8, 8),)),
    Call("max_pool2d-indices", lambda x: F.max_pool2d(x, 2, return_indices=True), ((2, 3, 8, 8),)),
    Call("max_pool3d", lambda x: F.max_pool3d(x, 2), ((1, 2, 4, 4, 4),)),
    Call("max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), ((1, 2, 4, 4),)),
    Call("avg_pool1d", lambda x: F.avg_pool1d(x, 2), ((2, 3, 8),)),
    Call("avg_pool2d", lambda x: F.avg_pool2d(x, 2), ((2, 3, 8, 8),)),
    Call("avg_pool3d", lambda x: F.avg_pool3d(x, 2), ((1, 2, 4, 4, 4),)),
    Call("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), ((2, 3, 8),)),
    Call("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), ((2, 3, 8, 8),)),
    Call("adaptive_avg_pool2d-one", lambda x: F.adaptive_avg_pool2d(x, 1), ((2, 3, 8, 8),)),
    Call("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 2), ((1, 2, 4, 4, 4),)),
    Call("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 3), ((2, 3, 8, 8),)),
    Call("fractional_max_pool3d", lambda x: F.fractional_max_pool3d(x, 2, output_size=2), ((1, 2, 4, 4, 4),)),
    Call("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2), ((2, 3, 8, 8),)),
    Call("fractional_max_pool2d", lambda x: F.fractional_max_pool2d(x, 2, output_size=3), ((2, 3, 8, 8),)),
    *(
        Call(f"interpolate-{mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), (shape,))
        for mode, shape in (
            ("nearest", (1, 2, 3, 3)),
            ("bilinear", (1, 2, 3, 3)),
            ("bicubic", (1, 2, 3, 3)),
            ("area", (1, 2, 3, 3)),
            ("linear", (1, 2, 3)),
            ("trilinear", (1, 2, 3, 3, 3)),
            ("nearest-exact", (1, 2, 3, 3)),
        )
    ),
    Call("interpolate-size", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True), ((1, 2, 9, 9),)),
    Call("interpolate-channels-last", lambda x: F.interpolate(x, scale_factor=2.0), (channels_last(1, 2, 3, 3),)),
    Call("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), ((1, 2, 4, 4), (1, 3, 3, 2))),
    Call("affine_grid", lambda t: F.affine_grid(t, [1, 2, 4, 4], align_corners=False), ((1, 2, 3),)),
    # normalisation
    Call("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), ((2, 3, 4), (4,), (4,))),
    Call("layer_norm-plain", lambda x: F.layer_norm(x, (3, 4)), ((2, 3, 4),)),
    Call("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), ((2, 3, 4), (4,))),
    Call("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), ((2, 4, 3, 3), (4,), (4,))),
    Call(
        "group_norm-channels-last",
        lambda x, w, b: F.group_norm(x, 2, w, b),
        (channels_last(2, 4, 3, 3), (4,), (4,)),
        strides=False,
    ),
    Call("instance_norm", F.instance_norm, ((2, 4, 3, 3),)),
    Call("batch_norm-2d", Applied(lambda: nn.BatchNorm2d(3)), ((2, 3, 4, 4),)),
    Call("batch_norm-channels-last", Applied(lambda: nn.BatchNorm2d(3)), (channels_last(2, 3, 4, 4),)),
    Call("batch_norm-1d", Applied(lambda: nn.BatchNorm1d(3)), ((5, 3),)),
    Call("batch_norm-plain", Applied(lambda: nn.BatchNorm2d(3, affine=False)), ((2, 3, 4, 4),)),
    Call("batch_norm-eval", Applied(lambda: nn.BatchNorm2d(3).eval()), ((2, 3, 4, 4),)),
    Call("local_response_norm", lambda x: F.local_response_norm(x, 2), ((2, 4, 3, 3),)),
    Call("weight_norm", Applied(lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), ((2, 4),)),
    Call("spectral_norm", Applied(lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))), ((2, 4),)),
    # losses
    Call("cross_entropy", F.cross_entropy, ((6, 5), ("int", 5, 6))),
    Call("cross_entropy-images", F.cross_entropy, ((2, 5, 3, 3), ("int", 5, 2, 3, 3))),
    Call("cross_entropy-smoothed", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), ((6, 5), ("int", 5, 6))),
    Call("cross_entropy-probabilities", F.cross_entropy, ((6, 5), (6, 5))),
    Call("cross_entropy-unreduced", lambda x, y: F.cross_entropy(x, y, reduction="none"), ((6, 5), ("int", 5, 6))),
    Call("nll_loss", F.nll_loss, ((6, 5), ("int", 5, 6))),
    *(
        Call(n, getattr(F, n), ((3, 4), (3, 4)))
        for n in [
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "binary_cross_entropy_with_logits",
            "kl_div",
            "poisson_nll_loss",
            "multilabel_soft_margin_loss",
        ]
    ),
    Call("soft_margin_loss", F.soft_margin_loss, ((3, 4), ("int", 2, 3, 4))),
    Call("gaussian_nll_loss", F.gaussian_nll_loss, ((3, 4), (3, 4), (3, 4))),
    Call("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), ((3, 4), (3, 4))),
    Call("margin_ranking_loss", F.margin_ranking_loss, ((4,), (4,), (4,))),
    Call("triplet_margin_loss", F.triplet_margin_loss, ((3, 4), (3, 4), (3, 4))),
    Call("cosine_embedding_loss", F.cosine_embedding_loss, ((3, 4), (3, 4), (3,))),
    Call("hinge_embedding_loss", F.hinge_embedding_loss, ((3, 4), (3, 4))),
    Call("multi_margin_loss", F.multi_margin_loss, ((3, 4), ("int", 4, 3))),
    Call("multilabel_margin_loss", F.multilabel_margin_loss, ((3, 4), ("int", 4, 3, 4))),
    Call(
        "ctc_loss",
        lambda x, t: F.ctc_loss(x.log_softmax(2), t, (6, 6), (3, 3)),
        ((6, 2, 5), lambda d: torch.randint(1, 5, (2, 3), device=d)),
    ),
    # attention and recurrent layers
    Call("attention", F.scaled_dot_product_attention, ((2, 2, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)), strides=False),
    Call(
        "attention-causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 2, 5, 8),) * 3,
        strides=False,
    ),
    Call("attention-mask", F.scaled_dot_product_attention, (*((2, 2, 5, 8),) * 3, ("bool", 5, 5)), strides=False),
    Call("attention-three", F.scaled_dot_product_attention, ((2, 5, 8),) * 3, strides=False),
    Call("multihead", Applied(lambda: nn.MultiheadAttention(8, 2, batch_first=True)), ((2, 5, 8),) * 3, strides=False),
    Call(
        "transformer-layer",
        Applied(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        ((2, 5, 8),),
        strides=False,
    ),
    Call("lstm", Applied(lambda: nn.LSTM(4, 3, 2, batch_first=True)), ((2, 5, 4),), strides=False),
    Call("lstm-bidirectional", Applied(lambda: nn.LSTM(4, 3, bidirectional=True)), ((2, 5, 4),), strides=False),
    Call("lstm-projected", Applied(lambda: nn.LSTM(4, 3, proj_size=2)), ((2, 5, 4),), strides=False),
    Call("gru", Applied(lambda: nn.GRU(4, 3, 2)), ((5, 2, 4),), strides=False),
    Call("rnn", Applied(lambda: nn.RNN(4, 3)), ((5, 2, 4),), strides=False),
    Call("lstm-cell", Applied(lambda: nn.LSTMCell(4, 3)), ((2, 4),)),
    Call("gru-cell", Applied(lambda: nn.GRUCell(4, 3)), ((2, 4),)),
    Call("rnn-cell", Applied(lambda: nn.RNNCell(4, 3)), ((2, 4),)),
    # Overloads with `out` whose functional ones alone have a meta kernel
    Call("scaled-mm-out", lambda x: _scaled_into(x, torch.empty(16, 16, device=x.device)), ((16, 16),), backward=False),
    Call(
        "adaptive-avg-pool2d-out",
        lambda x: torch.ops.aten.adaptive_avg_pool2d.out(x, [2, 2], out=x.new_empty(0)),
        ((1, 3, 8, 8),),
        backward=False,
    ),
    Call(
        "batch-norm-out",
        lambda x: torch.ops.aten._native_batch_norm_legit.no_stats_out(
            x, None, None, True, 0.1, 1e-5, out=x.new_empty(0), save_mean=x.new_empty(0), save_invstd=x.new_empty(0)
        ),
        ((4, 3, 8, 8),),
        backward=False,
    ),
    # Fourier transforms
    Call("fft", lambda x: torch.fft.fft(x).abs(), ((3, 8),)),
    Call("rfft", lambda x: torch.fft.irfft(torch.fft.rfft(x)), ((3, 8),)),
    Call("rfft2", lambda x: torch.fft.rfft2(x).real, ((3, 8, 8),), strides=False),
    Call("stft", lambda x: torch.stft(x, 8, return_complex=True).abs(), ((1, 64),), strides=False),
    Call("fftshift", torch.fft.fftshift, ((3, 8),)),
]


def _set(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    x[1] = value
    x[:, 0] = 0
    return x


def _scaled_into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    one, half = torch.ones((), device=x.device), x.to(torch.float8_e4m3fn)
    return torch._scaled_mm(half, half.t(), one, one, out_dtype=out.dtype, out=out)
