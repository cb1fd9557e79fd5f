"""Messages about memory: numbers, verdict, place and command.

The messages in fixtures/messages stand in public issues, each with its address; their numbers and verdicts were written
down by hand. `read.json` was there when the wordings were written; `set_aside.json` was not looked at until then, and
`later.json` was collected afterwards.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlint.base.errors import TargetError
from memlint.cli import main
from memlint.explain.failure import failure_in
from memlint.explain.messages import MOST_MESSAGES, messages_in
from memlint.explain.narrative import sentence_of

MESSAGES = Path(__file__).resolve().parents[2] / "fixtures" / "messages"
ENTRIES = [
    entry
    for name in ("read", "set_aside", "later")
    for entry in json.loads((MESSAGES / f"{name}.json").read_text("utf-8"))
]
UNITS = {"bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def nbytes(text):
    number, unit = text.split()
    return round(float(number) * UNITS[unit])


def address(entry):
    return entry["source"].removeprefix("https://github.com/")


@pytest.mark.parametrize("entry", ENTRIES, ids=address)
def test_numbers_and_verdict_of_a_public_message_are_right(entry):
    failure = failure_in(entry["text"])
    others = {
        "device": failure.cause.device,
        "rank": failure.cause.rank,
        "others": len(failure.cause.processes),
        "command": failure.surroundings.command,
        "line": str(failure.surroundings.place),
        "fragmentation": failure.fragmentation,
    }
    for name, expected in entry["numbers"].items():
        if name in others:
            assert others[name] == expected, name
        else:
            assert getattr(failure.cause.numbers, name).nbytes == nbytes(expected), name
    assert (failure.cause.wording, failure.verdict) == (entry["wording"], entry["verdict"])


def test_an_explanation_can_be_written_for_every_message_in_every_form():
    runner = CliRunner()
    for entry in ENTRIES:
        text = runner.invoke(main, ["explain", "-"], input=entry["text"])
        assert text.exit_code == 0, text.output
        assert "\nWhy: " in text.output
        assert "an unknown amount" not in text.output
        document = json.loads(runner.invoke(main, ["explain", "-", "--format", "json"], input=entry["text"]).output)
        assert document["verdict"] == entry["verdict"]
    markdown = runner.invoke(main, ["explain", "-", "--format", "markdown"], input=ENTRIES[0]["text"]).output
    assert markdown.startswith("**")
    assert markdown.endswith("```\n")


@pytest.mark.parametrize(
    "text",
    [
        # https://github.com/MhLiao/DB/issues/94, https://github.com/open-mmlab/mmsegmentation/issues/2085
        "RuntimeError: DataLoader worker (pid 25902) is killed by signal: Segmentation fault",
        "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated.",
        # https://github.com/NVIDIA/nccl/issues/1410
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 1 'invalid argument'",
        "RuntimeError: CUDA error: device-side assert triggered",
        "step 100 loss 2.31, max memory allocated 12.3 GiB, 4.56 GiB free",
        "",
    ],
)
def test_text_about_something_else_is_no_failure_for_want_of_memory(text):
    with pytest.raises(TargetError, match="no message about memory"):
        failure_in(text)


def test_others_that_hold_more_than_was_missing_are_told_beside_the_verdict():
    # https://github.com/Morizeyao/GPT2-Chinese/issues/215
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 14.76 GiB total capacity; 11.04 GiB "
        "already allocated; 259.75 MiB free; 11.10 GiB reserved in total by PyTorch)"
    )
    output = CliRunner().invoke(main, ["explain", "-"], input=text).output
    assert "other processes or libraries hold at least 2.40 GiB, more than was missing" in output
    fitting = text.replace("14.76 GiB", "11.90 GiB")
    assert "more than was missing" not in CliRunner().invoke(main, ["explain", "-"], input=fitting).output


def test_the_command_exits_with_2_for_such_text():
    result = CliRunner().invoke(main, ["explain", "-"], input="all is well\n")
    assert result.exit_code == 2
    assert "Give the whole output of the run" in result.output


def test_of_a_message_of_the_asynchronous_allocator_the_numbers_are_read():
    # the text that c10/cuda/CUDAMallocAsyncAllocator.cpp puts together
    text = (
        "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 4.94 GiB\nRequested               : 20.00 MiB\nDevice limit            : 5.80 GiB\n"
        "Free (according to CUDA): 13.94 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB"
    )
    failure = failure_in(text)
    numbers = failure.cause.numbers
    assert failure.cause.device == 1
    assert [each.nbytes for each in (numbers.allocated, numbers.requested, numbers.capacity, numbers.free)] == [
        nbytes("4.94 GiB"),
        nbytes("20.00 MiB"),
        nbytes("5.80 GiB"),
        nbytes("13.94 MiB"),
    ]
    assert failure.verdict == "too much alive"


def test_an_error_of_pytorch_whose_text_was_replaced_is_one_about_memory_all_the_same():
    log = "    except torch.OutOfMemoryError: retry()\n[rank1]: torch.OutOfMemoryError: Allocation on device\n"
    (message,) = messages_in(log)
    assert (message.line, message.rank, message.failure) == (2, 1, "device")


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB. GPU {} has a total capacity of 79.10 GiB of which "
    "98.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory "
    "70.12 GiB is allocated by PyTorch, and 765.81 MiB is reserved by PyTorch but unallocated."
)


def test_of_many_ranks_the_first_message_is_the_cause_and_repeated_lines_count_once():
    lines = []
    for rank, size in ((2, 132), (0, 256), (1, 132)):
        lines += [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "/home/me/train.py", line 9{rank}, in <module>',
            f'[rank{rank}]:   File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 624, in backward',
            f"[rank{rank}]: {OOM.format(size, rank)}",
            f"[rank{rank}]: {OOM.format(size, rank)}",
        ]
    lines.append("torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 2 (pid: 12)")
    failure = failure_in("\n".join(["$ torchrun --nproc-per-node=3 train.py --lr 3e-4", *lines]))
    assert (failure.cause.rank, failure.cause.device) == (2, 2)
    assert failure.ranks == (0, 1, 2)
    assert len(failure.later) == 2
    assert str(failure.surroundings.place) == "/home/me/train.py:92"
    assert failure.command == "memlint run torchrun --nproc-per-node=3 train.py --lr 3e-4"


@pytest.mark.parametrize(
    ("echoed", "typed"),
    [
        ("(venv) me@box:~/work$ python train.py --batch-size 8", "memlint run train.py --batch-size 8"),
        ("+ python3 -m pkg.train --lr 1e-3", "memlint run -m pkg.train --lr 1e-3"),
        ("(venv) me@box:~/work$python train.py", "memlint run train.py"),
        ("`(base) me@box:~/work$ python train.py --x 1`", "memlint run train.py --x 1"),
        ("!python train.py --name 'a b'", "memlint run train.py --name 'a b'"),
        ("When I run `python train.py --x 1` I get an error", "memlint run train.py --x 1"),
        ("$ OMP_NUM_THREADS=4 python train.py", "memlint run OMP_NUM_THREADS=4 python train.py"),
        (
            "$ accelerate launch --num_processes 2 \\\n  train.py --x 1",
            "memlint run accelerate launch --num_processes 2 train.py --x 1",
        ),
        ("python is installed, and train.py is there", "memlint run SCRIPT ARGUMENTS"),
        ("$ pip install torch", "memlint run SCRIPT ARGUMENTS"),
        ("$ python train.py --name 'unclosed", "memlint run SCRIPT ARGUMENTS"),
    ],
)
def test_the_command_that_the_log_echoes_is_the_one_to_type(echoed, typed):
    assert failure_in(f"{echoed}\nRuntimeError: CUDA error: out of memory\n").command == typed


def test_a_command_of_another_script_than_that_of_the_traceback_is_not_offered():
    log = (
        '$ python prepare.py --all\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'
        "RuntimeError: CUDA error: out of memory\n"
    )
    assert failure_in(log).command == "memlint run train.py"


def test_frames_of_rich_and_ipython_are_read_as_those_of_python():
    rich = "│ /home/me/fit.py:17 in step     │\n│ /home/me/.venv/lib/python3.11/site-packages/torch/_tensor.py:624 in backward │\n"
    ipython = "File ~/code/fit.py:17, in step(batch)\n     17 loss.backward()\n"
    for frames, path in ((rich, "/home/me/fit.py"), (ipython, "~/code/fit.py")):
        place = failure_in(f"{frames}RuntimeError: CUDA error: out of memory").surroundings.place
        assert (place.path, place.line, place.function) == (path, 17, "step")


def test_a_process_in_a_container_that_the_driver_lists_by_another_number_is_the_process_itself():
    text = OOM.format(132, 0).replace("Including non-PyTorch memory, this process", "Process 41")
    (message,) = messages_in(text)
    assert message.processes == ()
    assert message.numbers.in_use.nbytes == nbytes("79.00 GiB")


def test_lines_of_a_message_that_each_begin_with_the_rank_are_read_together():
    text = "\n".join(f"[rank1]: {line}" for line in OOM.format(16, 1).replace(". ", ".\n").split("\n"))
    failure = failure_in(text)
    assert (failure.cause.rank, failure.cause.device, failure.verdict) == (1, 1, "too much alive")
    assert failure.cause.numbers.allocated.nbytes == nbytes("70.12 GiB")


@pytest.mark.parametrize(
    ("amounts", "verdict", "sentence"),
    [
        (
            ("1.62 GiB", "31.35 GiB", "1.42 GiB", "23.32 GiB"),
            "another process",
            "other processes hold 6.61 GiB of the GPU's 31.3 GiB.",
        ),
        (
            ("24.00 MiB", "23.52 GiB", "19.75 MiB", ""),
            "full",
            "the GPU was full: PyTorch got no memory.",
        ),
        (
            ("512.00 MiB", "79.18 GiB", "59.62 MiB", "79.09 GiB"),
            "too much alive",
            "too much was alive: this process held 79.1 GiB of 79.2 GiB, and 512.0 MiB more was asked for.",
        ),
    ],
)
def test_of_a_message_that_somebody_shortened_no_more_is_said_than_it_holds(amounts, verdict, sentence):
    requested, capacity, free, in_use = amounts
    text = f"Tried to allocate {requested}.\nGPU 0 has a total capacity of {capacity} of which {free} is free.\n"
    own = f"... this process has {in_use} memory in use." if in_use else ""
    failure = failure_in(f"torch.OutOfMemoryError: CUDA out of memory. {text}{own}")
    assert failure.verdict == verdict
    assert sentence_of(failure) == sentence


def test_of_a_log_with_thousands_of_messages_the_first_is_the_cause():
    failure = failure_in("\n".join(OOM.format(size, 0) for size in range(2, 5000)))
    assert failure.cause.numbers.requested.nbytes == nbytes("2.00 MiB")
    assert failure.cause.line == 1
    assert len(failure.later) < MOST_MESSAGES


def test_a_message_that_was_cut_is_explained_by_what_is_left_of_it():
    whole = OOM.format(512, 0)
    for cut in range(len("torch.OutOfMemoryError: CUDA out of memory"), len(whole), 7):
        failure = failure_in(whole[:cut])
        assert failure.verdict in ("too much alive", "full")
        assert CliRunner().invoke(main, ["explain", "-"], input=whole[:cut]).exit_code == 0


def test_the_setting_of_the_allocator_is_offered_only_where_it_can_help():
    for entry in ENTRIES:
        output = CliRunner().invoke(main, ["explain", "-"], input=entry["text"]).output
        advice = output.partition("\nNext:")[2]
        assert ("expandable_segments" in advice) == (entry["verdict"] == "fragmentation"), address(entry)


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe\x00progress\r" * 1000 + b"RuntimeError: CUDA error: out of memory\n")
    result = CliRunner().invoke(main, ["explain", str(log)])
    assert result.exit_code == 0
    assert "the GPU was full" in result.output


def test_a_log_that_is_not_there_is_one_message():
    result = CliRunner().invoke(main, ["explain", "nowhere.log"])
    assert result.exit_code == 2
    assert "nowhere.log cannot be read" in result.output
