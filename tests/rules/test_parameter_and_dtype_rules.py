"""Rules of the families 2xx and 3xx against programs with the fix carried out, and where they keep silent."""

import re
import textwrap

import pytest

from memlint.config import Settings
from memlint.worker.protocol import Request

HEAD = """
import copy

import memlint
import torch
from torch import nn
from torch.nn import functional as F
from memlint import Declaration
"""


@pytest.fixture
def analysed(tmp_path):
    """Analyse a program with one rule: its findings and the requested peak."""
    from tests.in_process import analyse

    def run(source, code, name="model", **settings):
        file = tmp_path / f"{name}.py"
        file.write_text(HEAD + textwrap.dedent(source))
        settings = Settings.model_validate({"select": [code], **settings})
        result = analyse(Request(target=str(file), path=str(file), root=str(tmp_path), settings=settings))
        (workload,) = result.workloads
        assert workload.error is None, workload.error
        return result.findings, workload.estimate.peak.requested.estimate

    return run


TABLE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(1_000_000, 64, sparse={sparse})
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.items(x))


class Both(torch.optim.Optimizer):
    def __init__(self, table, *others):
        super().__init__([table, *others], {{}})
        self.parts = torch.optim.SparseAdam([table]), torch.optim.AdamW(others)

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()


def memlint_workload():
    inputs = {{"x": torch.zeros(64, 32, dtype=torch.int64)}}
    return Declaration(Model(), inputs, optimizer=lambda parameters: {optimizer})
"""


def test_a_sparse_gradient_with_sparse_adam_saves_what_is_said(analysed):
    (finding,), dense = analysed(TABLE.format(sparse=False, optimizer="torch.optim.AdamW(parameters)"), "MEM308")
    _, sparse = analysed(TABLE.format(sparse=True, optimizer="Both(*parameters)"), "MEM308", "sparse")
    assert -finding.peak_change == pytest.approx(dense - sparse, rel=0.01)


AVERAGED = """
averaged = []


def step(model, inputs, optimizer):
    average = torch.optim.swa_utils.AveragedModel(model{device})
    averaged[:] = [average]
    model(**inputs).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)


def memlint_workload():
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    return Declaration(model, {{"input": torch.randn(64, 1024)}}, step=step)
"""


def test_an_average_on_the_host_saves_what_is_said(analysed):
    (finding,), on_device = analysed(AVERAGED.format(device=""), "MEM206")
    silent, on_host = analysed(AVERAGED.format(device=', device="cpu"'), "MEM206", "host")
    assert silent == []
    assert finding.confidence == "exact-lifetime"
    # The average counts its updates in a tensor on its own device.
    assert -finding.peak_change == pytest.approx(on_device - on_host, abs=64)


def test_a_teacher_inside_the_model_is_no_copy(analysed):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Linear(2048, 2048)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            with torch.no_grad():
                self.teacher.weight.lerp_(self.student.weight, 0.01)
                target = self.teacher(x)
            return F.mse_loss(self.student(x), target)


    def memlint_workload():
        return Model(), {"x": torch.randn(64, 2048)}
    """
    assert analysed(source, "MEM206")[0] == []


@pytest.mark.parametrize(("code", "number"), [("MEM309", 1), ("MEM307", 1)])
def test_the_saving_of_another_example_is_that_of_its_twin(analysed, code, number):
    from memlint.lint.registry import load_rules

    (rule,) = [rule for rule in load_rules().rules if rule.code == code]
    (finding,), bad = analysed(rule.bad[number].source, code, "bad")
    _, good = analysed(rule.good[number].source, code, "good")
    assert -finding.peak_change == pytest.approx(bad - good, rel=0.1)


BIAS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x, ids):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        {mask}
        return scores.softmax(-1) @ v


@memlint.workload(mode="inference")
def masked():
    return Model(), {{"x": torch.randn(1, 4096, 64), "ids": torch.zeros(1, 4096, dtype=torch.int64)}}
"""
WIDE = """mask = (ids != 0).float()[:, None, :].expand(-1, x.shape[1], -1)
        scores = q @ k.mT + (1.0 - mask) * -1e4"""
NARROW = """mask = (ids == 0)[:, None, :].expand(-1, x.shape[1], -1).clone()
        scores = (q @ k.mT).masked_fill(mask, -1e4)"""


def test_a_boolean_mask_saves_what_is_said(analysed):
    (finding,), wide = analysed(BIAS.format(mask=WIDE), "MEM305")
    silent, narrow = analysed(BIAS.format(mask=NARROW), "MEM305", "narrow")
    assert silent == []
    assert -finding.peak_change == pytest.approx(wide - narrow, rel=0.1)


def test_a_mask_that_is_counted_is_left_alone(analysed):
    counted = NARROW.replace("(ids == 0)", "(ids == 0).long()").replace("mask, -1e4", "mask.cumsum(-1) > 3, -1e4")
    assert analysed(BIAS.format(mask=counted), "MEM305")[0] == []


def test_a_buffer_that_layers_share_on_the_host_is_copied_for_each_by_moving(analysed):
    source = """
    class Block(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.linear = nn.Linear(64, 64)
            self.register_buffer("mask", mask)

        def forward(self, x):
            return (self.linear(x) @ x.mT).masked_fill(self.mask, 0.0) @ x


    def memlint_workload():
        mask = torch.ones(2048, 2048).triu(1).bool()
        return nn.Sequential(*(Block(mask) for _ in range(4))), {"input": torch.randn(1, 2048, 64)}
    """
    (finding,), _ = analysed(source, "MEM208")
    assert finding.nbytes == 3 * 2048 * 2048


def test_parts_of_a_weight_are_cast_apart_and_are_no_repetition(analysed):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(512, 8, batch_first=True)

        def forward(self, x, memory):
            return self.attention(x, memory, memory)[0]


    def memlint_workload():
        return Model(), {"x": torch.randn(2, 128, 512), "memory": torch.randn(2, 128, 512)}
    """
    assert analysed(source, "MEM302", dtype="bf16-amp")[0] == []


def test_a_linear_over_the_pixels_of_an_image_is_left_alone(analysed):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3 * 64 * 64, 256)

        def forward(self, x):
            return self.linear(x.flatten(1))


    def memlint_workload():
        return Model(), {"x": torch.randn(16, 3, 64, 64)}
    """
    assert analysed(source, "MEM211")[0] == []


GRADIENTS = """
def step(model, inputs, optimizer):
    {first}
    loss = model(**inputs).mean()
    {second}
    loss.backward()
    optimizer.step()


def memlint_workload():
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    return Declaration(model, {{"input": torch.randn(64, 1024)}}, step=step)
"""


def test_gradients_that_a_log_reads_in_the_next_step_are_not_late(analysed):
    late = GRADIENTS.format(first="pass", second="optimizer.zero_grad()")
    read = GRADIENTS.format(
        first="norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]",
        second="optimizer.zero_grad()",
    )
    assert len(analysed(late, "MEM212")[0]) == 1
    assert analysed(read, "MEM212", "read")[0] == []


def test_an_embedding_whose_gradient_is_clipped_needs_it_dense(analysed):
    clipped = TABLE.format(sparse=False, optimizer="torch.optim.SGD(parameters)").replace(
        "inputs, optimizer=", "inputs, step=step, optimizer="
    )
    step = """
def step(model, inputs, optimizer):
    model(**inputs).mean().backward()
    {clip}
    optimizer.step()
    optimizer.zero_grad()
"""
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    assert len(analysed(clipped + step.format(clip="pass"), "MEM308")[0]) == 1
    assert analysed(clipped + step.format(clip=clip), "MEM308", "clipped")[0] == []


def test_a_copy_to_nchw_in_front_of_group_norm_is_found_where_forward_makes_it(analysed):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 64, 3, padding=1)
            self.norm = nn.GroupNorm(8, 64)

        def forward(self, x):
            return self.norm(self.conv(x).contiguous())


    def memlint_workload():
        model, x = Model(), torch.randn(4, 8, 64, 64)
        return {result}
    """
    last = "model.to(memory_format=torch.channels_last), {'x': x.to(memory_format=torch.channels_last)}"
    (finding,), _ = analysed(source.replace("{result}", last), "MEM311")
    assert finding.nbytes == 4 * 64 * 64 * 64 * 4
    assert analysed(source.replace("{result}", "model, {'x': x}"), "MEM311", "nchw")[0] == []


TWO_TABLES = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32_000, 256)
        self.head = nn.Linear(256, 32_000, bias=False)

    def forward(self, x):
        return self.head(self.words(x)[:, -1])


def memlint_workload():
    inputs = {{"x": torch.zeros(8, 64, dtype=torch.int64)}}
    return Declaration(Model(), inputs, optimizer=lambda parameters: torch.optim.{optimizer})
"""


@pytest.mark.parametrize(
    ("optimizer", "copies", "counted"),
    [
        ("SGD(parameters, lr=0.1, foreach=False)", 2, "its gradient."),
        ("AdamW(parameters, fused=True)", 4, "its gradient and the optimizer's state."),
        ("AdamW(parameters, foreach=True)", 5, "its gradient and the optimizer's state and temporaries."),
    ],
)
def test_what_an_untied_weight_takes_is_named_as_it_is_counted(analysed, optimizer, copies, counted):
    (finding,), _ = analysed(TWO_TABLES.format(optimizer=optimizer), "MEM207")
    assert finding.nbytes == pytest.approx(copies * 32_000 * 256 * 4, abs=4)  # fused counts its steps on the device
    assert f"takes {finding.nbytes / 2**20:.1f} MiB at one time, with {counted}" in finding.message


def test_a_smaller_batch_is_advised_of_one_that_nobody_named_and_that_is_said(analysed):
    source = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(nn.Conv2d(3 if n == 0 else 64, 64, 3, padding=1) for n in range(4)))

        def forward(self, x):
            return self.layers(x)
    """
    budget = {"budget": {"Net": {"max": "1GiB"}}}
    (finding,), _ = analysed(source, "MEM409", **budget)
    assert finding.message.startswith("A batch of 8 takes")
    assert finding.message.endswith("This rests on batch 8, which memlint took itself.")
    (finding,), _ = analysed(source, "MEM409", "typed", batch=8, **budget)
    assert "rests on" not in finding.message


def test_of_several_tables_that_is_named_which_is_looked_up_nearest_to_the_head(analysed):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(4096, 64), nn.Embedding(4096, 64)
            self.head = nn.Linear(64, 4096, bias=False)

        def forward(self, x):
            return self.head(self.source(x) + self.target(x))


    def memlint_workload():
        return Model(), {"x": torch.zeros(8, 64, dtype=torch.int64)}
    """
    (finding,), _ = analysed(source, "MEM207")
    assert finding.message.startswith("`target.weight` and `head.weight` are two parameters")


@pytest.mark.parametrize("layer", ["BatchNorm3d", "InstanceNorm3d"])
def test_the_layer_that_takes_the_bias_away_is_named(analysed, layer):
    source = f"""
    def memlint_workload():
        return nn.Sequential(nn.Conv3d(1, 64, 3), nn.{layer}(64), nn.ReLU()), torch.randn(2, 1, 16, 16, 16)
    """
    (finding,), _ = analysed(source, "MEM209")
    assert f"each channel loses its mean in {layer};" in finding.message


def test_complex_tensors_are_counted_among_those_that_autocast_leaves_as_they_are(analysed):
    source = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))

        def forward(self, x):
            spectrum = torch.fft.fft(x.square())
            return (self.layers(x) * (spectrum * spectrum).abs()).mean()

    def memlint_workload():
        return Declaration(Net(), {"x": torch.randn(8192, 1024, requires_grad=True)})
    """
    (finding,), _ = analysed(source, "MEM301")
    complex_mib = 8 * 8192 * 1024 / 2**20
    counted = float(re.search(r"([\d.]+) MiB of them complex", finding.message)[1])
    assert counted % complex_mib == 0
    assert counted >= complex_mib
    assert finding.nbytes > counted * 2**20
