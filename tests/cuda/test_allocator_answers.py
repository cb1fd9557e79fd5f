"""memlint's allocator answers as PyTorch's own binary does, under other settings and on GPUs that are too small."""

from collections import defaultdict

import pytest

from memlint.capture.recorded import (
    ALLOC,
    FREE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    Events,
    RecordedBlock,
    RecordedSegment,
    Recording,
)
from memlint.explain.recordings.replay import Program
from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.reference import Allocator, AllocatorSettings
from tests.oracles.allocator_programs import ROOT, answer, answer_of_replay, calls_of, known_answers, recorded_program

BY_ADDRESS, BY_AGE = ("2.11.0",), ("2.13.0", "2.14.0")
RANDOM, RECORDED = [], defaultdict(list)
for case, answers in known_answers():
    (RANDOM if case.program.startswith("random ") else RECORDED[case.program]).append((case, answers))


@pytest.mark.parametrize(("versions", "oldest_first"), [(BY_ADDRESS, False), (BY_AGE, True)])
def test_random_programs_are_answered_as_by_pytorch(versions, oldest_first):
    assert len(RANDOM) == 240
    for case, answers in RANDOM:
        own = answer(case, oldest_first=oldest_first)
        assert {version: answers[version] for version in versions} == dict.fromkeys(versions, own), case


@pytest.mark.parametrize("program", sorted(RECORDED))
def test_a_recording_is_replayed_under_other_settings_as_by_pytorch(program):
    """The GPUs that recorded them ran releases that order free blocks by address."""
    assert len(RECORDED[program]) >= 5
    last_before = len(recorded_program(ROOT / program).asked_before) - 1
    for case, answers in RECORDED[program]:
        expected = answers["2.11.0"]
        if 0 <= expected.failed_at < last_before:  # a replay does not say which of them failed
            expected = expected._replace(failed_at=last_before)
        assert answer_of_replay(case) == expected, case


def test_the_order_of_free_blocks_differs_between_releases():
    differs = [case for case, answers in RANDOM if answers["2.11.0"] != answers["2.14.0"]]
    assert differs
    assert all(case.descending for case in differs)


class RecordingDriver(Driver):
    """Writes down what the allocator asks for."""

    def __init__(self, events, **options):
        super().__init__(**options)
        self.events = events

    def malloc(self, nbytes, stream):
        address = super().malloc(nbytes, stream)
        self.events.add(SEGMENT_ALLOC, address, nbytes, stream, -1)
        return address

    def free(self, address, nbytes):
        super().free(address, nbytes)
        self.events.add(SEGMENT_FREE, address, nbytes, 0, -1)


def recorded(case, *, oldest_first):
    """Record the calls of a Case as a GPU does."""
    events = Events()
    driver = RecordingDriver(events, descending=case.descending)
    allocator = Allocator(AllocatorSettings.parse(case.settings), driver=driver, oldest_first=oldest_first)
    blocks = {}
    for call in calls_of(case):
        if call.kind == "malloc":
            block = blocks[call.id] = allocator.malloc(call.nbytes, call.stream)
            events.add(ALLOC, block.address, call.nbytes, call.stream, -1)
        elif call.kind == "free":
            block = blocks.pop(call.id)
            events.add(FREE, block.address, block.requested, block.stream, -1)
            allocator.free(block)
        else:
            allocator.empty_cache()
    segments = [
        RecordedSegment(
            whole[0].address,
            sum(block.size for block in whole),
            whole[0].stream,
            is_small=whole[0].pool.is_small,
            is_expandable=False,
            is_private=False,
            blocks=tuple(
                RecordedBlock(
                    block.address,
                    block.size,
                    block.requested,
                    "active_allocated" if block.allocated else "inactive",
                    -1,
                )
                for block in whole
            ),
        )
        for whole in allocator.segments()
    ]
    return Recording(0, events, (), tuple(segments), case.settings, knows_settings=True, starts_empty=True)


@pytest.mark.parametrize("oldest_first", [False, True])
def test_the_order_of_free_blocks_is_told_from_the_recorded_addresses(oldest_first):
    """As of a snapshot, which does not say which release wrote it: these programs differ between 2.11 and 2.14."""
    differing = [
        (case, answers["2.14.0" if oldest_first else "2.11.0"])
        for case, answers in RANDOM
        if answers["2.11.0"] != answers["2.14.0"] and answers["2.14.0"].failed_at == answers["2.11.0"].failed_at == -1
    ]
    for case, answer_of_release in differing:
        program = Program(recorded(case, oldest_first=oldest_first))
        assert (program.recorded.oldest_first, program.recorded.num_moved) == (oldest_first, 0)
        assert program.recorded.reserved == answer_of_release.reserved
    assert differing
