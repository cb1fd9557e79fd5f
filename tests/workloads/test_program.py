from __future__ import annotations

import sys

import pytest
import torch

from memlint.base.errors import UsageError, WorkloadError
from memlint.memory.records import Category
from memlint.targets.workload import InputSpec
from memlint.workloads import user_errors
from memlint.workloads.construction.construct import build_program, complete, simulated_device
from memlint.workloads.construction.optimizers import OPTIMIZERS
from memlint.workloads.discover import find_workloads
from memlint.workloads.loss import mean_of, own_loss
from memlint.workloads.tensors import make_inputs, placed
from tests.in_process import analysed

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
def loss(output, inputs):
    return (output - inputs["x"].mean()).pow(2).mean()
"""


def program(path, name="Net", **overrides):
    (workload,) = find_workloads(f"{path}::{name}", path.parent, overrides=overrides).workloads
    made = build_program(workload, path.parent, device="cpu")
    made.setup()
    return made


def test_a_train_step_changes_the_parameters_and_drops_the_gradients(write):
    made = program(write(NET), optimizer="sgd")
    before = made.model.layer.weight.clone()
    made.step()
    assert not torch.equal(before, made.model.layer.weight)
    assert made.model.layer.weight.grad is None
    assert [a.text for a in made.assumptions][-1] == "the loss is the mean of the model's outputs"


def test_a_loss_that_the_model_keeps_is_that_of_the_step(write):
    keeps = """
    def forward(self, x, targets=None):
        y = self.layer(x)
        self.last_loss = None if targets is None else nn.functional.cross_entropy(y, targets)
        return y
"""
    made = program(
        write(
            NET.replace(
                """
    def forward(self, x):
        return self.layer(x)
""",
                keeps,
            )
        ),
        optimizer="sgd",
    )
    before = made.model.layer.weight.clone()
    made.step()
    assert not any("loss" in each.text for each in made.assumptions)
    change = made.model.layer.weight - before
    assert change.abs().max() > 0
    assert torch.allclose(
        change[0], -change[1], atol=1e-6
    )  # a cross entropy moves two classes apart, a mean moves them alike


def test_a_part_of_a_loss_that_the_model_keeps_is_not_the_loss(write):
    keeps = """
    def forward(self, x):
        self.aux_loss = self.layer(x).pow(2).mean()
        return self.layer(x)
"""
    made = program(
        write(
            NET.replace(
                """
    def forward(self, x):
        return self.layer(x)
""",
                keeps,
            )
        ),
        optimizer="sgd",
    )
    made.step()
    assert [each.text for each in made.assumptions][-1] == "the loss is the mean of the model's outputs"


def test_the_assumption_on_the_loss_is_said_once(write):
    made = program(write(NET))
    made.step()
    made.step()
    assert sum("loss" in a.text for a in made.assumptions) == 1


def test_an_inference_step_has_no_optimizer_and_no_gradients(write):
    made = program(write(NET), mode="inference")
    made.step()
    assert made.optimizer is None
    assert not made.model.training


def test_without_an_optimizer_the_parameters_stay(write):
    made = program(write(NET), optimizer="none")
    before = made.model.layer.weight.clone()
    made.step()
    assert torch.equal(before, made.model.layer.weight)
    assert made.model.layer.weight.grad is None


@pytest.mark.parametrize(("dtype", "parameters"), [("bfloat16", torch.bfloat16), ("bf16-amp", torch.float32)])
def test_low_precision_casts_model_and_inputs_and_autocast_does_not(write, dtype, parameters):
    made = program(write(NET), dtype=dtype)
    made.step()
    assert made.model.layer.weight.dtype == parameters
    assert made.inputs["x"].dtype == parameters


def test_a_declared_loss_gets_output_and_inputs(write):
    path = write(NET)
    made = program(path, loss=f"{path}::loss")
    made.step()
    assert all("loss" not in a.text for a in made.assumptions)


def test_a_declared_optimizer_gets_the_parameters(write):
    path = write(NET + "\ndef make(parameters):\n    return torch.optim.SGD(parameters, lr=0.5)\n")
    assert program(path, optimizer=f"{path}::make").optimizer.defaults["lr"] == 0.5


def test_an_unknown_optimizer_suggests_the_nearest(write):
    with pytest.raises(UsageError, match="'adamww' is not an optimizer") as caught:
        program(write(NET), optimizer="adamww")
    assert "adamw?" in caught.value.hint


def test_changes_are_applied_before_the_optimizer_is_made(write):
    path = write(NET)
    (workload,) = find_workloads(f"{path}::Net", path.parent).workloads
    made = build_program(workload, changes=[lambda p: p.model.layer.bias.requires_grad_(False)], device="cpu")
    seen = []
    made.changes = [*made.changes, lambda p: seen.append(p.optimizer)]
    made.setup()
    assert seen == [None]
    assert made.optimizer is not None


def test_a_step_that_raises_says_what_and_where(write):
    path = write("""
class Net(nn.Linear):
    def __init__(self): super().__init__(2, 2)
    def forward(self, x):
        if torch.is_grad_enabled(): raise ArithmeticError("only when training")
        return super().forward(x)
""")
    made = program(path)
    with pytest.raises(WorkloadError, match=r"ArithmeticError: only when training") as caught:
        made.step()
    assert f"{path}:9" in caught.value.message


def test_the_models_own_loss_is_found_in_every_usual_place():
    loss, logits = torch.zeros((), requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    assert own_loss((logits, loss)) is loss
    assert own_loss({"loss": loss, "logits": logits}) is loss
    assert own_loss(loss) is loss
    assert own_loss(logits) is None
    assert own_loss((logits, None)) is None
    assert own_loss({"a": loss + 1, "b": loss + 2}).item() == 3


def test_the_mean_reaches_every_output_that_needs_a_gradient():
    first, second = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    mean_of({"a": first, "b": [second, torch.ones(1)]}).backward()
    assert first.grad is not None
    assert second.grad is not None
    location, scale = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    mean_of(torch.distributions.Normal(location, scale)).backward()
    assert location.grad is not None
    assert scale.grad is not None
    with pytest.raises(WorkloadError, match="no tensor that needs a gradient"):
        mean_of(torch.ones(2))
    with pytest.raises(WorkloadError, match=r"needs a gradient \(.*linear\.py:\d+\)"):
        mean_of(torch.ones(2), torch.nn.Linear(2, 2))


def test_inputs_nest_as_their_names_say():
    specs = (
        InputSpec("labels[].boxes", (5, 4)),
        InputSpec("labels[].ids", (5,), "int64", low=3, high=4),
        InputSpec("data.x", ("batch", 2)),
        InputSpec.constant("flag", value=True),
        InputSpec("images[]", (3, 8, 8)),
        InputSpec.constant("grids[].0.0", value=1),
        InputSpec.constant("grids[].0.1", value=4),
    )
    made = make_inputs(specs, 2, {})
    assert [item["boxes"].shape for item in made["labels"]] == [(5, 4), (5, 4)]
    assert made["labels"][0]["ids"].tolist() == [3] * 5
    assert made["data"]["x"].shape == (2, 2)
    assert made["flag"] is True
    assert [image.shape for image in made["images"]] == [(3, 8, 8)] * 2
    assert made["grids"] == [[[1, 4]], [[1, 4]]]


def test_numbers_that_are_counted_follow_one_another_along_the_last_dimension():
    specs = (
        InputSpec("positions", ("batch", 3), "int64", counted=True),
        InputSpec("places", ("2*batch",), "int64", low=5, counted=True),
        InputSpec("times", (2,), "float32", counted=True),
    )
    made = make_inputs(specs, 2, {})
    assert made["positions"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert made["positions"].is_contiguous()
    assert made["places"].tolist() == [5, 6, 7, 8]
    assert made["times"].tolist() == [0.0, 1.0]
    assert str(specs[1]) == "places [2*batch] int64 counting from 5"


def test_making_inputs_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    make_inputs((InputSpec("x", ("batch", 3)),), 4, {})
    assert torch.equal(before, torch.get_rng_state())


def test_muon_trains_matrices_and_says_what_it_does_not_take(write):
    path = write(NET.replace("nn.Linear(4, 2)", "nn.Linear(4, 2, bias=False)"))
    made = program(path, optimizer="Muon")
    made.step()
    assert {tensor.shape for state in made.optimizer.state.values() for tensor in state.values()} == {(2, 4)}
    with pytest.raises(WorkloadError, match="Muon only supports 2D parameters"):
        program(write(NET, "biased.py"), optimizer="muon")


def tensors_of(state):
    return {
        name: [tensor.shape for tensor in (value if isinstance(value, list) else [value]) if hasattr(tensor, "shape")]
        for name, value in state.items()
    }


def test_lbfgs_begins_as_pytorch_s_is_with_a_full_history():
    def after(optimizer_class, num_steps):
        torch.manual_seed(0)
        weights = torch.nn.Parameter(torch.randn(6))
        optimizer = optimizer_class([weights], history_size=3, max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = (torch.arange(1, 7) * (weights - 1) ** 4).sum()
            loss.backward()
            return loss

        for _ in range(num_steps):
            optimizer.step(closure)
        return tensors_of(optimizer.state[weights])

    assert after(OPTIMIZERS["lbfgs"], 1) == after(torch.optim.LBFGS, 3)


def test_lbfgs_evaluates_the_model_itself(write):
    made = program(write(NET), optimizer="lbfgs", batch=2)
    made.step()
    (state,) = made.optimizer.state.values()
    assert len(state["old_dirs"]) == len(state["old_stps"]) == 100
    assert {vector.shape for vector in state["old_dirs"]} == {(10,)}
    with pytest.raises(WorkloadError, match="GradScaler does not support closures"):
        program(write(NET), optimizer="lbfgs", dtype="fp16-amp").step()


def test_a_batch_norm_that_gets_one_value_says_which_batch_to_ask_for(write, monkeypatch):
    monkeypatch.setattr(user_errors, "_typed", ["memlint check FILE", ""])  # other tests type others
    path = write("class Net(nn.BatchNorm1d):\n    def __init__(self): super().__init__(4)\n")
    (workload,) = find_workloads(str(path), path.parent, overrides={"batch": 1}).workloads
    program = build_program(workload, path.parent)
    with simulated_device(workload.device):
        program.setup()
        with pytest.raises(WorkloadError) as caught:
            program.step()
    assert caught.value.hint.endswith("type memlint check FILE --batch 2")


def test_a_model_that_needs_other_processes_says_how_they_are_simulated(write, monkeypatch):
    monkeypatch.setattr(user_errors, "_typed", ["memlint check FILE", ""])
    path = write(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8)
            def forward(self, x):
                torch.distributed.all_reduce(x)
                return self.layer(x)
        """
    )
    (workload,) = find_workloads(f"{path}::Model", path.parent).workloads
    with pytest.raises(WorkloadError, match="Default process group") as caught:
        build_program(workload, device="cpu")
    assert "type memlint check FILE --ranks 2," in caught.value.hint


def test_a_class_that_asks_for_its_group_has_one_where_ranks_are_asked_for(write):
    path = write(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8 * torch.distributed.get_world_size())
            def forward(self, x):
                return self.layer(x)
        """
    )
    assert find_workloads(str(path), path.parent).workloads == ()
    (workload,) = find_workloads(str(path), path.parent, overrides={"world_size": 2}).workloads
    program = build_program(workload, path.parent)
    with simulated_device(workload.device):
        program.setup()
        program.step()
        assert program.model.layer.out_features == 16


HOST = torch.device("cpu")


class Placing(torch.nn.Module):
    def __init__(self, device=HOST, other_device="cpu"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.device, self.other_device, self.note = device, other_device, "cpu"


def test_what_a_model_keeps_as_its_device_is_the_one_that_it_is_on():
    model = placed(Placing(), "meta")
    assert (model.weight.device, model.device) == (torch.device("meta"), torch.device("meta"))
    assert (model.other_device, model.note) == ("meta", "cpu")


def test_a_scalar_beside_outputs_that_come_from_other_parameters_is_no_more_than_a_part_of_the_loss():
    features, head = (torch.ones(2, requires_grad=True) for _ in range(2))
    logits = features * head
    balance = features.sum()
    assert own_loss((logits, balance)) is None
    assert mean_of((logits, balance)).item() == 3.0
    loss = logits.sum()
    assert own_loss((loss, logits)) is loss
    assert own_loss((logits, loss, logits.detach(), 0.5)) is loss
    assert own_loss((balance, torch.zeros(2))) is balance


NUM, WIDTH = 128, 512


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("int8", WIDTH * NUM + 4 * NUM),  # a byte each, and a float32 for each row
        # half a byte, a byte for each 64, a float32 for each 256 of these; two tables and an offset
        ("nf4", WIDTH * NUM // 2 + WIDTH * NUM // 64 + 4 * (WIDTH * NUM // 64 // 256) + 4 * 16 + 4 * 256 * 2 + 4),
    ],
)
def test_weights_in_8_and_4_bits_are_those_of_bitsandbytes(dtype, nbytes, write, tmp_path):
    pytest.importorskip("bitsandbytes")
    net = NET.replace("nn.Linear(4, 2)", f"nn.Linear({WIDTH}, {NUM}, bias=False)")
    (workload,) = find_workloads(
        f"{write(net)}::Net", tmp_path, overrides={"dtype": dtype, "mode": "inference"}
    ).workloads
    analysis = analysed(workload, tmp_path)
    assert abs(analysis.estimate.categories[Category.PARAMETER] - nbytes) <= 2048
    assert any(note.text.startswith(f"{dtype}: linear layers are") for note in analysis.assumptions)


def test_weights_in_4_bits_name_the_package_that_they_need(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.nn", None)
    with pytest.raises(WorkloadError, match="quantized weights need bitsandbytes") as caught:
        program(write(NET), dtype="nf4", mode="inference")
    assert caught.value.hint == "Type: pip install bitsandbytes"


def test_weights_in_4_bits_are_not_trained(write):
    with pytest.raises(UsageError, match="weights in nf4 are not trained"):
        program(write(NET), dtype="4bit")


def test_a_model_that_is_built_in_16_bits_has_that_dtype_unless_another_is_asked_for(write):
    path = write("def build():\n    return nn.Linear(4, 2).bfloat16()\n")
    (workload,) = find_workloads(f"{path}::build", path.parent).workloads
    (typed,) = find_workloads(f"{path}::build", path.parent, overrides={"dtype": "float32"}).workloads
    completed, other = complete(workload)[0], complete(typed)[0]
    assert (completed.dtype, "dtype" in completed.assumed, other.dtype) == ("bfloat16", False, "float32")
    assert "dtype bfloat16: the model is built in it" in [each.text for each in completed.found]


def test_a_model_that_was_built_without_memory_gets_some(write, tmp_path):
    net = NET.replace("nn.Linear(4, 2)", 'nn.Linear(4, 2, device="meta")')
    (workload,) = find_workloads(f"{write(net)}::Net", tmp_path).workloads
    assert analysed(workload, tmp_path).estimate.categories[Category.PARAMETER] == 4 * (4 * 2 + 2)
