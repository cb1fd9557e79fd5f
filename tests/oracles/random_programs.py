"""Small training programs that a seed chooses, run for real on the CPU and on the virtual device. Sizes are bytes.

A program stacks layers that are wrapped in what people wrap layers in, and takes a few steps in one of the ways that
training loops take them. `choices` of a program says what was chosen.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.optim import swa_utils
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from memlint.memory.devices import device_named
from memlint.memory.estimate import peaks
from memlint.session.real.cpu import measure_cpu_step
from memlint.tracing.recorder import trace_program
from tests.oracles.random_layers import ANY, OF_IMAGES, OF_ROWS, OF_SEQUENCES
from tests.oracles.single_ops import Difference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NUM_STEPS = 2
KNOWN = Path(__file__).with_name("known_random_programs.toml")


class Wrapped(nn.Module):
    """A layer as `call` calls it."""

    def __init__(self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x)


def _saves_products(_context: object, op: object, *_: object, **__: object) -> CheckpointPolicy:
    saved = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
    return CheckpointPolicy.MUST_SAVE if op in saved else CheckpointPolicy.PREFER_RECOMPUTE


def _selectively(layer: nn.Module, x: Tensor) -> Tensor:
    def contexts() -> Any:
        return create_selective_checkpoint_contexts(_saves_products)

    return checkpoint(layer, x, use_reentrant=False, context_fn=contexts)


def _saved_as_half(layer: nn.Module, x: Tensor) -> Tensor:
    with saved_tensors_hooks(lambda t: (t.dtype, t.half()), lambda kept: kept[1].to(kept[0])):
        return layer(x)


def _saved_on_cpu(layer: nn.Module, x: Tensor) -> Tensor:
    with save_on_cpu():
        return layer(x)


def _scales_gradient(layer: nn.Module, x: Tensor) -> Tensor:
    y = layer(x)
    if y.requires_grad:
        y.register_hook(lambda grad: grad * 0.5)
    return y


def _in_autocast(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    return y.to(x.dtype)


def _functional(layer: nn.Module, x: Tensor) -> Tensor:
    weights = {name: p * 0.9 for name, p in layer.named_parameters()}
    return torch.func.functional_call(layer, weights, (x,))


def _with_jvp(layer: nn.Module, x: Tensor) -> Tensor:
    return x + torch.func.vjp(lambda each: (each * each).tanh(), layer(x))[1](x)[0]


_WRAPPERS: Mapping[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "checkpoint": lambda layer, x: checkpoint(layer, x, use_reentrant=False),
    "reentrant checkpoint": lambda layer, x: checkpoint(layer, x, use_reentrant=True),
    "checkpoint of no state": lambda layer, x: checkpoint(
        layer, x, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    ),
    "reentrant checkpoint of no state": lambda layer, x: checkpoint(
        layer, x, use_reentrant=True, preserve_rng_state=False
    ),
    "selective checkpoint": _selectively,
    "saved as half": _saved_as_half,
    "saved on cpu": _saved_on_cpu,
    "scaled gradient": _scales_gradient,
    "autocast": _in_autocast,
    "functional call": _functional,
    "vjp": _with_jvp,
    "residual": lambda layer, x: x + layer(x),
    "detached": lambda layer, x: x + layer(x.detach()),
    "no gradient": lambda layer, x: x + torch.no_grad()(layer)(x),
}
_HOOKED = ("forward hook", "backward hook", "pre-hook", "keeps output")


class Wrapper:
    """The ways around the layers of one program, with a layer's hooks among them."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        self.kept: dict[int, Tensor] = {}

    def wrap(self, layer: nn.Module, kind: str, number: int) -> nn.Module:
        """`layer` in the way called `kind`."""
        if kind in _WRAPPERS:
            return Wrapped(layer, _WRAPPERS[kind])
        if kind == "forward hook":
            layer.register_forward_hook(lambda _module, _inputs, output: output * 0.5 + 1)
        elif kind == "backward hook":
            layer.register_full_backward_hook(lambda _module, grads, _of_outputs: tuple(map(_halved, grads)))
        elif kind == "pre-hook":
            layer.register_forward_pre_hook(lambda _module, inputs: (inputs[0].clamp(-3, 3),))
        elif kind == "keeps output":
            layer.register_forward_hook(lambda _module, _inputs, output: self.kept.update({number: output.detach()}))
        return layer


def _halved(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else grad * 0.5


class Model(nn.Module):
    """Layers one after another, and a head."""

    def __init__(self, first: nn.Module, layers: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.layers = nn.ModuleList(layers)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


Optimizer = torch.optim.Optimizer
_OPTIMIZERS: Mapping[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "SGD by foreach": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "Adam with amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True, weight_decay=1e-2),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "AdamW by foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=1e-3),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=1e-3),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=1e-3, max_iter=1),
}


def _class_loss(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda out: loss(out, torch.arange(out.shape[0]) % out.shape[1])


_LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda out: out.sum(),
    "mean of squares": lambda out: out.pow(2).mean(),
    "mse": lambda out: F.mse_loss(out, torch.zeros_like(out)),
    "l1": lambda out: F.l1_loss(out, torch.zeros_like(out)),
    "smooth l1": lambda out: F.smooth_l1_loss(out, torch.zeros_like(out)),
    "huber": lambda out: F.huber_loss(out, torch.zeros_like(out), reduction="sum"),
    "cross entropy": _class_loss(F.cross_entropy),
    "smoothed cross entropy": _class_loss(lambda out, target: F.cross_entropy(out, target, label_smoothing=0.1)),
    "nll": _class_loss(lambda out, target: F.nll_loss(out.log_softmax(-1), target)),
    "bce": lambda out: F.binary_cross_entropy_with_logits(out, torch.ones_like(out)),
    "kl": lambda out: F.kl_div(out.log_softmax(-1), torch.full_like(out, 0.1), reduction="batchmean"),
    "cosine": lambda out: F.cosine_embedding_loss(out, torch.ones_like(out), torch.ones(out.shape[0])),
    "soft labels": lambda out: F.cross_entropy(out, torch.full_like(out, 1 / out.shape[1])),
    "hinge": _class_loss(F.multi_margin_loss),
    "contrastive": lambda out: F.cross_entropy(
        F.normalize(out, dim=-1) @ F.normalize(out, dim=-1).T, torch.arange(out.shape[0])
    ),
    "triplet": lambda out: F.triplet_margin_loss(out, out.roll(1, 0), out.flip(-1)),
}


class RandomProgram:
    """A training program that a seed chose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choices: list[str] = []

    def setup(self) -> None:
        """Choose and make model, inputs and optimizer."""
        self.choose = choose = random.Random(self.seed)
        torch.manual_seed(self.seed)
        self.choices = []
        dtype = self._chosen((torch.float32, torch.float32, torch.float32, torch.float64))
        self.model = self._model().to(dtype)
        self.x = self._input(dtype)
        kind = self._chosen(sorted(_OPTIMIZERS))
        self.optimizer = _OPTIMIZERS[kind](self.model.parameters())
        self.loss = _LOSSES[self._chosen(sorted(_LOSSES))]
        self.take = getattr(self, f"_{self._chosen(_STEPS if kind != 'LBFGS' else ('closure',))}")
        self.whole_autocast = choose.random() < 0.1 and dtype is torch.float32
        if self.whole_autocast:
            self.choices.append("all in autocast")
        self.average = swa_utils.AveragedModel(self.model) if choose.random() < 0.1 else None
        self.choices += ["averaged"] if self.average is not None else []
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)

    def step(self) -> None:
        """Take one step."""
        self.take()
        self.scheduler.step()
        if self.average is not None:
            self.average.update_parameters(self.model)

    def _chosen(self, values: Sequence[Any]) -> Any:
        value = self.choose.choice(values)
        self.choices.append(str(value))
        return value

    def _model(self) -> nn.Module:
        choose = self.choose
        family = self._chosen(("rows", "sequence", "tokens", "image"))
        self.family, self.width = family, choose.choice((16, 24, 32))
        self.batch = choose.choice((4, 8, 32) if family == "rows" else (2, 4, 6))
        self.length = choose.choice((8, 16, 20) if family == "image" else (16, 40, 64))
        width, pools = self.width, {**ANY, **OF_SEQUENCES}
        if family == "rows":
            pools = {**ANY, **OF_ROWS}
        elif family == "image":
            pools = {**OF_IMAGES}
        kinds = [self.choose.choice(sorted(_WRAPPERS)) for _ in range(2)]
        if choose.random() < 0.5:
            kinds.append(choose.choice(_HOOKED))
        wrapper, layers = Wrapper(kinds), []
        for number in range(choose.choice((2, 3, 5, 8))):
            name = choose.choice(sorted(pools))
            layer = pools[name](choose, width)
            self.choices.append(f"{name} {getattr(layer, 'name', '')}".strip())
            if choose.random() < 0.5:
                kind = choose.choice(kinds)
                layer = wrapper.wrap(layer, kind, number)
                self.choices.append(f"({kind})")
            layers.append(layer)
            if choose.random() < 0.1:
                layers.append(layer)  # the same weights again
                self.choices.append("(shared)")
        if choose.random() < 0.15:
            layers = [Wrapped(nn.Sequential(*layers), _WRAPPERS[self._chosen(_AROUND_ALL)])]
        return self._around(layers)

    def _around(self, layers: Sequence[nn.Module]) -> nn.Module:
        width, num_classes = self.width, 50
        if self.family == "image":
            head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes))
            return Model(nn.Conv2d(3, width, 3, padding=1), layers, head)
        if self.family == "tokens":
            embedding = nn.Embedding(num_classes, width)
            head = nn.Linear(width, num_classes, bias=False)
            if self.choose.random() < 0.5:
                head.weight = embedding.weight
                self.choices.append("tied")
            return Model(embedding, layers, nn.Sequential(head, nn.Flatten(0, 1)))
        flatten: nn.Module = nn.Identity() if self.family == "rows" else nn.Flatten(0, 1)
        return Model(nn.Linear(width, width), layers, nn.Sequential(nn.Linear(width, num_classes), flatten))

    def _input(self, dtype: torch.dtype) -> Tensor:
        batch, length, width = self.batch, self.length, self.width
        if self.family == "tokens":
            return torch.randint(50, (batch, length))
        shape = {"rows": (batch, width), "sequence": (batch, length, width), "image": (batch, 3, length, length)}
        return torch.randn(shape[self.family], dtype=dtype)

    # --- ways to take a step

    def _loss(self) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.whole_autocast else contextlib.nullcontext():
            return self.loss(self.model(self.x))

    def _plain(self) -> None:
        self.optimizer.zero_grad()
        loss = self._loss()
        loss.backward()
        self.optimizer.step()

    def _output_kept(self) -> None:
        self.optimizer.zero_grad()
        output = self.model(self.x)
        loss = self.loss(output)
        loss.backward()
        self.optimizer.step()
        output.detach().argmax(-1)

    def _zeroed(self) -> None:
        self._loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def _accumulated(self) -> None:
        for _ in range(2):
            (self._loss() / 2).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _clipped(self) -> None:
        self.optimizer.zero_grad()
        self._loss().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def _clipped_by_value(self) -> None:
        self.optimizer.zero_grad()
        self._loss().backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 0.1)
        self.optimizer.step()

    def _closure(self) -> None:
        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = self._loss()
            loss.backward()
            return loss

        self.optimizer.step(closure)

    def _evaluated(self) -> None:
        self._plain()
        self.model.eval()
        with torch.no_grad():
            self.model(self.x).argmax(-1)
        self.model.train()

    def _reloaded(self) -> None:
        self._plain()
        self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))

    def _copied(self) -> None:
        self._plain()
        best = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(best)

    def _by_grad(self) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        grads = torch.autograd.grad(self._loss(), parameters, allow_unused=True)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _twice_backward(self) -> None:
        self.optimizer.zero_grad()
        loss = self._loss()
        loss.backward(retain_graph=True)
        loss.backward()
        self.optimizer.step()

    def _penalized(self) -> None:
        self.optimizer.zero_grad()
        parameters = [p for p in self.model.parameters() if p.requires_grad][:2]
        loss = self._loss()
        grads = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        penalty = sum((grad.pow(2).sum() for grad in grads if grad is not None), loss)
        penalty.backward()
        self.optimizer.step()

    def _perturbed(self) -> None:
        self._loss().backward()
        moves = [None if p.grad is None else 0.01 * p.grad for p in self.model.parameters()]
        with torch.no_grad():
            for p, move in zip(self.model.parameters(), moves, strict=True):
                p.add_(0 if move is None else move)
        self.optimizer.zero_grad()
        self._loss().backward()
        with torch.no_grad():
            for p, move in zip(self.model.parameters(), moves, strict=True):
                p.sub_(0 if move is None else move)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _logged(self) -> None:
        self._plain()
        self.logged = [*getattr(self, "logged", []), self._loss().item()]


_AROUND_ALL = ("checkpoint", "reentrant checkpoint", "saved as half", "saved on cpu", "functional call", "autocast")
_STEPS = (
    *("plain", "plain", "plain", "output_kept", "zeroed", "accumulated", "clipped", "clipped_by_value", "closure"),
    *("evaluated", "reloaded", "copied", "by_grad", "twice_backward", "penalized", "perturbed", "logged"),
)


class Answer(NamedTuple):
    """A program that ran, and what it takes."""

    seed: int
    choices: Sequence[str]
    difference: Difference


def answer(seed: int) -> Answer | None:
    """Give what the program of this seed takes really and as predicted; None where it does not run for real."""
    try:
        _run(program := RandomProgram(seed))  # what is taken once for a process belongs to no program
    except (RuntimeError, ValueError, TypeError):  # layers that do not go with each other
        return None
    choices = list(program.choices)
    del program
    gc.collect()
    real = measure_cpu_step(RandomProgram(seed), NUM_STEPS).peak_nbytes
    gc.collect()
    return Answer(seed, choices, _difference(seed, real))


def _run(program: RandomProgram) -> None:
    program.setup()
    for _ in range(NUM_STEPS):
        program.step()


def _difference(seed: int, real: int) -> Difference:
    cpu = device_named("cpu")
    try:
        trace = trace_program(RandomProgram(seed), cpu, num_steps=NUM_STEPS).trace
    except Exception as error:
        return Difference(real, None, f"{type(error).__name__}: {error}".split("\n")[0])
    sizes = [buffer.nbytes for buffer in trace.buffers]
    return Difference(real, peaks(sizes, trace.events, trace.doubts, cpu).requested)


def known() -> Mapping[int, str]:
    """Seeds whose programs take other than what is predicted, each with the cause."""
    causes = tomllib.loads(KNOWN.read_text())["cause"]
    return {seed: each["because"] for each in causes for seed in each["seeds"]}
