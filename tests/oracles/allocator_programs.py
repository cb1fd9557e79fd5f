"""Calls of the caching allocator, recorded and random, and the answers of PyTorch's own binary.

`fixtures/allocator/README.md` says where the answers come from.
"""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

from memlint.capture.lifetimes import end_of_life
from memlint.capture.recorded import ALLOC
from memlint.capture.recording import read_recordings
from memlint.explain.recordings.replay import Program
from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, OutOfMemory

ROOT = Path(__file__).parents[2]
ANSWERS = ROOT / "fixtures" / "allocator" / "answers.json.gz"
MIB = 2**20
EDGES = (512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 20 * MIB, 64 * MIB - 1, 64 * MIB, 128 * MIB)
RANGES = ((1, MIB), (MIB, 10 * MIB), (10 * MIB, 100 * MIB))
ONE_STREAM, TWO_STREAMS = (0,), (0, 0x55550000)


class Call(NamedTuple):
    """A call; `id` names a block."""

    kind: str
    id: int = 0
    nbytes: int = 0
    stream: int = 0

    def __str__(self) -> str:
        values = {"malloc": (self.id, self.nbytes, self.stream), "free": (self.id,)}.get(self.kind, ())
        return " ".join(map(str, (self.kind, *values)))


class Case(NamedTuple):
    """Calls, and how they are to be answered."""

    program: str
    """A recording's file, or `random SEED`."""
    settings: str
    """`PYTORCH_ALLOC_CONF`."""
    capacity: int
    """Bytes of the GPU."""
    descending: bool
    """True if the driver hands out addresses downwards."""
    empties_cache: bool = True
    """False: calls of `empty_cache` in a recording are left out."""


class Answer(NamedTuple):
    """The state of the allocator after all calls, or after the one that failed."""

    requested: int
    allocated: int
    reserved: int
    """Most bytes at once."""
    num_retries: int
    failed_at: int
    """Position of the call; -1: none failed."""
    allocated_at_end: int
    reserved_at_end: int


def random_calls(seed: int) -> list[Call]:
    """Make up to 800 calls on one stream or two, with at most some 40 blocks at once."""
    choose = random.Random(seed)
    streams = choose.choice((ONE_STREAM, TWO_STREAMS))
    calls: list[Call] = []
    live: list[int] = []
    num_blocks = 0
    for _ in range(choose.choice((50, 200, 800))):
        which = choose.random()
        if which < 0.02:
            calls.append(Call("empty_cache"))
        elif live and (which < 0.48 or len(live) > 40):
            calls.append(Call("free", live.pop(choose.randrange(len(live)))))
        else:
            calls.append(Call("malloc", num_blocks, _random_size(choose), choose.choice(streams)))
            live.append(num_blocks)
            num_blocks += 1
    return calls


def _random_size(choose: random.Random) -> int:
    if choose.random() < 0.1:
        return choose.choice(EDGES)
    return choose.randrange(*choose.choice(RANGES))


@cache
def recorded_program(file: Path) -> Program:
    """Read the recording with most events of a file."""
    return Program(max(read_recordings(file), key=lambda recording: len(recording.events)))


def recorded_calls(program: Program, *, empties_cache: bool = True) -> tuple[list[Call], list[int]]:
    """Return the calls of a recording, and the position of each in its events.

    What was there before the recording is asked for first, where a replay asks for it too.
    """
    events, ends = program.recording.events, end_of_life(program.recording)
    calls, positions, live = [], [], {}
    for nbytes, stream, address in program.asked_before:
        live[address] = len(positions)
        calls.append(Call("malloc", len(positions), nbytes, stream))
        positions.append(-1)
    columns = zip(events.actions, events.addresses, events.sizes, events.streams, strict=True)
    for position, (action, address, nbytes, stream) in enumerate(columns):
        if empties_cache and position in program.emptied:
            calls.append(Call("empty_cache"))
            positions.append(position)
        if action == ALLOC:
            live[address] = len(positions)
            calls.append(Call("malloc", len(positions), nbytes, stream))
            positions.append(position)
        elif action == ends and address in live:
            calls.append(Call("free", live.pop(address)))
            positions.append(position)
    return calls, positions


def calls_of(case: Case) -> list[Call]:
    """Return the calls of a Case."""
    if case.program.startswith("random "):
        return random_calls(int(case.program.removeprefix("random ")))
    return recorded_calls(recorded_program(ROOT / case.program), empties_cache=case.empties_cache)[0]


def answer(case: Case, *, oldest_first: bool) -> Answer:
    """Answer the calls of a Case with memlint's allocator."""
    settings = AllocatorSettings.parse(case.settings)
    share = int(settings.memory_fraction * case.capacity) if settings.memory_fraction < 1 else None
    driver = Driver(case.capacity, descending=case.descending)
    allocator = Allocator(settings, driver=driver, share=share, oldest_first=oldest_first)
    blocks = {}
    failed_at = -1
    for position, call in enumerate(calls_of(case)):
        try:
            match call.kind:
                case "malloc":
                    blocks[call.id] = allocator.malloc(call.nbytes, call.stream)
                case "free":
                    allocator.free(blocks.pop(call.id))
                case _:
                    allocator.empty_cache()
        except OutOfMemory:
            failed_at = position
            break
    peaks = allocator.peak_requested, allocator.peak_allocated, allocator.peak_reserved
    return Answer(*peaks, allocator.num_retries, failed_at, allocator.allocated, allocator.reserved)


def answer_of_replay(case: Case) -> Answer:
    """Answer a Case of a recording as `memlint explain` does."""
    program = recorded_program(ROOT / case.program)
    settings = AllocatorSettings.parse(case.settings)
    replayed = program.replay(settings, case.capacity, empties_cache=case.empties_cache)
    failed_at = -1
    if replayed.failed_at is not None:
        _, positions = recorded_calls(program, empties_cache=case.empties_cache)
        failed_at = max(call for call, position in enumerate(positions) if position == replayed.failed_at)
    peaks = replayed.requested, replayed.allocated, replayed.reserved
    return Answer(*peaks, replayed.num_retries, failed_at, *replayed.at_end)


def known_answers() -> list[tuple[Case, dict[str, Answer]]]:
    """Read the Cases of the fixture with PyTorch's answers by version."""
    rows = json.loads(gzip.decompress(ANSWERS.read_bytes()))
    return [
        (Case(*row["case"]), {version: Answer(*values) for version, values in row["answers"].items()}) for row in rows
    ]
