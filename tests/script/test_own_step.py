"""Scripts that end before their first step: memlint takes it with what they have built, and says what happened."""

from __future__ import annotations

import html
import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memlint.commands.exit_status import exit_status
from memlint.report.formats.github import render_github
from memlint.report.formats.junit import render_junit
from memlint.report.formats.markdown import render_markdown
from memlint.report.formats.sarif import render_sarif
from memlint.report.page.render import render_page
from memlint.report.terminal import render_text
from memlint.report.text_style import TextStyle
from tests.script import running
from tests.time_limits import SAYS, is_said, over_when

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked
    from memlint.report.model import Workload


def run_text(folder: Path, text: str, *arguments: str, **fields: Any) -> Checked:
    """Run a script without making up its data."""
    return running.run_text(folder, text, *arguments, **{"fake_data": False, **fields})


BUILT = """
    import argparse, os, sys, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(nn.Module):
        def __init__(self, width, classes=10):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            return self.head(self.layers(x))

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=24)
    args = parser.parse_args([])
    criterion = nn.CrossEntropyLoss()
"""
MODEL = """
    model = Net(512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""
TRAINS = """
    for _ in range(3):
        x, y = torch.randn(24, 256, device="cuda"), torch.zeros(24, dtype=torch.long, device="cuda")
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
FAILS = """
    data = torch.load("data/train.pt")
"""
UNSET = """
    import collections.abc
    class Unset(collections.abc.Mapping):
        def __len__(self): return 1
        def __iter__(self): raise ValueError("as settings do that are found out late")
        __getitem__ = __iter__
"""


def workload_of(checked: Checked) -> Workload:
    (workload,) = checked.report.workloads
    return workload


def happened(workload: Workload) -> str | None:
    assert workload.script is not None
    return workload.script.happened


def requested(workload: Workload) -> int:
    assert workload.estimate is not None
    return workload.estimate.peak.requested.estimate


def test_a_script_without_its_data_gets_the_bytes_of_the_step_that_it_would_take(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = workload_of(run_text(tmp_path / "whole", BUILT + MODEL + TRAINS))
    assert happened(whole) == "trained"
    needs_data = TRAINS.replace("for _ in range(3):", "for rows in data:").replace(
        "torch.randn(", "rows or torch.randn("
    )
    checked = run_text(tmp_path, BUILT + MODEL + FAILS + needs_data)
    workload = workload_of(checked)
    assert (workload.error, exit_status(checked.report)) == (None, 0)
    assert (workload.mode, workload.batch, workload.dtype, workload.optimizer) == ("train", 24, "float32", "SGD")
    script = workload.script
    assert script is not None
    assert (script.happened, script.steps, script.own) == ("built", 0, ["inputs"])
    assert script.stop is not None
    assert "FileNotFoundError" in script.stop.message
    assert script.stop.traceback[-1].startswith(str(tmp_path / "train.py"))
    found = {each.text: each.line for each in workload.assumptions if each.found}
    assert "batch 24, from args.batch_size = 24" in found
    assert requested(workload) == requested(whole)


@pytest.mark.parametrize("indent", [0, 4], ids=["module", "function"])
def test_what_the_scripts_own_forward_has_kept_is_not_counted_beside_the_step(tmp_path: Path, indent: int) -> None:
    loop = textwrap.dedent(TRAINS)
    text = textwrap.dedent(BUILT + MODEL)
    (tmp_path / "whole").mkdir()
    whole = requested(workload_of(run_text(tmp_path / "whole", text + loop)))
    fails = loop.replace("criterion(output, y)", "torch.sum([criterion(output, y)])")
    fails = fails.replace("output = model(x)", "output = model(x); outputs = [output.view(24, -1)]")
    fails = f"config = Unset()\n{fails.strip()}"
    text += textwrap.dedent(UNSET)
    text += "def main():\n" * bool(indent) + textwrap.indent(fails, " " * indent) + "\nmain()" * bool(indent)
    workload = workload_of(run_text(tmp_path, text))
    assert (happened(workload), workload.error) == ("built", None)
    assert requested(workload) == whole + 24 * 256 * 4 + 24 * 8, "its batch may be all of the data"


def test_operations_counted_on_the_meta_device_are_no_obstacle(tmp_path: Path) -> None:
    counts = """\
    counted = torch.nn.Linear(7, 3, device="meta")
    counted(torch.randn(2, 7, device="meta")).sum().backward()
    counted(torch.randn(2, 7, device="meta")).sum().backward()
    (of_input,) = torch.autograd.grad(counted(x := torch.ones(2, 7, device="meta", requires_grad=True)).sum(), x)
    print(*(tuple(each.grad.shape) for each in counted.parameters()), tuple(of_input.shape), flush=True)
"""
    checked = run_text(tmp_path, BUILT + MODEL + counts + FAILS)
    workload = workload_of(checked)
    assert (happened(workload), workload.error) == ("built", None)
    assert running.stdout_of(checked).strip() == "(3, 7) (3,) (2, 7)"


def test_the_loader_says_the_batch_with_its_line(tmp_path: Path) -> None:
    text = BUILT + MODEL + "    loader = DataLoader(TensorDataset(torch.zeros(64, 256)), batch_size=6, shuffle=True)"
    workload = workload_of(run_text(tmp_path, text + FAILS))
    assert workload.batch == 6
    (line,) = (each.line for each in workload.assumptions if each.text == "batch 6, from DataLoader(batch_size=6)")
    assert line is not None
    assert "DataLoader(TensorDataset" in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("", "the script ran to its end"),
        ("sys.exit(3)", "sys.exit(3)"),
        ("os._exit(1)", "os._exit(1)"),
        ("raise KeyError('WANDB_API_KEY')", "KeyError: 'WANDB_API_KEY'"),
        ("model(torch.zeros(4, 7, device='cuda'))", "RuntimeError"),
        (f"print({SAYS!r}, flush=True); time.sleep(1000)", "time limit"),
    ],
)
def test_a_script_that_built_its_model_gets_a_step_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, reason: str
) -> None:
    over_when(is_said, monkeypatch)
    workload = workload_of(run_text(tmp_path, BUILT + MODEL + f"    {ending}"))
    assert (happened(workload), workload.error, workload.optimizer) == ("built", None, "SGD")
    assert workload.script is not None
    assert workload.script.stop is not None
    assert reason in workload.script.stop.message
    assert requested(workload) > 0


def test_autocast_scaler_accumulation_and_a_missing_optimizer(tmp_path: Path) -> None:
    text = """
    model = Net(512)
    gradient_accumulation_steps = 4
    autocast = torch.autocast("cuda", dtype=torch.bfloat16)
    def train():
        raise OSError
    train()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert (workload.dtype, workload.optimizer) == ("bf16-amp", "AdamW")
    assert workload.script is not None
    assert workload.script.own == ["inputs", "optimizer AdamW"]
    texts = [each.text for each in workload.assumptions]
    assert "accumulation of 4 batches, from gradient_accumulation_steps = 4" in texts
    assert "dtype bf16-amp, from autocast" in texts


def test_a_script_that_only_samples_gets_a_forward(tmp_path: Path) -> None:
    text = """
    model = Net(512).cuda().eval()
    weights = torch.load("weights.pt")
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert (happened(workload), workload.mode, workload.optimizer) == ("built", "inference", None)
    assert workload.verdict is not None
    assert workload.estimate is not None
    assert workload.estimate.categories.get("gradient", 0) == 0


def test_the_text_of_the_loop_decides_what_was_not_reached(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(
        textwrap.dedent("""
            import torch
            import torch.nn.functional as F

            def fit(model, loader):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
                for x, y in loader:
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
            """)
    )
    text = """
    from trainer import fit
    model = Net(512)
    os._exit(1)
    fit(model.cuda(), DataLoader(TensorDataset(torch.zeros(64, 256), torch.zeros(64)), batch_size=6))
    """
    workload = workload_of(run_text(tmp_path, BUILT.replace("    criterion = nn.CrossEntropyLoss()\n", "") + text))
    assert (workload.dtype, workload.optimizer, workload.batch) == ("bf16-amp", "SGD", 24)
    assert workload.script is not None
    assert workload.script.own == ["inputs", "optimizer"]
    places = {each.text.partition(":")[0]: Path(each.path or "").name for each in workload.assumptions if each.found}
    assert places["optimizer sgd-momentum"] == places["loss CrossEntropyLoss"] == "trainer.py"
    assert "the loss is the mean of the model's outputs" not in {each.text for each in workload.assumptions}


@pytest.mark.parametrize(("used", "dtype"), [("", "float32"), ("with torch.autocast('cuda'): model(x)", "fp16-amp")])
def test_a_setting_of_mixed_precision_counts_where_the_program_may_use_it(
    tmp_path: Path, used: str, dtype: str
) -> None:
    text = f"""
    class TrainingConfig:
        mixed_precision = "fp16"

    config = TrainingConfig()
    open("data.txt")
    {used}
    """
    assert workload_of(run_text(tmp_path, BUILT + MODEL + text)).dtype == dtype


def test_several_optimizers_of_one_model_step_together(tmp_path: Path) -> None:
    text = """
    model = Net(512).cuda()
    first = torch.optim.Adam(model.layers.parameters())
    second = torch.optim.SGD(model.head.parameters(), momentum=0.9)
    """
    estimate = workload_of(run_text(tmp_path, BUILT + text + FAILS)).estimate
    assert estimate is not None
    layers, head = 256 * 512 + 512 + 512 * 512 + 512, 512 * 10 + 10
    assert estimate.categories["optimizer_state"] == pytest.approx(4 * (2 * layers + head), abs=64)


def test_a_step_that_cannot_be_taken_is_an_error_that_says_what_was_built(tmp_path: Path) -> None:
    text = """
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
        def forward(self, x):
            raise NotImplementedError("no forward")
    model = Odd().cuda()
    """
    checked = run_text(tmp_path, BUILT + text + FAILS)
    workload = workload_of(checked)
    assert workload.error is not None
    assert "FileNotFoundError" in workload.error.message
    assert "it had built Odd (72 parameters)" in workload.error.message
    assert (workload.estimate, workload.verdict, exit_status(checked.report)) == (None, None, 2)


def test_a_model_that_its_constructor_did_not_finish_gets_no_step(tmp_path: Path) -> None:
    text = """
    class Tokenizer(Net):
        def __init__(self):
            super().__init__(64)
            self.load_state_dict(open("tokenizer.txt"))
    tokenizer = Tokenizer()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert workload.error is not None
    assert (happened(workload), workload.estimate) == ("built", None)


def test_a_part_of_a_model_whose_constructor_did_not_finish_gets_no_step(tmp_path: Path) -> None:
    text = """
    parts = []
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            parts.append(Net(512).cuda())
            self.part = nn.Sequential(Net(64), open("weights.of.nobody"))
    model = Whole()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert workload.error is not None
    assert (happened(workload), workload.estimate) == ("built", None)


def test_a_model_out_of_which_the_scripts_own_has_taken_layers_is_not_the_model(tmp_path: Path) -> None:
    text = """
    pretrained = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2048))
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = pretrained[0], nn.Linear(1024, 10)
        def forward(self, x):
            raise ValueError("no inputs are right")
    model = Whole()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text + FAILS))
    assert workload.error is not None
    assert "it had built Whole (273,418 parameters)" in workload.error.message


def test_a_model_that_a_module_of_lightning_has_when_its_data_is_not_there_gets_a_step(tmp_path: Path) -> None:
    text = """
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Net(512)
            self.data = open("nowhere.of.nobody")

        def training_step(self, batch, index):
            return self.model(batch).mean()

    Task()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert workload.error is None
    assert workload.batch == 24
    assert workload.estimate is not None


@pytest.mark.parametrize(("slow", "reason"), [("forward", "FileNotFoundError"), ("constructor", "time limit")])
def test_the_time_limit_ends_a_step_that_is_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, reason: str
) -> None:
    text = f"""
    class Slow(Net):
        def __init__(self):
            super().__init__(64)
            {slow == "constructor"} and (print({SAYS!r}, flush=True), time.sleep(1000))
        def forward(self, x):
            time.sleep(1000)
    model = Slow().cuda()
    """
    over_when(is_said, monkeypatch)
    limit = {"timeout": 6.0} if slow == "forward" else {}  # of steps of its own the script's process keeps the time
    checked = run_text(tmp_path, BUILT + text + FAILS, settings=limit)
    workload = workload_of(checked)
    assert workload.error is not None
    assert reason in workload.error.message
    assert ("the time limit does not suffice for steps of memlint's own" in workload.error.message) is (
        slow == "forward"
    )
    assert (workload.estimate, workload.verdict, exit_status(checked.report)) == (None, None, 2)


def test_a_frozen_part_of_what_would_be_trained_gets_no_step(tmp_path: Path) -> None:
    text = """
    features = Net(64).cuda().eval().requires_grad_(False)
    width = int(open("features.txt").read())
    model = Net(width).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    assert workload.error is not None
    assert workload.estimate is None


def test_a_frozen_part_of_what_another_file_trains_gets_no_step(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn

    def train():
        features = nn.Linear(64, 64).cuda().eval().requires_grad_(False)
        width = int(open("features.txt").read())
        model = nn.Linear(width, 64).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
    """
    (tmp_path / "loops.py").write_text(textwrap.dedent(text))
    workload = workload_of(run_text(tmp_path, "import loops\nloops.train()"))
    assert workload.error is not None
    assert workload.estimate is None


def test_each_rank_gets_its_share_of_the_global_batch(tmp_path: Path) -> None:
    text = BUILT.replace("--batch_size", "--global_batch_size") + MODEL + FAILS
    assert workload_of(run_text(tmp_path, text, ranks=8)).batch == 3


def test_a_script_that_has_built_nothing_gets_no_verdict(tmp_path: Path) -> None:
    text = """
    tokens = torch.arange(10, device="cuda")
    raise OSError("no data")
    """
    checked = run_text(tmp_path, BUILT + text)
    workload = workload_of(checked)
    assert (happened(workload), workload.verdict, exit_status(checked.report)) == ("nothing", None, 2)
    assert workload.error is not None
    assert "fits" not in render_text(checked.report, TextStyle())


def test_an_evaluation_is_called_one(tmp_path: Path) -> None:
    text = """
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(16, 256, device="cuda"))
    """
    checked = run_text(tmp_path, BUILT + MODEL + text)
    workload = workload_of(checked)
    assert (happened(workload), workload.error, exit_status(checked.report)) == ("evaluated", None, 0)
    text = render_text(checked.report, TextStyle())
    assert re.search(r"needs .* fits\n", text)
    assert "inference without training" in text


@pytest.mark.parametrize(("calls", "expected"), [(2, "generated"), (1000, "built")])
def test_a_generation_has_a_verdict_once_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, expected: str
) -> None:
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "utils.py").write_text("class GenerationMixin:\n    def generate(self, n):\n        self.decode(n)\n")
    text = f"""
    from transformers.generation.utils import GenerationMixin

    class Decoder(Net, GenerationMixin):
        @torch.no_grad()
        def decode(self, n):
            for number in range(n):
                self(torch.zeros(4, 256, device="cuda"))
                if number > 1:
                    print({SAYS!r}, flush=True)
                    time.sleep(0.2)
    Decoder(64).cuda().eval().generate({calls})
    """
    over_when(is_said, monkeypatch)
    checked = run_text(tmp_path, BUILT + text)
    workload = workload_of(checked)
    assert happened(workload) == expected
    if expected == "generated":
        assert (workload.error, exit_status(checked.report)) == (None, 0)
        assert workload.verdict is not None
        return
    assert workload.error is not None
    assert "time limit, in its first generation" in workload.error.message
    assert (workload.estimate, workload.verdict) == (None, None)


def test_operations_without_a_module_are_a_result(tmp_path: Path) -> None:
    text = """
    a = torch.randn(1024, 1024, device="cuda")
    print((a @ a).sum())
    """
    checked = run_text(tmp_path, BUILT + text)
    workload = workload_of(checked)
    assert (happened(workload), workload.error, exit_status(checked.report)) == ("computed", None, 0)
    assert workload.verdict is not None


def test_a_trainer_on_the_cpu_says_so(tmp_path: Path) -> None:
    text = MODEL.replace(".cuda()", "") + TRAINS.replace('device="cuda"', 'device="cpu"')
    checked = run_text(tmp_path, BUILT + text)
    workload = workload_of(checked)
    assert workload.error is not None
    assert "2 steps were taken, on the CPU: no model was called on the GPU" in workload.error.message
    assert (workload.estimate, workload.verdict, exit_status(checked.report)) == (None, None, 2)


def test_a_step_of_memlints_own_says_what_it_lacks(tmp_path: Path) -> None:
    text = """
    import encoder_of_test
    encoder_of_test.Encoder(width=3)(torch.zeros(3))
    """
    report = run_text(tmp_path, BUILT + MODEL + text).report
    (workload,) = report.workloads
    assert workload.script is not None
    assert workload.script.lacks == "encoder_of_test"
    assert "would fit, by a step of memlint's own without encoder_of_test\n" in render_text(report, TextStyle())
    markdown = html.unescape(render_markdown(report)).replace("\\", "")
    assert "the step is memlint's own without encoder_of_test, and so are its" in markdown


def test_every_format_says_that_the_step_is_memlints(tmp_path: Path) -> None:
    report = run_text(tmp_path, BUILT + MODEL + FAILS).report
    text = render_text(report, TextStyle())
    assert re.search(r"train\.py needs .*: would fit, by a step of memlint's own\n", text)
    assert re.search(r"No such file or directory: 'data/train.pt' at \S*train.py:\d+, before its first step", text)
    said = "before its first step: the step is memlint's own, and so are its inputs"
    assert said in text
    assert "would fit" in render_markdown(report)
    page = render_page(report)
    assert "would fit NVIDIA A100" in page
    for rendered in (text, page, render_markdown(report), render_github(report), render_junit(report)):
        assert said in html.unescape(rendered)
    (result,) = json.loads(render_sarif(report))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("own-step", "note")
    assert said in result["message"]["text"]


LOADERS = """
    loader = DataLoader(TensorDataset(torch.zeros(64, 3, 48, 48)), batch_size=6, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
"""


@pytest.mark.parametrize(
    "call",
    [
        "net(torch.zeros(1, 3, 48, 48))",
        "net.cuda()(torch.zeros(2, 3, 48, 48, device='cuda'))",
        "torch.nn.functional.cross_entropy(net.cuda()(torch.zeros(6, 3, 48, 48, device='cuda')), 'labels')",
    ],
)
def test_the_scripts_own_call_says_the_shapes_and_its_loader_the_batch(tmp_path: Path, call: str) -> None:
    text = BUILT + LOADERS + f"    {call}\n    optimizer = torch.optim.Adam(net.parameters())\n" + FAILS
    workload = workload_of(run_text(tmp_path, text))
    texts = [each.text for each in workload.assumptions]
    assert (workload.error, workload.batch) == (None, 6)
    assert any("[batch, 3, 48, 48] float32, as the script gives it" in text for text in texts), texts


def test_without_a_loader_the_batch_is_that_of_the_call_on_the_gpu(tmp_path: Path) -> None:
    text = """
    import torch
    net = torch.nn.Conv2d(3, 8, 3).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(5, 3, 48, 48, device="cuda")) + "label"
    """
    workload = workload_of(run_text(tmp_path, text))
    assert (workload.error, workload.batch) == (None, 5)


def test_a_batch_is_not_cut_to_the_few_items_that_are_made_up(tmp_path: Path) -> None:
    text = """
    import glob
    files = glob.glob("widerface/val/*.bmp")
    batch_size = min(args.batch_size, len(files))
    loader = DataLoader(TensorDataset(torch.zeros(len(files), 256)), batch_size=batch_size)
    raise AssertionError("no labels")
    """
    workload = workload_of(run_text(tmp_path, BUILT + MODEL + text, fake_data=True))
    assert (workload.error, workload.batch) == (None, 24)


def test_the_first_of_two_gpus_of_data_parallel_gets_half_of_the_batch(tmp_path: Path) -> None:
    text = """
    model = nn.DataParallel(Net(512), device_ids=[0, 1]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    """
    large = BUILT.replace("default=24", "default=8192")
    plain, parallel = (workload_of(run_text(tmp_path, large + built + FAILS)) for built in (MODEL, text))
    assert (parallel.error, parallel.batch) == (None, 8192)
    of_layer = 4096 * 512 * 4  # at least the four outputs of layers are halves
    assert requested(parallel) < requested(plain) - 4 * of_layer
    note = "DataParallel divides batches among 2 GPUs: the figures are those of the first"
    assert note in [each.text for each in parallel.assumptions]


def test_a_wrapper_that_divides_batches_among_several_gpus_is_left_out_of_the_step(tmp_path: Path) -> None:
    text = """
    class Balanced(nn.DataParallel):
        def forward(self, *inputs):
            return self.module(*inputs) if len(inputs[0]) // (len(self.device_ids) - 1) else None

    model = Balanced(Net(512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.zeros(24, 256, device="cuda"))
    """
    plain, parallel = (workload_of(run_text(tmp_path, BUILT + built)) for built in (MODEL + FAILS, text))
    assert (parallel.error, parallel.batch) == (None, 24)
    assert requested(parallel) - requested(plain) == 24 * 256 * 4  # the batch of the script's own call


def test_a_missing_package_whose_error_a_script_catches_is_named(tmp_path: Path) -> None:
    text = """
    import absent_boxes
    try:
        len(absent_boxes.load("x"))
    except Exception:
        pass
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is not None
    assert "before, it caught: absent_boxes.load() is used, but absent_boxes is not available" in workload.error.message
    assert "pip install absent-boxes" in workload.error.hint


def test_a_script_that_builds_nothing_with_a_package_that_is_missing_is_told_to_install_it(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, 'import absent_boxes\nabsent_boxes.train("config.yaml")\n'))
    assert workload.error is not None
    assert workload.error.hint.startswith("Install absent_boxes where memlint runs")


def test_images_whose_size_nothing_states_are_named_in_the_headline(tmp_path: Path) -> None:
    text = BUILT + "    net = nn.Conv2d(3, 8, 3)\n    optimizer = torch.optim.Adam(net.parameters())\n" + FAILS
    checked = run_text(tmp_path, text)
    workload = workload_of(checked)
    assert workload.script is not None
    assert workload.script.own[0] == "inputs (images of 224 x 224 pixels, which nothing states)"
    assert "images of 224 x 224 pixels, which nothing states" in render_text(checked.report, TextStyle())


def test_methods_that_the_loop_calls_in_place_of_forward_are_the_step(tmp_path: Path) -> None:
    methods = BUILT.replace("def forward(self, x):", "def encode(self, x):").replace(
        "return self.head(self.layers(x))",
        "return self.layers(x)\n\n        def decode(self, hidden):\n            return self.head(hidden)",
    )
    trains = TRAINS.replace("output = model(x)", "hidden = model.encode(x)\n        output = model.decode(hidden)")
    (tmp_path / "whole").mkdir()
    whole = workload_of(run_text(tmp_path / "whole", methods + MODEL + trains))
    assert happened(whole) == "trained"
    needs_data = trains.replace("for _ in range(3):", "for x, y in data:").replace("x, y = torch.randn(", "_ = (")
    needs_data = "\n".join(line for line in needs_data.splitlines() if "_ = (" not in line)
    workload = workload_of(run_text(tmp_path, methods + MODEL + FAILS + needs_data))
    assert (workload.error, happened(workload), workload.batch) == (None, "built", 24)
    assert "a step calls encode, decode" in [each.text for each in workload.assumptions]
    assert requested(workload) == requested(whole)


IMAGES = """
    class Pictures(torch.utils.data.Dataset):
        def __init__(self, options):
            self.ps = options["patch_size"]

        def __len__(self):
            return 40

        def __getitem__(self, number):
            raise OSError("no such picture")

    class Convolved(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, padding=1)

        def forward(self, image):
            return self.first(image)

    model = Convolved().cuda()
    kind = "sgd"
    optimizer = {"adam": torch.optim.Adam(model.parameters()),
                 "sgd": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}[kind]
    optimizer_type = kind
    loader = DataLoader(Pictures({"patch_size": 72}), batch_size=5, shuffle=True)
    for image in loader:
        model(image.cuda())
"""


def test_the_data_set_says_the_size_of_its_images_and_a_setting_which_of_two_optimizers_is_used(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, BUILT + IMAGES))
    assert workload.error is None
    assert workload.batch == 5
    (image,) = (each.text for each in workload.assumptions if each.text.startswith("input image"))
    assert "[batch, 3, 72, 72]" in image
    assert workload.script is not None
    assert workload.script.own == ["inputs", "loss"] or workload.script.own == ["inputs"]
    assert workload.optimizer == "SGD"


def test_inputs_are_those_of_the_scripts_own_data(tmp_path: Path) -> None:
    text = """
    class Crops(torch.utils.data.Dataset):
        def __len__(self): return 64
        def __getitem__(self, i): return [torch.zeros(20, 256), torch.zeros(12, 256)]

    class OfCrops(Net):
        def forward(self, crops):
            return sum(super(OfCrops, self).forward(each).mean() for each in crops)

    loader = DataLoader(Crops(), batch_size=24, shuffle=True)
    model = OfCrops(512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for crops in prefetched(loader):
        model([each.cuda() for each in crops]).backward()
        optimizer.step()
    """
    workload = workload_of(run_text(tmp_path, BUILT + text))
    texts = [each.text for each in workload.assumptions]
    assert "input crops.0 [batch, 20, 256] float32, as the script gives it" in texts
    assert "input crops.1 [batch, 12, 256] float32, as the script gives it" in texts


SIDES = """
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--input_w", type=int, default=256)
    parser.add_argument("--input_h", type=int, default=256)
    config = vars(parser.parse_args())
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    raise RuntimeError("no images")
    for images in loader:
        model(images).mean().backward()
        optimizer.step()
"""


def test_the_sides_that_are_typed_come_before_those_that_the_text_has_by_default(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, SIDES, "--input_w", "512", "--input_h", "512").report.workloads
    assert any("[batch, 3, 512, 512]" in each.text for each in workload.assumptions)


def test_parameters_that_a_launcher_would_have_divided_are_said_to_be_whole(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, SIDES).report.workloads
    assert workload.script is not None
    assert "parameters" not in " ".join(workload.script.own)
    text = SIDES.replace("    config =", '    import os; os.environ["ACCELERATE_USE_FSDP"] = "true"\n    config =')
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert "whole parameters, which FSDP would divide among the ranks" in workload.script.own


FAILS_IN_ITS_FIRST_STEP = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def noised(x):
        return (x + torch.randn_like(x)) / 2

    def loss_of(model, x):
        kept = {"x": x}
        return model(noised(kept["x"])).mean()

    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for latents in DataLoader(torch.zeros(4, 1 << 22), batch_size=4):
        x = latents.cuda()
        loss_of(model, x).backward()
        optimizer.step()
"""


def test_a_batch_that_the_model_did_not_take_is_not_beside_the_own_step(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, FAILS_IN_ITS_FIRST_STEP))
    assert workload.script is not None
    assert workload.script.happened == "built"
    assert workload.estimate is not None
    assert workload.estimate.peak.requested.estimate < 32 << 20  # the batch has 64 MiB


@pytest.mark.parametrize("end", ["", "finally: dist.destroy_process_group()"])
def test_a_model_in_data_parallel_whose_weights_its_output_leaves_out_takes_several_own_steps(
    tmp_path: Path, end: str
) -> None:
    text = """
        import torch
        import torch.distributed as dist
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.other = nn.Linear(64, 64), nn.Linear(64, 64)

            def forward(self, x):
                self.kept = self.other(x)
                return self.layer(x)

        dist.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[0])
        optimizer = torch.optim.AdamW(model.parameters())
        try: raise RuntimeError("no data")
        {end}
    """.replace("{end}", end or "except OSError: pass")
    workload = workload_of(run_text(tmp_path, text, ranks=1))
    assert (happened(workload), workload.error) == ("built", None)


def test_a_call_in_the_models_own_constructor_says_nothing_of_its_inputs(tmp_path: Path) -> None:
    text = """
        from argparse import Namespace
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3, stride=2)
                self.stride = 64 // self.forward(torch.zeros(1, 3, 64, 64)).shape[-1]

            def forward(self, x):
                return self.conv(x)

        options = Namespace(imgsz=320, batch_size=4)
        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        raise RuntimeError("no images")
    """
    workload = workload_of(run_text(tmp_path, text))
    assert (happened(workload), workload.batch) == ("built", 4)
    assert any(each.text.startswith("input x [batch, 3, 320, 320] float32") for each in workload.assumptions)


def test_a_script_that_leaves_gradients_has_trained_without_an_optimizer(tmp_path: Path) -> None:
    text = """
        import torch

        model = torch.nn.Linear(64, 1).cuda()
        model(torch.zeros(32, 64, device="cuda")).sum().backward()
    """
    workload = workload_of(run_text(tmp_path, text))
    assert (happened(workload), workload.error, workload.mode, workload.batch) == ("trained", None, "train", 32)


@pytest.mark.parametrize("forces", [False, True], ids=["values", "forces"])
def test_a_call_with_autograd_on_that_no_optimizer_follows_is_an_evaluation(tmp_path: Path, *, forces: bool) -> None:
    text = f"""
        import torch

        model = torch.nn.Linear(64, 1).cuda()
        places = torch.zeros(32, 64, device="cuda", requires_grad=True)
        energy = model(places).sum()
        if {forces}:
            torch.autograd.grad(energy, places)
    """
    checked = run_text(tmp_path, text)
    workload = workload_of(checked)
    assert (happened(workload), workload.error, workload.mode) == ("evaluated", None, "inference")
    assert workload.batch == 32
