"""What the terminal shows of a Report."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from memlint.report.model import Assumption, Doubtful, FittingGpu, Interval, Report, Script
from memlint.report.page.render import render_page
from memlint.report.terminal import render_text
from memlint.report.text_style import TextStyle
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import ESTIMATE, MIB, REPORT

GOLDEN = Path(__file__).parent / "check.txt"
ANSI = re.compile(r"\033\[[0-9;]*m")


def one(**changes) -> Report:
    """A Report with one Workload, changed."""
    return Report(tool="memlint 0", workloads=[REPORT.workloads[0].model_copy(update=changes)])


def test_text_is_what_was_reviewed():
    assert render_text(REPORT, TextStyle(width=100)) == GOLDEN.read_text(encoding="utf-8")


def test_the_verdict_comes_first():
    first = render_text(REPORT, TextStyle()).splitlines()[0]
    assert first == "models/gpt2.py::GPT2 needs 5.31 GiB on NVIDIA A100 80GB (79.0 GiB): fits"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("train.py --name 'a long name' --lr 3e-4", "train.py"),
        ("-m package.train --lr 3e-4", "-m package.train"),
        ("'my train.py' --lr 3e-4", "'my train.py'"),
        ("train.py --name 'never closed", "train.py --name 'never closed"),
    ],
)
def test_the_verdict_of_a_script_comes_before_its_arguments(command, name):
    script = Script(command=command, steps=2, ending="2 steps were taken")
    text = render_text(one(name="train", target=command, script=script), TextStyle())
    first, *others = text.splitlines()
    assert first.removeprefix("train (").startswith(name)
    assert first.endswith(" needs 5.31 GiB on NVIDIA A100 80GB (79.0 GiB): fits".removeprefix(" "))
    assert "lr" not in first
    assert (f"  {command}" in others) == (command != name)


def test_the_gpus_that_it_fits_into_are_named_with_their_prices():
    gpus = [
        FittingGpu(name=f"gpu{n}", title="", total_nbytes=n * MIB, price=n / 2 if n < 3 else None) for n in range(1, 8)
    ]
    text = render_text(one(fitting=gpus), TextStyle())
    assert "\n  fits into  gpu1 (0.5), gpu2 (1), gpu3, gpu4, gpu5 and 2 more; by the kernels of a100-80gb\n" in text
    assert "gpu5, gpu6, gpu7; by" in render_text(one(fitting=gpus), TextStyle(verbosity=1))
    assert "\n  fits into  no GPU that memlint knows; by" in render_text(one(fitting=[]), TextStyle())
    assert "fits into" not in render_text(one(), TextStyle())


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("color", [False, True])
def test_on_a_terminal_every_line_ends_before_its_last_column(width, color):
    style = TextStyle(width=width, color=color, is_terminal=True)
    text = style.fitted(render_text(REPORT, style))
    assert max(len(ANSI.sub("", line)) for line in text.splitlines()) <= width
    assert "\n    help: " in ANSI.sub("", text)
    finding = next(line for line in render_text(REPORT, TextStyle()).splitlines() if ": MEM" in line)
    assert " ".join(ANSI.sub("", text).split()).count(" ".join(finding.split())) == 1  # nothing is lost


def test_what_a_program_reads_has_a_finding_in_one_line():
    text = render_text(REPORT, TextStyle(width=60))
    assert TextStyle(width=60).fitted(text) == text


@pytest.mark.parametrize("outcome", ["fits", "does not fit", "uncertain"])
def test_every_outcome_is_said(outcome):
    verdict = REPORT.workloads[0].verdict.model_copy(update={"outcome": outcome})
    assert render_text(one(verdict=verdict), TextStyle()).splitlines()[0].endswith(f": {outcome}")


def test_the_four_numbers_are_named():
    text = render_text(REPORT, TextStyle())
    for name in ("requested", "allocated", "reserved", "device"):
        assert re.search(rf"^  {name} +\d", text, re.MULTILINE)


DOUBTFUL = [
    Doubtful(cause="context", below=102 * MIB, above=178 * MIB, why="seen on A100; --context SIZE if you know it"),
    Doubtful(cause="workspaces", below=0, above=640 * MIB, why="cuDNN and others choose an algorithm when it runs"),
]


def test_why_a_wide_interval_is_wide_is_said_by_cause_and_a_narrow_one_needs_no_reason():
    wide = ESTIMATE.peak.model_copy(update={"device": Interval(low=5334 * MIB, estimate=5436 * MIB, high=6254 * MIB)})
    estimate = ESTIMATE.model_copy(update={"doubtful": DOUBTFUL, "peak": wide})
    lines = render_text(one(estimate=estimate), TextStyle(width=100)).splitlines()
    first = lines.index("  Why device is between")
    assert [line.split() for line in lines[first + 1 : first + 3]] == [
        ["CUDA", "context", "-102.0", "MiB", "+178.0", "MiB", *DOUBTFUL[0].why.split()],
        ["workspaces", "+640.0", "MiB", *DOUBTFUL[1].why.split()],
    ]
    narrow = one(estimate=ESTIMATE.model_copy(update={"doubtful": DOUBTFUL}))
    assert "Why device is between" not in render_text(narrow, TextStyle())
    assert "Why device is between" in render_text(narrow, TextStyle(verbosity=1))


def test_on_the_host_only_what_tensors_ask_for_is_shown():
    text = render_text(one(gpu="cpu", verdict=None, budget=None), TextStyle())
    assert text.startswith("models/gpt2.py::GPT2 needs 4.12 GiB on cpu\n")
    assert "requested" in text
    assert "reserved" not in text


def test_colour_changes_nothing_but_colour():
    colored = render_text(REPORT, TextStyle(color=True))
    assert ANSI.search(colored)
    assert ANSI.sub("", colored) == render_text(REPORT, TextStyle(color=False))


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_tables_keep_to_the_width(width):
    lines = render_text(REPORT, TextStyle(width=width, verbosity=1)).splitlines()
    tables = [line for line in lines if re.match(r" +\d.* x  |  +\d.*(float|bfloat)", line)]
    assert len(tables) > 10
    assert max(map(len, tables)) <= width


def test_a_finding_is_a_line_editors_can_follow_and_a_help_line():
    lines = render_text(REPORT, TextStyle()).splitlines()
    at = lines.index("models/gpt2.py:61:15: MEM107 attention keeps its weights for backward")
    assert "saves 1.00 GiB" in lines[at + 1]
    assert "exact-retrace" in lines[at + 1]
    assert lines[at + 2].strip() == "help: call F.scaled_dot_product_attention"


def test_a_finding_in_a_model_without_a_file_of_the_user_names_the_model():
    finding = REPORT.findings[0].model_copy(update={"path": "", "line": 1, "column": 1})
    text = render_text(REPORT.model_copy(update={"findings": [finding]}), TextStyle())
    assert "\nGPT2: MEM107 attention keeps its weights" in text


def test_quiet_leaves_verdicts_findings_and_errors():
    text = render_text(REPORT, TextStyle(verbosity=-1))
    assert len(text.splitlines()) < 22
    assert "fits" in text
    assert "exceeded" in text
    assert "MEM107" in text
    assert "error: models/unet.py" in text
    assert "Assumed" not in text


def test_an_assumption_of_several_lines_is_shown_once():
    assumed = [{"text": "a value is taken as 0.0", "path": "train.py", "line": line} for line in (3, 5, 8)]
    report = one(assumptions=[Assumption(**each) for each in assumed])
    assert "  - a value is taken as 0.0  train.py:3, and 2 more lines\n" in render_text(report, TextStyle())
    assert render_text(report, TextStyle(verbosity=1)).count("a value is taken as 0.0") == 3


def test_verbose_shows_every_line_and_single_buffers():
    text = render_text(REPORT, TextStyle(verbosity=1, width=200))
    assert text.count("models/gpt2.py:7") == 8
    assert "transformer.wte.weight" in text
    assert "with -v" not in text


def test_a_terminal_without_block_characters_gets_ascii():
    assert render_text(REPORT, TextStyle(blocks=False)).isascii()


def test_nothing_found_is_said():
    assert render_text(Report(tool="memlint 0"), TextStyle()) == "No findings.\n"


def test_an_estimate_without_a_place_is_no_trouble():
    bare = ESTIMATE.model_copy(
        update={"path": None, "line": None, "op": "", "module": "", "phase_peaks": {}, "by_line": []}
    )
    assert "At the peak, in backward\n" in render_text(one(estimate=bare), TextStyle())


def test_the_least_peak_is_a_line_where_it_is_notably_less():
    def text(least: int) -> str:
        return render_text(one(estimate=ESTIMATE.model_copy(update={"least": least})), TextStyle())

    (line,) = (line for line in text(ESTIMATE.peak.requested.estimate - 512 * MIB).splitlines() if "at least" in line)
    why = "requested, if every tensor died at its last use (512.0 MiB less)"
    assert line.split(maxsplit=4) == ["at", "least", "3.62", "GiB", why]
    assert "at least" not in text(ESTIMATE.peak.requested.estimate - 41 * MIB)  # less than 1 %
    assert "at least" not in text(ESTIMATE.peak.requested.estimate)


def test_what_was_left_out_is_one_line_a_file_and_in_full_with_verbose():
    assert "  models/gpt2.py: Block, Attention (see why with -v)\n" in render_text(REPORT, TextStyle())
    assert "  models/gpt2.py: Block: it is a part of GPT2\n" in render_text(REPORT, TextStyle(verbosity=1))


@pytest.mark.parametrize("folder", ["/home/me/.venv/lib/python3.11/site-packages/", ".venv/lib/dist-packages/", ""])
def test_lines_of_installed_packages_begin_with_the_package(folder):
    line = ESTIMATE.by_line[0].model_copy(
        update={"path": f"{folder}transformers/models/gpt2/modeling_gpt2.py", "line": 695}
    )
    text = render_text(one(estimate=ESTIMATE.model_copy(update={"by_line": [line]})), TextStyle(width=100))
    assert re.search(r" x  transformers/models/gpt2/modeling_gpt2\.py:695 ", text)


@pytest.mark.parametrize(
    "text", [HOSTILE, "::error::x", "  ::error::x", "x\n::error::x", "##[add-mask]x", "\x1b[2Jx", "x\u2028y\ry\x85y"]
)
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_no_string_of_a_report_makes_a_line_or_a_command_of_its_own(text, verbosity):
    look = TextStyle(verbosity=verbosity, width=200)
    lines = render_text(hostile(text), look).split("\n")
    assert len(lines) == len(render_text(hostile("x"), look).split("\n"))
    assert all(line.isprintable() for line in lines)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in lines)


def test_the_spaces_in_the_name_of_a_file_stay():
    finding = REPORT.findings[0].model_copy(update={"path": "my  models/gpt2.py"})
    report = one(target="my  models/gpt2.py::GPT2").model_copy(update={"findings": [finding]})
    lines = render_text(report, TextStyle()).splitlines()
    assert lines[0].startswith("my  models/gpt2.py::GPT2 needs")
    assert any(line.startswith("my  models/gpt2.py:61:15: MEM107") for line in lines)


def test_a_saving_of_reserved_memory_is_not_called_one_of_the_peak():
    (finding,) = (each for each in REPORT.findings if each.code == "MEM107")
    report = REPORT.model_copy(update={"findings": [finding.model_copy(update={"measure": "reserved"})]})
    text = render_text(report, TextStyle())
    assert "saves 1.00 GiB of reserved memory" in text
    assert "1.00 GiB of the peak" not in text


def test_what_the_system_cannot_keep_a_script_from_is_said():
    script = Script(command="train.py", steps=2, ending="2 steps were taken", not_guarded=["files", "the network"])
    said = "not guarded by this system, but in Python's own calls: files; the network"
    assert f"  Kept from the script\n  - {said}\n" in render_text(one(script=script), TextStyle())
    assert said in html.unescape(render_page(one(script=script)))
    assert "not guarded" not in render_text(one(script=script.model_copy(update={"not_guarded": []})), TextStyle())
