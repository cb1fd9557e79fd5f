"""The file of a Capture: what is written is what is read, and whatever else stands in a file is refused clearly."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlint
from memlint.base.errors import TargetError
from memlint.capture.capture import Capture, OtherHost, ScriptFacts, StartedProgram, WrittenFile
from memlint.capture.codec import decode, encode, open_capture, save
from memlint.memory.records import (
    Assumption,
    Buffer,
    Category,
    Collective,
    Doubt,
    Frame,
    Geometry,
    Node,
    Phase,
    Streams,
    Trace,
    World,
)
from memlint.targets.script import Happened
from memlint.targets.workload import InputSpec, Workload
from tests.in_process import analysed

ROOT = Path(__file__).parents[2]
FILE = ROOT / "fixtures" / "captures" / "mlp.memlint"

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
places = st.tuples(text, st.integers(0, 10_000), text).map(lambda place: Frame(*place))
frames = st.none() | places | st.builds(lambda own, caller: own._replace(caller=caller), places, places)
numbers = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**62)
geometries = st.lists(
    st.builds(Geometry, st.integers(-1, 50), st.tuples(counts, counts), st.tuples(counts, counts), text), max_size=3
).map(tuple)
phases, categories = st.sampled_from(Phase), st.sampled_from(Category)
nodes = st.builds(Node, counts, text, phases, counts, frames, text, geometries, geometries, counts, st.booleans())
buffers = st.builds(
    Buffer,
    id=counts,
    nbytes=counts,
    shape=st.lists(counts, max_size=3).map(tuple),
    dtype=text,
    category=categories,
    op=text,
    phase=phases,
    step=st.integers(-1, 9),
    frame=frames,
    module=text,
    name=text,
    node=st.integers(-1, 99),
    last_used=st.integers(-1, 99),
    born=counts,
    died=st.none() | counts,
    nonzeros=st.none() | counts,
    is_in_cycle=st.booleans(),
)
collectives = st.builds(
    Collective, counts, text, text, counts, st.booleans(), counts, counts, counts, text, st.tuples(counts, counts),
    st.booleans(),
)  # fmt: skip
assumptions = st.lists(st.builds(Assumption, text, frames, st.booleans()), max_size=3).map(tuple)
scripts = st.none() | st.builds(
    ScriptFacts,
    command=text,
    num_steps=counts,
    happened=st.sampled_from(get_args(Happened)),
    seconds=st.lists(st.floats(0, 1e6), max_size=3).map(tuple),
    ending=text,
    goes_on=st.booleans(),
    evaluations=counts,
    remembered=counts,
    writes=st.lists(st.builds(WrittenFile, text, st.none() | counts, frames), max_size=2).map(tuple),
    connections=st.lists(st.builds(OtherHost, text, frames), max_size=2).map(tuple),
    programs=st.lists(st.builds(StartedProgram, text, st.booleans(), frames), max_size=2).map(tuple),
    not_guarded=st.lists(text, max_size=2).map(tuple),
    error=st.none() | st.tuples(text, text, st.lists(text, max_size=2).map(tuple)),
    stop=st.none() | st.tuples(text, text, st.lists(text, max_size=2).map(tuple)),
    lacks_data=st.booleans(),
    own=st.lists(text, max_size=2).map(tuple),
    frees_later=st.booleans(),
)


@st.composite
def captures(draw):
    """Any Capture, numbered as a Trace is."""
    some_nodes = [each._replace(index=n) for n, each in enumerate(draw(st.lists(nodes, max_size=4)))]
    some_buffers = [each._replace(id=n) for n, each in enumerate(draw(st.lists(buffers, max_size=4)))]
    trace = Trace(
        nodes=tuple(some_nodes),
        buffers=tuple(some_buffers),
        events=tuple(draw(st.lists(numbers, max_size=5))),
        event_nodes=tuple(draw(st.lists(numbers, max_size=5))),
        num_steps=draw(counts),
        step_nodes=tuple(draw(st.lists(counts, max_size=3))),
        assumptions=draw(assumptions),
        modules=tuple(draw(st.lists(st.tuples(text, text), max_size=3))),
        torch=draw(text),
        device=draw(text),
        doubts=tuple(draw(st.lists(st.builds(Doubt, counts, counts, counts), max_size=2))),
        streams=Streams(
            draw(st.dictionaries(counts, counts, max_size=3)),
            draw(st.dictionaries(counts, counts, max_size=3)),
            draw(st.none() | counts),
            draw(st.booleans()),
            tuple(draw(st.lists(counts, max_size=3))),
        ),
        collectives=tuple(draw(st.lists(collectives, max_size=2))),
        world=draw(st.none() | st.builds(World, counts, counts, st.booleans())),
        trained=tuple(draw(st.lists(st.frozensets(counts, max_size=3), max_size=2))),
        with_gradient=draw(st.frozensets(counts, max_size=3)),
        switches=tuple(draw(st.lists(st.tuples(text, text), max_size=2))),
        reads_allocator=draw(st.booleans()),
        seeded=draw(st.frozensets(text, max_size=3)),
        without_overload=draw(st.frozensets(text, max_size=3)),
        graph_breaks=tuple(draw(st.lists(places, max_size=2))),
    )
    workload = Workload(
        name=draw(text),
        target=draw(text),
        batch=draw(st.integers(1, 1000)),
        mode=draw(st.sampled_from(["train", "inference"])),
        inputs=draw(
            st.none()
            | st.just((InputSpec("x", ("batch", 3), "int64", high=7, runs=((1, 2),)), InputSpec.constant("k", "v")))
        ),
        dimensions=draw(st.just({}) | st.just({"seq": 7})),
        assumed=draw(st.frozensets(st.sampled_from(["batch", "dtype"]))),
    )
    return Capture(
        workload=workload,
        trace=trace,
        optimizer=draw(st.none() | text),
        assumptions=draw(assumptions),
        assumed=draw(st.frozensets(text, max_size=2)),
        guessed=draw(text),
        loads_everything=draw(st.booleans()),
        script=draw(scripts),
    )


@settings(max_examples=60, deadline=None)
@given(captures())
def test_what_is_written_is_what_is_read(capture):
    assert decode(encode(capture)) == capture


def test_a_traced_model_is_the_same_after_its_file(tmp_path):
    path = str(ROOT / "fixtures/models/mlp.py")
    capture = analysed(Workload("MLP", "mlp.py::MLP", path=path, qualname="MLP"), ROOT).capture
    save(capture, tmp_path / "step.memlint")
    read = open_capture(tmp_path / "step.memlint")
    assert read == capture
    assert read.device == capture.device


def test_a_file_of_the_first_version_is_read():
    capture = memlint.open(FILE)
    assert (capture.workload.name, capture.workload.batch, capture.optimizer) == ("MLP", 8, "adamw")
    assert sum(b.nbytes for b in capture.trace.buffers if b.category is Category.PARAMETER) == 4 * capture_parameters()


def capture_parameters() -> int:
    """Parameters of fixtures/models/mlp.py, from its layers."""
    import runpy

    model = runpy.run_path(str(ROOT / "fixtures/models/mlp.py"))["MLP"]()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("length", [0, 3, 8, 12, 16, 40, 400, -1])
def test_a_file_that_was_cut_off_is_refused_with_what_to_do(tmp_path, length):
    file = tmp_path / "cut.memlint"
    file.write_bytes(FILE.read_bytes()[:length])
    with pytest.raises(TargetError, match=r"cut\.memlint") as refused:
        open_capture(file)
    assert "memlint capture" in refused.value.hint


def test_a_file_of_a_later_version_is_refused_by_its_version(tmp_path):
    content = FILE.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[16 : 16 + length])
    changed = json.dumps({**header, "version": 99}).encode()
    (tmp_path / "later.memlint").write_bytes(content[:8] + len(changed).to_bytes(8, "little") + changed)
    with pytest.raises(TargetError, match="version 99"):
        open_capture(tmp_path / "later.memlint")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=40))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(position, damage):
    content = FILE.read_bytes()
    position %= len(content)
    with suppress(TargetError):
        decode(content[:position] + damage + content[position + len(damage) :])


def test_other_settings_of_the_allocator_are_said_to_be_a_guess_where_the_program_asks_for_its_figures():
    capture = memlint.open(FILE)
    assert capture.with_allocator("expandable_segments:True").assumptions == capture.assumptions
    asking = replace(capture, trace=replace(capture.trace, reads_allocator=True))
    (said,) = set(asking.with_allocator("expandable_segments:True").assumptions) - set(capture.assumptions)
    assert "run it with them" in said.text
    assert asking.with_allocator(capture.workload.allocator).assumptions == capture.assumptions
