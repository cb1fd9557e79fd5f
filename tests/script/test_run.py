"""Scripts run unmodified: where their steps end, what their models are, and how they are over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from memlint.commands.check.check import Checked, check
from memlint.commands.exit_status import exit_status
from memlint.report.phrases import script_text
from tests.cuda.test_allocator_histories import History
from tests.script.running import OPTIONS, run_script, run_text, stdout_of, write

if TYPE_CHECKING:
    from memlint.report.model import Workload

LOOP = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        x, y = torch.randn(32, 64, device="cuda"), torch.randint(10, (32,), device="cuda")
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, torch.cuda.max_memory_allocated(), flush=True)
"""


def workload_of(checked: Checked) -> Workload:
    (workload,) = checked.report.workloads
    return workload


def test_a_loop_ends_after_the_steps_asked_for_and_declares_itself(tmp_path: Path) -> None:
    checked = run_text(tmp_path, LOOP, steps=3)
    workload = workload_of(checked)
    assert workload.error is None
    assert workload.script is not None
    assert (workload.script.steps, workload.script.ending) == (3, "3 steps were taken")
    assert len(workload.script.step_seconds) == len(workload.script.step_peaks) == 3
    assert (workload.mode, workload.batch, workload.dtype, workload.optimizer) == ("train", 32, "float32", "AdamW")
    assert workload.origin == "script"
    printed = stdout_of(checked).splitlines()
    assert [line.rsplit(" ", 1)[0] for line in printed] == ["step 0", "step 1"]  # ended inside of the third


def test_the_estimate_is_what_the_script_itself_is_told(tmp_path: Path) -> None:
    checked = run_text(tmp_path, LOOP, steps=4)
    estimate = workload_of(checked).estimate
    assert estimate is not None
    assert estimate.peak.allocated.estimate == int(stdout_of(checked).split()[-1])


def test_a_script_gives_the_bytes_of_the_same_step_declared(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])

            def forward(self, x):
                return self.layers(x).square().mean()

        def step(model, inputs, optimizer):
            for _ in range(4):
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(inputs["x"]) / 4
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    declared = """

        import memlint

        def memlint_workload():
            return memlint.Declaration(Model(), {"x": torch.randn(512, 256)}, step=step)
    """
    training = """

        if __name__ == "__main__":
            model = Model().to("cuda")
            inputs = {"x": torch.randn(512, 256).to("cuda")}
            optimizer = torch.optim.AdamW(model.parameters())
            while True:
                step(model, inputs, optimizer)
    """
    script = workload_of(run_text(tmp_path, text + training))
    file = write(tmp_path, text + declared, "declared.py")
    (model,) = check([str(file)], {"dtype": "bf16-amp", "select": ("MEM010",)}, OPTIONS).report.workloads
    assert script.estimate is not None
    assert model.estimate is not None
    assert script.estimate.peak == model.estimate.peak
    assert script.estimate.categories == model.estimate.categories
    assert (script.script.steps, script.dtype) == (2, "bf16-amp")  # type: ignore[union-attr]


def test_two_optimizers_are_both_waited_for(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        generator, critic = nn.Linear(8, 64).cuda(), nn.Linear(64, 1).cuda()
        of_critic, of_generator = (torch.optim.Adam(m.parameters()) for m in (critic, generator))
        while True:
            z = torch.randn(16, 8, device="cuda")
            of_critic.zero_grad()
            critic(generator(z).detach()).mean().backward()
            of_critic.step()
            of_generator.zero_grad()
            critic(generator(z)).mean().backward()
            of_generator.step()
            print("both", flush=True)
    """
    checked = run_text(tmp_path, text)
    assert stdout_of(checked).splitlines() == ["both"]  # the second time it ends in the generator's optimizer
    workload = workload_of(checked)
    assert workload.script is not None
    assert workload.script.steps == 2
    names = {b.name for b in workload.estimate.at_peak if b.category == "parameter"}  # type: ignore[union-attr]
    assert names == {"critic.weight", "critic.bias", "generator.weight", "generator.bias"}


def test_a_step_by_hand_needs_no_optimizer(tmp_path: Path) -> None:
    text = """
        import torch

        model = torch.nn.Linear(8, 8, device="cuda")
        for number in range(50):
            model(torch.randn(4, 8, device="cuda")).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            print(number, flush=True)
    """
    checked = run_text(tmp_path, text)
    workload = workload_of(checked)
    assert workload.script is not None
    assert (workload.script.steps, workload.optimizer) == (2, None)
    assert stdout_of(checked).split() == ["0", "1"]


def test_a_closure_is_forward_and_backward_and_not_the_optimizer(tmp_path: Path) -> None:
    text = """
        import torch

        model = torch.nn.Linear(512, 512, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.randn(256, 512, device="cuda")).sum()
            loss.backward()
            return loss

        while True:
            optimizer.step(closure)
    """
    estimate = workload_of(run_text(tmp_path, text)).estimate
    assert estimate is not None
    assert {"forward", "backward", "optimizer"} <= set(estimate.phase_peaks)
    assert estimate.phase_peaks["optimizer"] < estimate.phase_peaks["backward"]


EVALUATION = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = 0

    def count(module, arguments):
        global calls
        calls += 1

    model.register_forward_pre_hook(count)
    for epoch in range(2):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(20):
                correct = model(torch.randn(4096, 64, device="cuda")).argmax(1)
                assert correct.shape == (4096,)
    print(calls)
    torch.save(model.state_dict(), "model.pt")
"""


def test_the_whole_script_reaches_evaluation_and_repeats_its_batches_from_memory(tmp_path: Path) -> None:
    checked = run_text(tmp_path, EVALUATION, whole=True)
    workload = workload_of(checked)
    assert workload.estimate is not None
    assert workload.script is not None
    assert workload.script.ending == "the script ran to its end"
    assert workload.estimate.phase == "evaluation"
    assert (workload.script.evaluations, workload.script.remembered) == (40, 38)
    assert stdout_of(checked).split() == ["4"]
    again = workload_of(run_text(tmp_path, EVALUATION, whole=True, repeat=True))
    assert again.script is not None
    assert again.script.remembered == 0
    assert again.estimate is not None
    assert again.estimate.peak == workload.estimate.peak


def test_a_file_that_asks_for_a_gpu_as_it_is_imported_finds_one_which_is_said(tmp_path: Path) -> None:
    write(
        tmp_path,
        "import torch\nDTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32\n",
        "settings.py",
    )
    text = """
        import torch
        from settings import DTYPE
        model = torch.nn.Linear(64, 64, device="cuda", dtype=DTYPE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(8, 64, device="cuda", dtype=DTYPE)).sum().backward()
            optimizer.step()
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.dtype == "bfloat16"
    (place,) = [
        each for each in workload.assumptions if each.text.startswith("a GPU is present while the file is imported")
    ]
    assert (Path(place.path or "").name, place.line) == ("settings.py", 2)


def test_what_steps_do_not_reach_is_said(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, EVALUATION, steps=1))
    assert workload.script is not None
    assert workload.script.not_reached == ["evaluation", "saving"]


def test_a_model_that_keeps_something_from_call_to_call_is_always_run(tmp_path: Path) -> None:
    text = """
        import torch

        class Cached(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(64, device="cuda"))
                self.seen = []

            def forward(self, x):
                y = x * self.weight
                self.seen.append(y)
                return y.clone()

        model = Cached()
        with torch.no_grad():
            for _ in range(30):
                model(torch.zeros(1024, 64, device="cuda"))
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.estimate is not None
    assert workload.script is not None
    assert workload.script.remembered == 0
    assert workload.mode == "inference"
    assert workload.estimate.peak.requested.estimate >= 30 * 1024 * 64 * 4


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raise ValueError('no data')", "the script raised ValueError: no data"),
        ("import sys; sys.exit(0)", "the script called sys.exit()"),
        ("import os; os._exit(3)", "the script ended its process with os._exit(3)"),
        ("raise KeyboardInterrupt", "the script raised KeyboardInterrupt"),
    ],
)
def test_an_end_before_the_first_step_is_an_error_that_says_why(tmp_path: Path, ending: str, reason: str) -> None:
    checked = run_text(tmp_path, f"import torch\nx = torch.zeros(1 << 20, device='cuda')\n{ending}\n")
    workload = workload_of(checked)
    assert workload.error is not None
    assert workload.error.message.startswith(reason)
    assert exit_status(checked.report) == 2
    assert workload.estimate is not None  # of what was seen
    assert workload.estimate.peak.requested.estimate == 1 << 22


def test_a_failure_in_the_first_step_is_one_of_training_and_no_finding(tmp_path: Path) -> None:
    text = """
        import torch
        model = torch.nn.Linear(1024, 1024, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        output = model(torch.zeros(8192, 1024, device="cuda"))
        output.sum().backward()
        raise ValueError("no step")
    """
    checked = run_text(tmp_path, text, settings={"select": ("ALL",)})
    workload = workload_of(checked)
    assert workload.error is not None
    assert workload.error.message == "the script raised ValueError: no step, before its first whole step"
    assert workload.mode == "train"
    assert not [finding.code for finding in checked.report.findings if finding.code == "MEM003"]  # a rule that failed


CAUGHT = """
import logging, sys, traceback
import torch
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    EVALUATED
    raise KeyError("no such layer")
try:
    train()
except Exception as error:
    SHOWN
EXIT
"""


@pytest.mark.parametrize("evaluated", ["pass", "model.eval()(torch.zeros(2, 4).cuda().detach_()).sum().item()"])
@pytest.mark.parametrize("shown", ["logging.exception('failed')", "print(f'failed: {traceback.format_exc()}')"])
@pytest.mark.parametrize("leaves", ["print('done')", "sys.exit(1)"])
def test_an_error_that_a_script_shows_and_ends_after_is_why_it_took_no_step(
    tmp_path: Path, evaluated: str, shown: str, leaves: str
) -> None:
    text = CAUGHT.replace("EVALUATED", evaluated).replace("SHOWN", shown).replace("EXIT", leaves)
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert "the script raised KeyError: 'no such layer'" in workload.script.ending
    assert workload.script.happened == "built"


def test_nothing_in_the_script_can_swallow_its_end(tmp_path: Path) -> None:
    text = """
        import atexit, torch

        model = torch.nn.Linear(8, 8, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        atexit.register(print, "exit handler", flush=True)
        while True:
            try:
                model(torch.randn(4, 8, device="cuda")).sum().backward()
                optimizer.step()
            except:
                print("swallowed", flush=True)
            finally:
                print("finally", flush=True)
    """
    checked = run_text(tmp_path, text)
    assert stdout_of(checked).split() == ["finally"]  # of the first step alone
    assert workload_of(checked).error is None


@pytest.mark.slow
def test_a_snapshot_that_a_script_dumps_is_plotted_by_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = LOOP.replace(
        "    for step in", "    torch.cuda.memory._record_memory_history(max_entries=100000)\n    for step in"
    )
    text = text.replace("flush=True)", "flush=True)\n        torch.cuda.memory._dump_snapshot('snapshot.pickle')")
    checked = run_text(tmp_path, text, keep_writes=True)
    assert workload_of(checked).error is None
    snapshot, page = tmp_path / "snapshot.pickle", tmp_path / "page.html"
    command = [sys.executable, "-m", "torch.cuda._memory_viz"]
    subprocess.run([*command, "trace_plot", str(snapshot), "-o", str(page)], check=True)
    assert "add_local_files" in page.read_text()
    trace = subprocess.run([*command, "trace", str(snapshot)], check=True, capture_output=True, text=True).stdout
    assert "cudaMalloc" in trace
    allocated = int(stdout_of(checked).split()[2])
    script = "import pickle, sys; from torch.cuda import _memory_viz; s = pickle.load(open(sys.argv[1], 'rb'));"
    script += "print(_memory_viz.memory(s, format_flamegraph=str))"
    flames = subprocess.run([sys.executable, "-c", script, str(snapshot)], check=True, capture_output=True, text=True)
    held = sum(int(line.rpartition(" ")[2]) for line in flames.stdout.splitlines() if "active_allocated" in line)
    assert 0 < held <= allocated
    assert "train.py:" in flames.stdout


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["while True: pass", "import time; time.sleep(1000)"])
def test_the_time_limit_gives_what_was_seen_and_where_it_was(tmp_path: Path, hang: str) -> None:
    text = f"import torch\nx = torch.zeros(1 << 20, device='cuda')\n{hang}\n"
    began = time.monotonic()
    workload = workload_of(run_text(tmp_path, text, settings={"timeout": 25.0}))
    assert time.monotonic() - began < 120
    assert workload.error is not None
    assert "stopped" in workload.error.message
    assert workload.error.traceback[-1].endswith("train.py:3 in <module>")
    assert workload.estimate is not None


def has_descendant(process: int, name: str) -> bool:
    """Say whether a program of this name runs that the process or one of its children has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(child.name() == name for child in psutil.Process(process).children(recursive=True))
    return False


def test_ctrl_c_gives_what_was_seen(tmp_path: Path) -> None:
    text = """
        import subprocess, torch

        x = torch.zeros(1 << 20, device="cuda")
        subprocess.run(["sleep", "1000"])
    """
    command = [sys.executable, "-m", "memlint", "run", str(write(tmp_path, text))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not has_descendant(process.pid, "sleep"):
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    stdout, stderr = process.communicate(timeout=300)  # past the limits of a child, which say where it was stuck
    assert process.returncode == 2, (stdout, stderr)
    assert "stopped by an interrupt" in stdout
    assert "4.00 MiB" in stdout


def test_a_module_runs_as_python_dash_m_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "", "pyproject.toml")
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    write(
        package,
        "import sys\nfrom . import size\nimport torch\nx = torch.zeros(size.SIZE, device='cuda')\nprint(__name__, sys.argv[1:])\n",
        "train.py",
    )
    write(package, "SIZE = 100\n", "size.py")
    (package / "memlint.toml").unlink()
    command = [sys.executable, "-m", "memlint", "run", "-v", "-m", "pkg.train", "--lr", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "__main__ ['--lr', '3']" in done.stderr, done.stderr
    assert done.stdout.startswith("error: -m pkg.train --lr 3: ")


def test_a_module_and_a_config_module_of_a_project_that_is_not_installed_are_found(tmp_path: Path) -> None:
    packages = tmp_path / "src" / "pkg", tmp_path / "src" / "pkg" / "conf", tmp_path / "examples" / "hydra"
    for each in packages:
        each.mkdir(parents=True)
        (each / "__init__.py").touch()
    write(tmp_path, "", "pyproject.toml")
    # As hydra finds its config modules; the files are read where the package is.
    asks = (
        "from importlib import resources\ndef read(name): return resources.files(name).joinpath('size').read_text()\n"
    )
    (packages[2] / "__init__.py").write_text(asks)
    (packages[1] / "size").write_text("100")
    step = "import hydra, torch\nx = torch.zeros(int(hydra.read('pkg.conf')), device='cuda')\nprint(__name__)\n"
    (packages[0] / "train.py").write_text(step)
    for words in (["-m", "pkg.train"], [str(packages[0] / "train.py")]):
        command = [sys.executable, "-m", "memlint", "run", "-v", *words]
        done = subprocess.run(command, cwd=tmp_path / "examples", capture_output=True, text=True, check=False)
        assert "__main__" in done.stderr + done.stdout, done.stderr
        assert "src, which is taken to be on the search path" in done.stdout


def test_the_capture_of_a_script_is_looked_at_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script, file = write(tmp_path, LOOP), tmp_path / "step.memlint"
    command = [sys.executable, "-m", "memlint", "run", "--select", "MEM010", "--output-format", "json"]
    done = subprocess.run(
        [*command, "--capture", file, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    script.unlink()
    (of_run,) = json.loads(done.stdout)["workloads"]
    (of_file,) = check([str(file)], {"select": ("MEM010",)}, OPTIONS).report.workloads
    assert of_file.script is not None
    assert of_file.script.model_dump(mode="json") == of_run["script"]
    assert of_file.estimate is not None
    sizes = ("peak", "categories", "at_peak", "course")
    assert of_file.estimate.model_dump(mode="json", include=set(sizes)) == {
        name: of_run["estimate"][name] for name in sizes
    }


def test_argparse_says_itself_what_is_wrong(tmp_path: Path) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, required=True)\nparser.parse_args()\n"
    error = workload_of(run_text(tmp_path, text)).error
    assert error is not None
    assert error.hint == "It wrote: train.py: error: the following arguments are required: --lr"


def test_a_configured_script_is_a_workload_with_a_budget(tmp_path: Path) -> None:
    write(tmp_path, LOOP)
    (tmp_path / "memlint.toml").write_text(
        'select = ["MEM010"]\n[[workload]]\nname = "training"\nscript = "train.py"\nargs = ["--unused"]\nsteps = 1\n'
        '[budget.training]\nmax = "1MiB"\n'
    )
    for target in (tmp_path, tmp_path / "train.py"):
        checked = check([str(target)], {}, OPTIONS)
        workload = workload_of(checked)
        assert (workload.name, workload.script.steps) == ("training", 1)  # type: ignore[union-attr]
        assert workload.budget is not None
        assert workload.budget.outcome == "does not fit"
        assert exit_status(checked.report) == 1


def test_a_script_may_join_a_group_of_its_own(tmp_path: Path) -> None:
    text = """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29500", world_size=1, rank=0)
        model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(8, 64, device="cuda")).sum().backward()
            optimizer.step()
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is None
    assert workload.estimate is not None
    assert workload.estimate.categories["communication"] == 4 * (64 * 64 + 64)  # the bucket


def test_the_first_of_several_ranks_sees_what_torchrun_sets(tmp_path: Path) -> None:
    text = """
        import os, torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("nccl")
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        print(dist.get_rank(), dist.get_world_size(), os.environ["MASTER_ADDR"])
        model = DistributedDataParallel(torch.nn.Linear(64, 64).to(rank), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            loss = model(torch.randn(8, 64, device=rank)).sum()
            loss.backward()
            dist.all_reduce(loss.detach())
            optimizer.step()
    """
    checked = run_text(tmp_path, text, ranks=8)
    workload = workload_of(checked)
    assert workload.error is None
    assert stdout_of(checked).split() == ["0", "8", "127.0.0.1"]
    assumptions = " ".join(each.text for each in workload.assumptions)
    assert "rank 0 of 8 is simulated alone" in assumptions
    assert "every other rank is taken to be like this one" in assumptions
    assert workload.estimate is not None
    assert workload.estimate.categories["communication"] == 4 * (64 * 64 + 64) + 4  # the bucket, and a loss


SCRIPTS = Path(__file__).parents[2] / "fixtures" / "scripts"


_TRAINS_ON_A_FILE = """
    import numpy as np, torch
    rows = torch.from_numpy(np.load("rows.npy")).float().reshape(-1, 64)[:96]
    model = torch.nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for row in rows.split(32):
        model(row.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_script_that_ends_for_want_of_data_runs_again_with_fake_data(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, _TRAINS_ON_A_FILE))
    assert workload.error is None
    assert workload.script is not None
    assert (workload.script.steps, workload.script.own, workload.batch) == (2, ["data"], 32)
    assert any("rows.npy is not there: replaced by" in each.text for each in workload.assumptions)
    assert "2 steps were taken, with data that memlint made up" in script_text(workload.script)


def test_what_was_made_up_is_said_before_all_else_that_is_assumed(tmp_path: Path) -> None:
    before = "\n    import torch\n    list(torch.utils.data.DataLoader(range(2), num_workers=1))"
    workload = workload_of(run_text(tmp_path, before + _TRAINS_ON_A_FILE, fake_data=True))
    first, *others = (each.text for each in workload.assumptions if not each.found)
    assert first.startswith("the file rows.npy is not there: replaced by")
    assert any(text.startswith("DataLoader workers are left out") for text in others)


def test_a_script_that_has_its_data_runs_with_it_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((96, 64), np.float32))
    script = workload_of(run_text(tmp_path, _TRAINS_ON_A_FILE.replace("rows.npy", f"{tmp_path}/rows.npy"))).script
    assert script is not None
    assert (script.steps, script.own) == (2, [])


def test_fake_data_can_be_forbidden(tmp_path: Path) -> None:
    script = workload_of(run_text(tmp_path, _TRAINS_ON_A_FILE, fake_data=False)).script
    assert script is not None
    assert (script.steps, script.happened, script.own[0]) == (0, "built", "inputs")
    assert script.stop is not None
    assert "rows.npy, which is not there: put it there, or add --fake-data" in script.stop.hint


def test_an_error_that_may_come_from_made_up_data_says_so(tmp_path: Path) -> None:
    text = """
        import numpy as np
        data = np.memmap("data.bin", dtype=np.int64)
        [0, 1][data.max() + 2]
    """
    error = workload_of(run_text(tmp_path, text, fake_data=True)).error
    assert error is not None
    assert (
        "may be what is not there; if so, put it there: the file data.bin is not there: replaced by 16,777,216"
        in error.hint
    )
    assert "train.py:3)" in error.hint


def test_a_package_that_is_not_there_is_done_without(tmp_path: Path) -> None:
    text = LOOP.replace("import torch\n", "import torch, recorder_of_runs as log\n", 1).replace(
        "        print(", "        log.init(project='p').log({'loss': loss.item()})\n        print("
    )
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is None
    assert any("passes through it replaces recorder_of_runs, which is not" in a.text for a in workload.assumptions)
    text = text.replace("loss.item()}", "loss}")
    error = workload_of(run_text(tmp_path, text)).error
    assert error is not None
    assert "recorder_of_runs.init().log is used, but recorder_of_runs is not available" in error.message
    assert ": pip install recorder-of-runs; " in error.hint
    assert "do without it: --stub recorder_of_runs." in error.hint
    workload = workload_of(run_text(tmp_path, text, settings={"stub": ("recorder_of_runs",)}))
    assert workload.error is None
    assert workload.script is not None
    assert workload.script.steps == 2
    assert any("does nothing replaces recorder_of_runs, as --stub" in a.text for a in workload.assumptions)


def test_a_script_that_refuses_the_gpu_is_told_to_name_another(tmp_path: Path) -> None:
    text = "import torch\nif torch.cuda.get_device_capability() < (9, 0): raise RuntimeError('Compute capability 9.0 is required')"
    error = workload_of(run_text(tmp_path, text, gpu="a100-80gb")).error
    assert error is not None
    assert error.hint == "It rejects the simulated GPU: choose another one, such as --gpu h100-80gb."


RECORDED = [
    pytest.param(
        "lm-medium-train-ctx512-bf16amp",
        ("--context", "512", "--amp"),
        12_437_443_584,
        id="ctx512",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "lm-medium-train-ctx128-fp32", ("--context", "128"), 7_026_606_592, id="ctx128", marks=pytest.mark.slow
    ),
]
"""Histories, how they were made, and the most blocks of all seven steps with segments at the recorded addresses: of the
five that came before it nothing was recorded."""


@pytest.mark.parametrize(("name", "arguments", "allocated"), RECORDED)
def test_a_script_of_the_shape_that_was_recorded_gives_the_recorded_peaks(
    name: str, arguments: tuple[str, ...], allocated: int
) -> None:
    checked = run_script(SCRIPTS / "train_lm.py", *arguments, steps=7, settings={"torch": "2.11"})
    estimate, recorded = workload_of(checked).estimate, History.read(name).peaks
    assert estimate is not None
    assert estimate.peak.requested.estimate == recorded["requested"]
    assert estimate.peak.reserved.estimate == recorded["reserved"]
    assert estimate.peak.allocated.estimate == allocated
    assert int(stdout_of(checked)) == recorded["allocated"]


PLACED = """
    import json, runpy, sys
    import torch
    from memlint.memory.allocator.driver import Driver

    segments = json.loads(SEGMENTS)
    num_asked = 0

    def reserve_addresses(self, nbytes, stream):
        global num_asked
        num_asked += 1
        start = START if num_asked <= NUM_AHEAD else 0
        address = next(address for address, size in segments if size == nbytes and address >= start)
        segments.remove([address, nbytes])
        return address

    def shown_too():
        statistics = torch.cuda.memory_stats()
        print([statistics[f"{each}_bytes.all.peak"] for each in ("requested", "allocated", "reserved")])
        print(json.dumps([
            [each["address"], [[block["size"], block["state"]] for block in each["blocks"]]]
            for each in torch.cuda.memory_snapshot() if each["segment_type"] == "large"
        ]))
        return most_allocated()

    Driver.reserve_addresses = reserve_addresses
    most_allocated, torch.cuda.max_memory_allocated = torch.cuda.max_memory_allocated, shown_too
    sys.path.insert(0, FOLDER)
    runpy.run_path(FOLDER + "/train_lm.py", run_name="__main__")
"""
START, NUM_AHEAD = 0x710000000, 94
"""In both recordings the weights' segments, and one more, ascend from there; those after them take what is free at the
lowest address. So every large block lies where it was recorded; of small ones, two tables of angles were one."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "allocated"), RECORDED)
def test_with_segments_where_they_were_recorded_every_large_block_and_every_figure_is_equal(
    tmp_path: Path, name: str, arguments: tuple[str, ...], allocated: int
) -> None:
    history = History.read(name)
    at_start = [[address, nbytes] for address, (_, nbytes, _) in history.segments_at_start().items()]
    later = [event[1:3] for event in history.events if event[0] == "segment_alloc"]
    text = PLACED.replace("SEGMENTS", repr(json.dumps(sorted(at_start + later)))).replace("FOLDER", repr(str(SCRIPTS)))
    text = text.replace("START", str(START)).replace("NUM_AHEAD", str(NUM_AHEAD))
    checked = run_text(tmp_path, text, *arguments, steps=7)
    assert workload_of(checked).error is None
    peaks, segments, shown = map(json.loads, stdout_of(checked).splitlines())
    assert shown == history.peaks["allocated"]
    assert peaks == [history.peaks[each] for each in ("requested", "allocated", "reserved")]
    assert sorted(segments) == sorted(
        [address, [[size, state] for size, _, state in blocks]]
        for address, _, _, pool, _, blocks in history.segments_at_end
        if pool == "large"
    )


def test_savings_are_traced_in_copies_of_the_script(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

            def forward(self, x):
                return x + self.down(nn.functional.gelu(self.up(x)))

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(Block() for _ in range(12))

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False) if CHECKPOINT else block(x)
                return x

        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            model(torch.randn(8192, 128, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    settings = {"select": ("MEM101",)}
    checked = run_text(tmp_path, f"CHECKPOINT = False\n{textwrap.dedent(text)}", settings=settings)
    (finding,) = checked.report.findings
    assert finding.confidence == "exact-retrace"
    edited = workload_of(run_text(tmp_path, f"CHECKPOINT = True\n{textwrap.dedent(text)}", settings=settings))
    before, after = workload_of(checked).estimate, edited.estimate
    assert before is not None
    assert after is not None
    assert finding.peak_change == after.peak.requested.estimate - before.peak.requested.estimate


@pytest.mark.parametrize("kept", [False, True])
def test_copies_of_a_script_write_apart_from_it(tmp_path: Path, kept: bool) -> None:
    text = """
        import os
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

            def forward(self, x):
                return x + self.down(nn.functional.gelu(self.up(x)))

        os.mkdir("out")
        os.chdir("out")
        open("log.txt", "w").write("begin ")
        model = nn.Sequential(*(Block() for _ in range(12))).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(2):
            os.mkdir(f"step-{step}")
            assert open("log.txt").read() == "begin " + "step " * step
            open("log.txt", "a").write("step ")
            model(torch.randn(8192, 128, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    with contextlib.chdir(tmp_path):
        checked = run_text(tmp_path, text, settings={"select": ("MEM101",)}, keep_writes=kept)
    if kept:  # a copy that finds what the script has left behind may fail
        assert (tmp_path / "out/log.txt").read_text(encoding="utf-8") == "begin step step "
        return
    (finding,) = checked.report.findings
    assert finding.confidence == "exact-retrace"
    assert not (tmp_path / "out").exists()


def test_a_script_that_is_stopped_before_it_begins_did_not_crash(tmp_path: Path) -> None:
    error = workload_of(run_text(tmp_path, LOOP, settings={"timeout": 0.001})).error
    assert error is not None
    assert error.message == "no answer within 0.001 s"
    assert "--time-limit" in error.hint


def test_an_error_that_a_script_raises_in_place_of_another_names_that_one_and_what_it_lacks(tmp_path):
    source = """
        import os

        def images(place):
            try:
                assert os.path.isdir(place), f"{place} is not a valid directory"
            except Exception:
                raise NotImplementedError("the data set is not recognized")

        images("faces/lists/train")
        """
    error = workload_of(run_text(tmp_path, source, fake_data=False)).error
    assert "the data set is not recognized, in place of AssertionError: faces/lists/train is not" in error.message
    assert error.hint.startswith("It wants faces/lists/train, which is not there: put it there.")


def test_a_config_that_is_not_there_is_named_with_those_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    for name in ("main.toml", "other.toml", "main.json"):
        (tmp_path / "examples" / name).touch()
    error = workload_of(run_text(tmp_path, "import tomllib\ntomllib.load(open('examples/video.toml', 'rb'))")).error
    assert error.hint == (
        "Put examples/video.toml there, or name one that is there: examples/main.toml, examples/other.toml."
    )


def test_nothing_is_built_without_the_config_that_is_typed(tmp_path):
    source = """
        import sys, torch
        settings = open(sys.argv[2]).read()
        model = torch.nn.Linear(4, 4).cuda()
        model(torch.zeros(2, 4, device="cuda")).sum().backward()
        """
    error = workload_of(run_text(tmp_path, source, "--config", "absent.yaml")).error
    assert "No such file or directory: 'absent.yaml', before its first whole step" in error.message
    assert "it had built" not in error.message


def test_an_error_that_was_raised_from_another_names_that_one(tmp_path):
    """As hydra raises one of its own, which says neither what is missing nor how to learn it."""
    source = """
        def instantiate():
            try:
                import os.kernels
            except ImportError as error:
                raise RuntimeError("Error locating target 'models.Net'") from error

        instantiate()
        """
    message = workload_of(run_text(tmp_path, source)).error.message
    assert "RuntimeError: Error locating target 'models.Net', from ModuleNotFoundError" in message
