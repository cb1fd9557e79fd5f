"""Scripts that train in processes of their own: one of them is analysed, as the rank that it is."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.script.running import run_text, stdout_of

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked
    from memlint.report.model import Workload

TRAINING = """
import os, sys, time, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def train(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(LENGTH):
        model(torch.randn(8, 64, device=rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} of {dist.get_world_size()}", flush=True)
    torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()
"""
SPAWN = "mp.spawn(train, args=(4,), nprocs=4, join=True)\nprint('joined', flush=True)\n"
PROCESSES = """
mp.set_start_method("spawn")
processes = [mp.Process(target=train, args=(rank, 2)) for rank in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""


AGREEING = TRAINING.replace(
    "    model = DistributedDataParallel(torch.nn.Linear(64, 64)",
    """    sizes = [rank + 64] if rank == 0 else [None]
    dist.broadcast_object_list(sizes, src=0)
    model = DistributedDataParallel(torch.nn.Linear(64, sizes[0])""",
)
"""The first rank tells the others how large the model is."""


def run(folder: Path, begin: str, length: int = 100, training: str = TRAINING, **fields: object) -> Checked:
    """What becomes of a script that trains for `length` steps in processes that `begin` starts."""
    text = training.replace("LENGTH", str(length)) + f'\nif __name__ == "__main__":\n{textwrap.indent(begin, "    ")}'
    return run_text(folder, text, **fields)


def workload_of(checked: Checked) -> Workload:
    (workload,) = checked.report.workloads
    return workload


@pytest.mark.parametrize(
    ("begin", "size"), [pytest.param(SPAWN, 4, id="spawn"), pytest.param(PROCESSES, 2, id="processes")]
)
def test_the_first_rank_of_those_that_are_started_is_analysed(tmp_path: Path, begin: str, size: int) -> None:
    checked = run(tmp_path, begin)
    workload = workload_of(checked)
    assert workload.error is None, workload.error
    assert workload.script is not None
    assert (workload.script.steps, workload.script.ending) == (2, "2 steps were taken")
    assert stdout_of(checked).splitlines() == [f"rank 0 of {size}"]  # ended inside of the second
    assert any(f"rank 0 of {size} is simulated alone" in each.text for each in workload.assumptions)
    assert workload.estimate is not None
    assert workload.estimate.categories["communication"] == 4 * (64 * 64 + 64)


@pytest.mark.parametrize(
    ("begin", "size"), [pytest.param(SPAWN, 4, id="spawn"), pytest.param(PROCESSES, 2, id="processes")]
)
def test_one_of_the_ranks_that_are_started_hears_what_another_one_sends(tmp_path: Path, begin: str, size: int) -> None:
    checked = run(tmp_path, begin, training=AGREEING, ranks=size, rank=1)
    workload = workload_of(checked)
    assert workload.error is None, workload.error
    assert stdout_of(checked).splitlines() == [f"rank 1 of {size}"]
    assert workload.ranks is not None
    assert (workload.ranks.rank, workload.ranks.world_size) == (1, size)
    assert workload.estimate is not None
    assert workload.estimate.categories["communication"] == 4 * (64 * 64 + 64)


def test_a_rank_that_waits_for_one_that_does_not_run_says_how_it_would(tmp_path: Path) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl", rank=0, world_size=2)
        dist.recv_object_list([None], src=1)
    """
    error = workload_of(run_text(tmp_path, text)).error
    assert error is not None
    assert error.message.startswith("rank 0 waits for an object of rank 1, which does not run")
    assert error.hint == "Let it run as far as it is needed: memlint run --ranks 2."
    assert error.traceback[-1].endswith("train.py:4 in <module>")


def test_what_a_process_raises_before_it_trains_is_told_with_its_lines(tmp_path: Path) -> None:
    failing = TRAINING.replace("    torch.cuda.set_device(rank)\n", "    raise ValueError('no data')\n")
    workload = workload_of(run(tmp_path, PROCESSES, training=failing))
    assert workload.error is not None
    assert workload.error.message == "the script raised ValueError: no data, before its first whole step"
    assert workload.error.traceback[-1].endswith("train.py:10 in train")


def test_what_a_process_raised_is_the_cause_where_the_script_says_only_that_one_died(tmp_path: Path) -> None:
    failing = TRAINING.replace("    torch.cuda.set_device(rank)\n", "    raise ValueError('no data')\n")
    watching = PROCESSES + "    if process.exitcode:\n        raise Exception('a worker died')\n"
    error = workload_of(run(tmp_path, watching, training=failing)).error
    assert error is not None
    assert error.message == "the script raised ValueError: no data, before its first whole step"
    assert error.traceback[-1].endswith("train.py:10 in train")


@pytest.mark.slow
def test_the_end_of_spawned_training_is_reached(tmp_path: Path) -> None:
    spawned = run(tmp_path, SPAWN, length=4, whole=True)
    assert stdout_of(spawned).splitlines() == [*4 * ["rank 0 of 4"], "joined"]
    processes = run(tmp_path, PROCESSES, length=4, whole=True)
    assert stdout_of(processes).splitlines() == 4 * ["rank 0 of 2"]
    for checked, ending in ((spawned, "the script"), (processes, "the process that it started to train")):
        workload = workload_of(checked)
        assert workload.error is None, workload.error
        assert workload.script is not None
        assert (workload.script.steps, workload.script.ending) == (4, f"{ending} ran to its end")
        assert [Path(write.file).name for write in workload.script.writes] == ["model.pt"]


@pytest.mark.slow  # waits for its time limit
def test_a_process_that_hangs_is_stopped_with_what_was_seen(tmp_path: Path) -> None:
    hanging = TRAINING.replace("        optimizer.zero_grad()\n", "        while step: pass\n")
    workload = workload_of(run(tmp_path, PROCESSES, training=hanging, steps=9, settings={"timeout": 25.0}))
    assert workload.error is not None
    assert workload.error.message == "it was stopped after 25 s, which is the time limit, after 2 whole steps"
    assert workload.error.traceback[-1].endswith("train.py:16 in train")
    assert workload.estimate is not None


def test_a_script_that_another_one_only_starts_is_run_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/train_it.py").write_text("""
import os, sys, torch

width, batch = int(sys.argv[2]), int(os.environ["BATCH_OF_TEST"])
print(os.path.basename(os.getcwd()))
model = torch.nn.Linear(width, width).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(batch, width).cuda()).sum().backward()
    optimizer.step()
""")
    text = """
        import os, subprocess, sys
        subprocess.run(["nvidia-smi"], check=False)
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        subprocess.run([sys.executable, "-m", "pip", "--version"], check=True)
        words = [sys.executable, "train_it.py", "--width", "32"]
        subprocess.run(words, cwd="inner", env={**os.environ, "BATCH_OF_TEST": "4"}, check=True)
    """
    checked = run_text(tmp_path, text.replace('"inner"', repr(str(tmp_path / "inner"))), "--quietly")
    workload = workload_of(checked)
    assert workload.error is None, workload.error
    assert stdout_of(checked).split() == ["inner"]
    assert workload.script is not None
    assert (workload.script.command, workload.script.steps) == ("train.py --quietly", 2)
    assert (workload.name, workload.batch) == ("train", 4)
    starts = f"it does nothing but to start {tmp_path / 'inner/train_it.py'}, which is simulated in its place"
    assert starts in [each.text for each in workload.assumptions]


def test_a_shell_script_that_a_script_starts_elsewhere_is_read_and_its_training_has_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/LAUNCH").write_text('#!/bin/bash\nset -x\npython "$@"\n')
    (tmp_path / "inner/LAUNCH").chmod(0o755)
    (tmp_path / "inner/train_it.py").write_text("""
import os, sys, torch

print(os.path.basename(os.getcwd()), os.environ["WORLD_SIZE"])
width = int(sys.argv[2])
model = torch.nn.Linear(width, width).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(4, width).cuda()).sum().backward()
    optimizer.step()
""")
    text = f"""
        import os
        os.chdir({str(tmp_path / "inner")!r})
        os.system("./LAUNCH train_it.py --width 32")
    """
    checked = run_text(tmp_path, text, ranks=2)
    workload = workload_of(checked)
    assert workload.error is None, workload.error
    assert stdout_of(checked).split() == ["inner", "2"]
    assert workload.batch == 4


def test_the_failure_of_a_script_that_another_one_only_starts_is_told(tmp_path: Path) -> None:
    (tmp_path / "train_it.py").write_text("import torch\nraise ValueError('no such data')\n")
    text = f"""
        import subprocess, sys
        subprocess.run([sys.executable, {str(tmp_path / "train_it.py")!r}])
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is not None
    assert "ValueError: no such data" in workload.error.message


def test_a_script_that_is_started_as_a_program_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("print('other')\n")
    text = f"""
        import subprocess
        subprocess.run(["{sys.executable}", "{other}", "--lr", "3"], check=True)
        assert subprocess.call("exit 3", shell=True) == 3
    """
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is not None
    assert workload.error.message == (
        "the script ran to its end, and no model was called on the GPU; its output ends: other"
    )
    assert workload.error.hint.startswith("It started `")
    assert workload.error.hint.endswith(f"{other} --lr 3`, of which nothing is simulated: memlint run {other} --lr 3")
    assert workload.script is not None
    started, shell = (each.command for each in workload.script.programs)
    assert started.endswith(f"{other} --lr 3")
    assert shell == "exit 3"
    assert [each.line for each in workload.script.programs] == [3, 4]


@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_process_that_ends_before_its_first_step_is_judged_as_the_script_itself(
    tmp_path: Path, is_read_first: bool
) -> None:
    read = """
    with open("data.json") as file:
        sizes = json.load(file)
    if "rows" not in sizes:
        raise KeyError("rows")
    """
    build = """
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(32, 64), batch_size=16)
    """
    training = f"import json, torch\nimport torch.multiprocessing as mp\ndef train(rank, world_size):{build}{read}"
    if is_read_first:
        training = f"import json, torch\nimport torch.multiprocessing as mp\ndef train(rank, world_size):{read}{build}"
    checked = run(tmp_path, PROCESSES.replace("range(2)", "range(1)"), training=training)
    workload = workload_of(checked)
    if is_read_first:
        assert "data.json is not there: replaced by" in repr(workload.error), workload
    else:
        assert workload.script is not None, workload.error
        assert workload.script.happened == "built"
        assert workload.estimate is not None


def test_a_spawned_process_finds_a_gpu_for_each(tmp_path: Path) -> None:
    counted = TRAINING.replace(
        "    torch.cuda.set_device", "    assert torch.cuda.device_count() == 4\n    torch.cuda.set_device"
    )
    workload = workload_of(run(tmp_path, SPAWN, training=counted))
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("passed over" in each.text for each in workload.assumptions)
