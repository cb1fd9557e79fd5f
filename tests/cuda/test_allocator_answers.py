"""memlint's allocator answers as PyTorch's own binary does, under other settings and on GPUs that are too small."""

from collections import defaultdict

import pytest

from tests.oracles.allocator_programs import ROOT, answer, answer_of_replay, known_answers, recorded_program

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
