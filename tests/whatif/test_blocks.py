"""Which modules repeat, and which choices of them could be checkpointed."""

from __future__ import annotations

from memlint.memory.repeated_modules import repeated
from memlint.memory.timeline import Timeline, alive_at, peak_event
from memlint.whatif.change import ChangedProgram
from memlint.whatif.changes import CheckpointModules
from memlint.whatif.repeated_blocks import blocks_that_save, granularities, selections
from tests.oracles.programs import llama, resnet50
from tests.whatif.programs import traced


def saving(trace):
    timeline = Timeline.of(trace)
    return blocks_that_save(trace, alive_at(timeline, peak_event(timeline)))


def test_layers_of_a_transformer_and_their_parts():
    trace = traced(llama(device="cuda", batch=16))
    (blocks,) = granularities(saving(trace))
    assert blocks.paths == tuple(f"blocks.{i}" for i in range(len(blocks.paths)))
    second, *parts = selections(trace, blocks)
    assert second.paths == blocks.paths[::2]
    assert {paths.paths[0].rpartition(".")[2] for paths in parts} == {"attention", "feed_forward"}
    assert all(part.nbytes < blocks.nbytes for part in parts)


def test_stages_and_the_blocks_inside_them_are_both_found():
    trace = traced(resnet50(device="cuda"))
    assert any(len(blocks.paths) >= 3 for blocks in saving(trace))


def test_checkpointed_blocks_save_nothing_inside():
    program = llama(device="cuda", batch=16)
    paths = next(repeated(traced(llama(device="cuda")).modules))
    assert not saving(traced(ChangedProgram(program, CheckpointModules(paths))))


def test_containers_and_single_layers_are_no_blocks():
    modules = [("", "Model"), ("layers", "ModuleList"), *((f"layers.{i}", "Linear") for i in range(8))]
    assert not list(repeated(modules))
