"""Findings about scripts that are run, held against the same scripts with the fix made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.script.running import run_script, write

if TYPE_CHECKING:
    from memlint.report.model import Finding, Report

pytestmark = pytest.mark.usefixtures("copied_pythons")

HEAD = """\
import copy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
"""


def run(folder: Path, text: str, *codes: str, arguments: tuple[str, ...] = (), **fields: Any) -> list[Finding]:
    """Findings of these rules."""
    return _run(folder, text, codes, arguments, fields).findings


def peak(folder: Path, text: str, **fields: Any) -> int:
    """Requested bytes."""
    return peak_of(_run(folder, text, ("MEM010",), (), fields))


def peak_of(report: Report) -> int:
    """Requested bytes of the only Workload."""
    (workload,) = report.workloads
    assert workload.estimate is not None
    return workload.estimate.peak.requested.estimate


def _run(folder: Path, text: str, codes: Any, arguments: Any, fields: Any) -> Report:
    report = run_script(write(folder, HEAD + text), *arguments, settings={"select": codes}, **fields).report
    assert [workload.error for workload in report.workloads] == [None]
    return report


REBOUND = """
class Trainer:
    def __init__(self):
        self.net = nn.Linear(1000, 1000).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.seen = []

    def step(self, x):
        out = self.net(x)
        self.optimizer.zero_grad()
        loss = out.square().mean()
        loss.backward()
        KEEP
        self.optimizer.step()
        return loss, out

    def fit(self):
        for _ in range(6):
            loss, out = self.step(torch.randn(2048, 1000, device="cuda"))
            _, predicted = out.max(1)
            previous = predicted

Trainer().fit()
"""


def test_names_that_each_step_binds_anew_do_not_grow(tmp_path: Path) -> None:
    assert run(tmp_path, REBOUND.replace("KEEP", "pass"), "MEM40") == []


def test_what_a_script_keeps_of_every_step_grows_by_it(tmp_path: Path) -> None:
    findings = run(tmp_path, REBOUND.replace("KEEP", "self.seen.append(out.detach())"), "MEM402")
    assert [(each.severity, each.nbytes) for each in findings if each.nbytes] == [("error", 2048 * 1000 * 4)]


AVERAGE = """
net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
average = copy.deepcopy(net).requires_grad_(False)
with torch.no_grad():
    average(torch.randn(2, 1024, device="cuda"))
optimizer = torch.optim.SGD([*net.parameters(), *OTHERS], lr=0.1)
for step in range(6):
    net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % EVERY == EVERY - 1:
        torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), 0.01)
"""


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (2, 1), (2, 5)])
def test_averages_that_the_run_may_end_before_are_not_unused(tmp_path: Path, steps: int, every: int) -> None:
    text = AVERAGE.replace("EVERY", str(every)).replace("OTHERS", "[]")
    assert run(tmp_path, text, "MEM202", steps=steps) == []


def test_unused_parameters_without_a_name_are_told_by_their_shape_and_line(tmp_path: Path) -> None:
    text = AVERAGE.replace("EVERY", "1").replace("OTHERS", "nn.Linear(2048, 1024).cuda().parameters()")
    (finding,) = run(tmp_path, text, "MEM202")
    assert finding.message.startswith("No step reads float32 [1024, 2048], made at train.py:")
    assert finding.peak_change == -4 * (2048 * 1024 + 1024)


DDP = """
import sys
net = nn.Sequential(nn.Linear(512, 16384), nn.Sigmoid()).cuda()
if "off" not in sys.argv:
    torch.distributed.init_process_group("nccl")
    net = DistributedDataParallel(net, OPTIONS)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.randn(2048, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OUTPUT = 4 * 2048 * 16384
TABLE = 4 * 2
"""Tables of the parameters that took part, which the reducer keeps for the search alone."""


def test_outputs_that_ddp_clones_are_counted(tmp_path: Path) -> None:
    """`_DDPSink`: https://github.com/pytorch/pytorch/issues/74115."""
    text = DDP.replace("OPTIONS", "find_unused_parameters=True")
    report = _run(tmp_path, text, ("MEM606",), (), {"ranks": 2})
    (finding,) = report.findings
    assert (finding.line, finding.severity, finding.peak_change) == (11, "warning", -(OUTPUT + TABLE))
    without = peak(tmp_path, DDP.replace("OPTIONS", ""), ranks=2)
    assert peak_of(report) - without == OUTPUT + TABLE


def test_a_flag_that_unused_parameters_need_is_not_said_to_save(tmp_path: Path) -> None:
    spare = "net = nn.Sequential(nn.Linear(512, 16384), nn.Sigmoid()).cuda()\nnet.spare = nn.Linear(8, 8).cuda()"
    own = "inner = net\ninner.forward = lambda x: inner[1](inner[0](x))"
    text = DDP.replace(DDP.splitlines()[2], f"{spare}\n{own}").replace("OPTIONS", "find_unused_parameters=True")
    (finding,) = run(tmp_path, text, "MEM606", ranks=2)
    assert (finding.severity, finding.peak_change) == ("note", None)


BUCKETS = DDP.replace("nn.Linear(512, 16384), nn.Sigmoid()", "*(nn.Linear(512, 512) for _ in range(48))")


def test_buckets_of_a_script_are_computed_where_it_wraps_its_model(tmp_path: Path) -> None:
    text = BUCKETS.replace("OPTIONS", "device_ids=[0]").replace("2048, 512", "8, 512")
    report = _run(tmp_path, text, ("MEM605", "MEM610"), (), {"ranks": 2})
    (finding,) = report.findings
    assert (finding.code, finding.line) == ("MEM610", 11)
    views = text.replace("device_ids=[0]", "device_ids=[0], gradient_as_bucket_view=True")
    assert finding.peak_change == peak(tmp_path, views, ranks=2) - peak_of(report) < 0


def test_a_wrapper_in_another_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "wrapping.py").write_text(
        "from torch.nn.parallel import DistributedDataParallel\n\n\n"
        "def wrap(model):\n    return DistributedDataParallel(model)\n"
    )
    blocks = "*(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)) for _ in range(24))"
    text = BUCKETS.replace("*(nn.Linear(512, 512) for _ in range(48))", blocks).replace(
        "DistributedDataParallel(net, OPTIONS)", "__import__('wrapping').wrap(net)"
    )
    findings = run(tmp_path, text.replace("2048, 512", "8, 512"), "MEM605", "MEM610", ranks=2)
    assert [(each.code, Path(each.path).name, each.line) for each in findings] == [("MEM610", "wrapping.py", 5)]


def test_a_wrapper_that_the_run_does_not_make_is_a_note(tmp_path: Path) -> None:
    text = BUCKETS.replace("OPTIONS", "device_ids=[0]")
    (finding,) = run(tmp_path, text, "MEM605", arguments=("off",))
    assert (finding.code, finding.line, finding.severity) == ("MEM605", 11, "note")


EVALUATION = """
net = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU()))).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.randn(3, 8, 256).split(1):
    net(x[0].cuda()).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


GUARD
def evaluate(model, loader):
    model.eval()
    for x in loader:
        model(x.cuda()).mean().item()


evaluate(net, [torch.randn(8192, 256) for _ in range(3)])
"""


def test_an_evaluation_loop_of_a_script_has_its_exact_saving(tmp_path: Path) -> None:
    text = EVALUATION.replace("GUARD", "")
    (finding,) = run(tmp_path, text, "MEM404", whole=True)
    assert finding.confidence == "exact-retrace"
    guarded = EVALUATION.replace("GUARD", "@torch.no_grad()")
    assert finding.peak_change == peak(tmp_path, guarded, whole=True) - peak(tmp_path, text, whole=True) < 0


CHECKPOINTED = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))
        self.head = nn.Linear(256, 10)

    def body(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=REENTRANT))


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = net(torch.randn(4096, 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("steps", [2, 3])
def test_what_one_checkpoint_makes_again_is_counted_in_the_step_of_the_peak(tmp_path: Path, steps: int) -> None:
    """https://github.com/pytorch/pytorch/issues/147449."""
    text = CHECKPOINTED.replace("REENTRANT", "False")
    (finding,) = run(tmp_path, text, "MEM102", steps=steps)
    assert finding.nbytes >= 8 * 4 * 4096 * 1024
    assert "0 B" not in finding.message


def test_parameters_that_a_reentrant_checkpoint_cuts_off_are_named(tmp_path: Path) -> None:
    (finding,) = run(tmp_path, CHECKPOINTED.replace("REENTRANT", "True"), "MEM213")
    assert finding.message.startswith("32 of 34 parameters of the optimizer, ")
    assert run(tmp_path, CHECKPOINTED.replace("REENTRANT", "False"), "MEM213") == []


def test_a_script_of_operations_alone_is_a_result(tmp_path: Path) -> None:
    """https://github.com/pytorch/pytorch/issues/31655: "Tried to allocate 90.73 GiB"."""
    text = """
x = torch.rand(1, 3, 1000, 1000, device="cuda")
t = torch.rand(1, 3, 100, 100, device="cuda")
y = x.unfold(2, 100, 1).unfold(3, 100, 1)
a = torch.einsum("xcijkl,xckl->xcij", y, t)
"""
    report = _run(tmp_path, text, ("MEM010",), (), {})
    (workload,) = report.workloads
    assert workload.estimate.peak.requested.estimate >= 90.73 * 2**30
    assert any("no model was called on the GPU" in each.text for each in workload.assumptions)
    assert report.findings[0].fix == "Follow the other findings, or choose a larger GPU with `--gpu`."


def test_no_smaller_batch_is_advised_where_the_model_alone_is_too_large(tmp_path: Path) -> None:
    text = """
net = nn.Sequential(*(nn.Linear(32768, 32768) for _ in range(8))).cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(2):
    net(torch.randn(BATCH, 32768, device="cuda")).mean().backward()
    optimizer.step()
"""
    (finding,) = run(tmp_path, text.replace("BATCH", "4"), "MEM010")
    assert finding.fix.startswith("Parameters, their gradients and the optimizer's state alone take ")
    assert "batch size" not in finding.fix


@pytest.mark.parametrize(
    ("of_model", "text"),
    [
        ("use_checkpoint=False", "`use_checkpoint=True`"),
        ("gradient_checkpointing=False", "`gradient_checkpointing=True`"),
        ("enable=None", "`model.set_grad_checkpointing()`"),
    ],
)
def test_a_models_own_switch_for_checkpoints_is_named(tmp_path: Path, of_model: str, text: str) -> None:
    name = of_model.partition("=")[0]
    own = "    def set_grad_checkpointing(self, enable=True):\n        ...\n\n" if name == "enable" else ""
    model = CHECKPOINTED.replace("checkpoint(self.body, x, use_reentrant=REENTRANT)", "self.body(x)")
    model = model.replace(
        "    def __init__(self):\n        super().__init__()\n        self.blocks",
        f"{own}    def __init__(self, {of_model}):\n        super().__init__()\n        self.{name} = {name}\n        self.blocks",
    )
    (finding,) = run(tmp_path, model, "MEM101")
    assert text in finding.fix


DECODING = """
import torch
from torch import nn
from diffusers.models.autoencoders.kl import Autoencoder

vae = Autoencoder().cuda()
with torch.no_grad():
    for _ in range(2):
        images = vae.decode(torch.randn(8, 4, 256, 256, device="cuda"))
"""
AUTOENCODER = """
import torch
from torch import nn

class Autoencoder(nn.Module):
    use_slicing = False

    def __init__(self):
        super().__init__()
        self.decoder = nn.Sequential(nn.Linear(256, 256), nn.Conv2d(4, 64, 1), nn.Conv2d(64, 3, 1))

    def decode(self, z):
        return torch.cat([self.decoder(each) for each in z.split(1)]) if self.use_slicing else self.decoder(z)
"""


def test_images_that_a_script_decodes_at_once_are_named_and_their_saving_is_near_that_of_slicing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "diffusers" / "models" / "autoencoders"
    folder.mkdir(parents=True)
    (folder / "kl.py").write_text(AUTOENCODER)
    (found,) = run(tmp_path, DECODING, "MEM123")
    assert found.confidence == "modelled"
    sliced = DECODING.replace("with torch", "vae.use_slicing = True\nwith torch")
    assert run(tmp_path, sliced, "MEM123") == []
    assert -found.peak_change == pytest.approx(peak(tmp_path, DECODING) - peak(tmp_path, sliced), rel=0.2)


PIPELINE = """
def wide(): return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8)))

encoder, denoiser, control, decoder = wide(), wide(), wide(), wide()
for model in (encoder, denoiser, control, decoder): model.cuda()
with torch.no_grad():
    for _ in range(2):
        hidden = encoder(torch.randn(8, 4096, device="cuda"))
        for _ in range(3):
            hidden = denoiser(hidden + control(hidden))
        image = decoder(hidden)
"""
OFFLOADED = """
def wide(): return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8)))

encoder, denoiser, control, decoder = wide(), wide(), wide(), wide()
with torch.no_grad():
    for _ in range(2):
        hidden = encoder.cuda()(torch.randn(8, 4096, device="cuda"))
        encoder.cpu(), denoiser.cuda(), control.cuda()
        for _ in range(3):
            hidden = denoiser(hidden + control(hidden))
        denoiser.cpu(), control.cpu()
        image = decoder.cuda()(hidden)
        decoder.cpu()
"""


def test_models_that_wait_on_the_gpu_are_named_with_what_it_saves_to_keep_them_on_the_host(tmp_path: Path) -> None:
    (found,) = run(tmp_path, PIPELINE, "MEM214")
    assert "Weights of control, denoiser, decoder wait on the GPU while encoder runs: 1.50 GiB" in found.message
    assert run(tmp_path, OFFLOADED, "MEM214") == []
    assert -found.peak_change == pytest.approx(peak(tmp_path, PIPELINE) - peak(tmp_path, OFFLOADED), rel=0.01)
