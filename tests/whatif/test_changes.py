"""Each Change against the program that was changed by hand, and where it means nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from memlint.base.errors import MemlintError
from memlint.whatif.change import Change, ChangedProgram, Effect, NotApplicableError
from memlint.whatif.changes import (
    CHANGES,
    AccumulationSteps,
    AttentionImplementation,
    AutocastTraining,
    BatchSize,
    ChunkedCrossEntropy,
    FrozenBatchNorm,
    InPlaceFlag,
    NoGrad,
    OptimizerInBackward,
    ParameterDtype,
    ZeroGradPlacement,
)
from memlint.workloads import torchvision_schemas
from tests.whatif.programs import events, mlp, peak, program, steps, traced, vectors

torchvision_schemas.install()


def changed(make_model: Any, make_inputs: Any, *changes: Change, **options: Any) -> ChangedProgram:
    return ChangedProgram(program(make_model, make_inputs, **options), *changes)


def refuses(each: ChangedProgram) -> bool:
    """Whether the Change says that it means nothing, at once or by what a step raises."""
    try:
        traced(each)
    except NotApplicableError:
        return True
    except MemlintError as error:
        return "NotApplicableError" in str(error.message)
    return False


def test_every_change_says_what_it_does_to_training() -> None:
    assert all(isinstance(kind.effect, Effect) for kind in CHANGES)


# --- dtype


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_parameters_of_another_dtype_are_a_workload_of_that_dtype(dtype: Any) -> None:
    assert events(changed(mlp, vectors, ParameterDtype(dtype))) == events(program(mlp, vectors, dtype=dtype))
    assert peak(changed(mlp, vectors, ParameterDtype(dtype))) < peak(program(mlp, vectors))


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "bf16-amp"), ("float16", "fp16-amp")])
def test_autocast_is_a_workload_with_autocast(dtype: Any, precision: str) -> None:
    assert events(changed(mlp, vectors, AutocastTraining(dtype))) == events(program(mlp, vectors, dtype=precision))


def test_in_a_loop_of_its_own_the_model_is_called_under_autocast() -> None:
    def step(model: nn.Module, inputs: Any, optimizer: Any) -> None:
        model(*inputs.values()).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def by_hand(model: nn.Module, inputs: Any, optimizer: Any) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            output = model(*inputs.values())
        output.float().mean().backward()
        del output
        optimizer.step()
        optimizer.zero_grad()

    assert peak(changed(mlp, vectors, AutocastTraining("bfloat16"), step=step)) == peak(
        program(mlp, vectors, step=by_hand)
    )
    assert refuses(changed(mlp, vectors, AutocastTraining("float16"), step=step))


@pytest.mark.parametrize("change", [AutocastTraining("bfloat16"), ParameterDtype("bfloat16")])
def test_a_workload_that_is_not_in_float32_keeps_its_dtype(change: Any) -> None:
    assert refuses(changed(mlp, vectors, change, dtype="bf16-amp"))


# --- batch


def test_another_batch_is_a_workload_of_that_batch() -> None:
    assert events(changed(mlp, vectors, BatchSize(2))) == events(program(mlp, vectors, batch=2))


def test_accumulated_steps_are_those_of_a_loop_over_parts() -> None:
    def by_hand(model: nn.Module, inputs: Any, optimizer: Any) -> None:
        for _ in range(4):
            output = model(*inputs.values())
            loss = output.mean()
            loss = loss / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    each = changed(mlp, vectors, AccumulationSteps(4), batch=512)
    assert events(each) == events(program(mlp, vectors, batch=128, step=by_hand))
    assert peak(changed(mlp, vectors, AccumulationSteps(4), batch=4096)) < peak(program(mlp, vectors, batch=4096))


@pytest.mark.parametrize(
    ("number", "options"), [(3, {}), (1, {}), (2, {"mode": "inference"}), (2, {"step": lambda *_: None})]
)
def test_a_batch_that_cannot_be_cut_is_not(number: int, options: Any) -> None:
    assert refuses(changed(mlp, vectors, AccumulationSteps(number), batch=8, **options))


# --- optimizer


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_an_optimizer_in_backward_takes_what_one_written_with_hooks_takes(make: Any) -> None:
    def step(model: nn.Module, inputs: Any, optimizer: Any) -> None:
        output = model(*inputs.values())
        loss = output.mean()
        loss.backward()

    def construct() -> nn.Module:
        model = mlp()

        def hooked(parameter: torch.Tensor) -> None:
            parts[parameter].step()
            parts[parameter].zero_grad()

        parts: dict[torch.Tensor, Any] = {}

        def place(module: nn.Module, *_: Any) -> None:
            if not parts:
                parts.update({p: make([p], lr=1e-3) for p in module.parameters()})
                for parameter in parts:
                    parameter.register_post_accumulate_grad_hook(hooked)

        model.register_forward_pre_hook(place)
        return model

    def factory(parameters: Any) -> Any:
        return make(parameters, lr=1e-3)

    each = changed(mlp, vectors, OptimizerInBackward(), optimizer=factory)
    by_hand = program(construct, vectors, step=step, optimizer=None)
    assert peak(each) == peak(by_hand)


def test_it_lowers_a_peak_that_gradients_make() -> None:
    def deep() -> nn.Module:
        return nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))

    fused = {"optimizer": lambda p: torch.optim.AdamW(p, fused=True)}
    before, after = peak(program(deep, vectors, **fused)), peak(changed(deep, vectors, OptimizerInBackward(), **fused))
    assert after <= before - 6 * 256 * 256 * 4


def clipping(model: nn.Module, inputs: Any, optimizer: Any) -> None:
    model(*inputs.values()).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def accumulating(model: nn.Module, inputs: Any, optimizer: Any) -> None:
    for _ in range(2):
        model(*inputs.values()).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("options", [{"step": clipping}, {"step": accumulating}, {"dtype": "fp16-amp"}])
def test_gradients_that_are_needed_together_are_left(options: Any) -> None:
    assert refuses(changed(mlp, vectors, OptimizerInBackward(), **options))


def zeroing(*, before_forward: bool, set_to_none: bool) -> Any:
    def step(model: nn.Module, inputs: Any, optimizer: Any) -> None:
        if before_forward:
            optimizer.zero_grad(set_to_none)
        output = model(*inputs.values())
        loss = output.mean()
        loss.backward()
        optimizer.step()
        if not before_forward:
            optimizer.zero_grad(set_to_none)

    return step


@pytest.mark.parametrize("before_forward", [True, False])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_zeroed_where_it_is_asked(before_forward: bool, set_to_none: bool) -> None:
    change = ZeroGradPlacement(before_forward, set_to_none)
    by_hand = program(mlp, vectors, step=zeroing(before_forward=before_forward, set_to_none=set_to_none))
    elsewhere = zeroing(before_forward=not before_forward, set_to_none=not set_to_none)
    assert events(changed(mlp, vectors, change)) == events(by_hand)
    assert events(changed(mlp, vectors, change, step=elsewhere)) == events(by_hand)


# --- modules


def activated(*, inplace: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(inplace), nn.Linear(1024, 256))


def test_a_flag_is_that_of_a_module_made_so() -> None:
    each = changed(lambda: activated(inplace=False), vectors, InPlaceFlag(("1",), inplace=True))
    assert events(each) == events(program(lambda: activated(inplace=True), vectors))
    assert refuses(changed(mlp, vectors, InPlaceFlag(("1",), inplace=True)))


def test_modules_without_a_graph_take_what_the_context_manager_takes() -> None:
    class ByHand(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x = self[1](self[0](x))
            return self[2](x)

    each = changed(mlp, vectors, NoGrad(("0", "1")))
    assert events(each) == events(program(lambda: ByHand(*mlp()), vectors))
    assert refuses(changed(mlp, vectors, NoGrad(("7",))))


def images(batch: int) -> dict[str, torch.Tensor]:
    return {"0": torch.zeros(batch, 8, 32, 32)}


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))


def test_a_frozen_norm_saves_no_input_as_that_of_torchvision() -> None:
    ops = pytest.importorskip("torchvision.ops")

    def by_hand() -> nn.Module:
        model = convolutions()
        model[1] = ops.FrozenBatchNorm2d(16)
        return model

    frozen = peak(changed(convolutions, images, FrozenBatchNorm(("1",))))
    assert abs(frozen - peak(program(by_hand, images))) <= 4096  # what is kept of the parameters differs
    assert frozen < peak(program(convolutions, images))
    assert refuses(changed(convolutions, images, FrozenBatchNorm(("0",))))


def test_a_frozen_norm_computes_what_the_norm_computes_in_evaluation() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3)
    for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        nn.init.uniform_(value, 0.5, 2.0)
    x = torch.rand(2, 3, 4, 4)
    expected = norm.eval()(x)

    class Held:
        model = nn.Sequential(norm)
        optimizer = None

        def setup(self) -> None:
            """It is there."""

        def step(self) -> None:
            """Nothing."""

    held = Held()
    ChangedProgram(held, FrozenBatchNorm(("0",))).setup()
    torch.testing.assert_close(held.model.train()(x), expected)


def test_attention_of_transformers_is_that_of_a_model_made_so() -> None:
    transformers = pytest.importorskip("transformers")

    def made(implementation: str) -> Any:
        config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, n_positions=128, vocab_size=100)
        config._attn_implementation = implementation
        config.use_cache = False
        return transformers.GPT2LMHeadModel(config)

    def tokens(batch: int) -> dict[str, torch.Tensor]:
        made_tokens = torch.zeros(batch, 128, dtype=torch.int64)
        return {"input_ids": made_tokens, "labels": made_tokens}

    each = changed(lambda: made("sdpa"), tokens, AttentionImplementation("eager"))
    assert events(each) == events(program(lambda: made("eager"), tokens))
    back = changed(lambda: made("eager"), tokens, AttentionImplementation("sdpa"))
    assert events(back) == events(program(lambda: made("sdpa"), tokens))
    assert refuses(changed(lambda: made("sdpa"), tokens, AttentionImplementation("sdpa")))
    assert refuses(changed(mlp, vectors, AttentionImplementation("eager")))


def test_attention_of_timm_is_that_of_a_model_made_so() -> None:
    timm = pytest.importorskip("timm")

    def made(*, fused: bool) -> Any:
        model = timm.create_model("vit_tiny_patch16_224", depth=2)
        for block in model.blocks:
            block.attn.fused_attn = fused
        return model

    def pictures(batch: int) -> dict[str, torch.Tensor]:
        return {"0": torch.zeros(batch, 3, 224, 224)}

    each = changed(lambda: made(fused=True), pictures, AttentionImplementation("eager"))
    assert events(each) == events(program(lambda: made(fused=False), pictures))


# --- loss


class Language(nn.Module):
    def __init__(self, num_chunks: int = 1, bias: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4096, 64)
        self.body = nn.Linear(64, 64)
        self.head = nn.Linear(64, 4096, bias=bias)
        self.num_chunks = num_chunks

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.embedding(tokens)).flatten(0, 1)
        if self.num_chunks == 1:
            return F.cross_entropy(self.head(hidden), targets.flatten())
        chunks = zip(hidden.chunk(self.num_chunks), targets.flatten().chunk(self.num_chunks), strict=True)
        sums = [checkpoint(self.of_chunk, h, t, use_reentrant=False) for h, t in chunks]
        return torch.stack(sums).sum() / (targets.flatten() != -100).sum()

    def of_chunk(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(hidden), targets, reduction="sum")


def sentences(batch: int) -> dict[str, torch.Tensor]:
    tokens = torch.zeros(batch, 128, dtype=torch.int64)
    return {"tokens": tokens, "targets": tokens}


@pytest.mark.parametrize("bias", [True, False])
def test_a_loss_in_chunks_takes_what_one_written_so_takes(bias: bool) -> None:
    in_chunks = peak(changed(lambda: Language(bias=bias), sentences, ChunkedCrossEntropy(8)))
    by_hand = peak(program(lambda: Language(8, bias=bias), sentences))
    assert 0 <= in_chunks - by_hand <= 4  # the element that stands for the logits
    assert in_chunks < 0.6 * peak(program(Language, sentences))


def test_a_loss_in_chunks_is_the_loss() -> None:
    torch.manual_seed(0)
    model, inputs = Language(bias=True), sentences(4)
    inputs = {name: torch.randint_like(value, 4096) for name, value in inputs.items()}
    inputs["targets"][0, :5] = -100
    losses: list[torch.Tensor] = []

    class Host:
        def __init__(self) -> None:
            self.model, self.optimizer = model, None

        def setup(self) -> None:
            """It is there."""

        def step(self) -> None:
            losses.append(self.model(**inputs))
            losses[-1].backward()

    Host().step()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    each = ChangedProgram(Host(), ChunkedCrossEntropy(8))
    each.setup()
    each.step()
    torch.testing.assert_close(losses[1], losses[0])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    assert F.cross_entropy.__module__ == "torch.nn.functional"


def test_a_causal_model_of_transformers_is_computed_in_chunks() -> None:
    transformers = pytest.importorskip("transformers")

    def made() -> Any:
        config = transformers.LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=8192
        )
        config.use_cache = False
        return transformers.LlamaForCausalLM(config)

    def tokens(batch: int) -> dict[str, torch.Tensor]:
        each = torch.zeros(batch, 256, dtype=torch.int64)
        return {"input_ids": each, "labels": each}

    before, after = peak(program(made, tokens)), peak(changed(made, tokens, ChunkedCrossEntropy(8)))
    assert after < before - 2 * 8 * 256 * 8192 * 4


@pytest.mark.parametrize("change", [ChunkedCrossEntropy(8), ChunkedCrossEntropy(1), ChunkedCrossEntropy(8, "nowhere")])
def test_a_loss_that_is_no_cross_entropy_of_a_linear_is_left(change: Any) -> None:
    assert refuses(changed(mlp, vectors, change))


# --- together


def test_changes_compose() -> None:
    both = changed(mlp, vectors, BatchSize(64), ParameterDtype("bfloat16"), OptimizerInBackward())
    one = ChangedProgram(program(mlp, vectors, batch=64, dtype="bfloat16"), OptimizerInBackward())
    assert steps(both) == steps(one)
