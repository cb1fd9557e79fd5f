"""Reports with timelines, real and made up, for the tests of the page."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from memlint.report.model import Interval, Peak, Report, Site, Stretch, Timeline
from memlint.report.page.timeline import CATEGORIES
from tests.report.sample import ESTIMATE, REPORT

ROOT = Path(__file__).parents[3]
MIB = 2**20


@cache
def analysed(model: str) -> Report:
    """What memlint says of a model of the fixtures, with every lifetime, and of GPT-2 with a budget it exceeds."""
    with TemporaryDirectory() as directory:
        file = Path(directory, "report.json")
        command = [sys.executable, "-m", "memlint", "check", f"fixtures/models/{model}.py", "--batch", "8"]
        command += ["--dtype", "bf16-amp", "--timeline", *(("--budget", "8GiB", "--plan") if model == "gpt2" else ())]
        done = subprocess.run(
            [*command, "--output-format", "json", "-o", str(file)], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr.decode()
        return Report.model_validate_json(file.read_text("utf-8"))


def made_up(num_buffers: int, *, seed: int = 0, text: str = "") -> Report:
    """A Report whose Timeline has so many Buffers, most of which close; `text` is in each of its strings."""
    draw = random.Random(seed)
    sites = [
        Site(
            category=CATEGORIES[number % len(CATEGORIES)],
            op=f"aten.op{number}.default{text}",
            dtype=f"float32{text}",
            shape=(number, 1024),
            path=f"model.py{text}",
            line=number + 1,
            function=f"forward{text}",
            module=f"layers.{number}{text}",
            name=f"layers.{number}.weight{text}" if number % 3 == 0 else "",
        )
        for number in range(60)
    ]
    events: list[int] = []
    open_now: list[int] = []
    opened = 0
    while opened < num_buffers or (open_now and len(events) < 1.9 * num_buffers):
        if opened < num_buffers and (not open_now or draw.random() < 0.55):
            events.append(opened)
            open_now.append(opened)
            opened += 1
        else:
            events.append(~open_now.pop(draw.randrange(len(open_now))))
    nbytes = [draw.choice((512, 4 * 1024, MIB, 16 * MIB)) * draw.randint(1, 9) for _ in range(num_buffers)]
    totals = live(nbytes, events)
    thirds = [len(events) * part // 3 for part in range(3)]
    timeline = Timeline(
        sites=sites,
        buffer_sites=[draw.randrange(len(sites)) for _ in range(num_buffers)],
        nbytes=nbytes,
        events=events,
        stretches=[
            Stretch(first=first, phase=phase, step=step)
            for first, phase, step in zip(
                sorted(set(thirds)), ("other", "forward", "backward"), (-1, 0, 0), strict=False
            )
        ],
        peak=totals.index(max(totals)) if totals else -1,
    )
    highest = max(totals, default=0)
    exactly = Interval(low=highest, estimate=highest, high=highest)
    estimate = ESTIMATE.model_copy(
        update={"peak": Peak(requested=exactly, allocated=exactly, reserved=exactly, device=exactly)}
    )
    workload = REPORT.workloads[0].model_copy(update={"timeline": timeline, "estimate": estimate})
    return REPORT.model_copy(update={"workloads": [workload]})


def live(nbytes: list[int], events: list[int]) -> list[int]:
    """Live bytes after each event."""
    totals, total = [], 0
    for event in events:
        total += nbytes[event] if event >= 0 else -nbytes[~event]
        totals.append(total)
    return totals
