"""A storage belongs to the stream that was current at its birth; what other streams use is free when they are done."""

from __future__ import annotations

import pytest
import torch

from memlint.accelerator.device import entry_of
from memlint.cuda.session import virtual_device
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate, stream_peaks
from memlint.memory.timeline import Timeline, end_at
from memlint.tracing.recorder import trace_program

MIB = 2**20
A100 = device_named("a100-80gb")


@pytest.fixture
def gpu():
    with virtual_device(A100) as ledger:
        yield ledger


def stream_of(tensor):
    entry = entry_of(tensor)
    return entry.ledger.streams.get(entry.number, 0)


def test_a_tensor_belongs_to_the_stream_it_was_made_on(gpu):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        a = torch.empty(8, device="cuda")
        with second:
            b = a + 1
        c = a + 1
    torch.cuda.set_stream(second)
    d = c.clone()
    assert torch.cuda.current_stream() == second
    torch.cuda.set_stream(torch.cuda.default_stream())
    e = b + 1
    assert [stream_of(t) for t in (a, b, c, d, e)] == [
        *(first.stream_id, second.stream_id, first.stream_id, second.stream_id, 0)
    ]
    assert first != second
    assert 0 not in (first.stream_id, second.stream_id)


def test_a_process_has_32_streams_of_each_priority(gpu):
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert len(set(streams)) == 32
    assert streams[0] == streams[32]
    high = torch.cuda.Stream(priority=-1)
    assert high not in streams
    assert high.priority == -1


PUBLIC = {
    (owner, name): {each for each in dir(getattr(owner, name)) if not each.startswith("_")}
    - {"ipc_handle", "from_ipc_handle"}
    for owner in (torch, torch.cuda)
    for name in ("Stream", "Event")
}
"""What PyTorch's own have, but for handles that another process opens."""


@pytest.mark.parametrize(("owner", "name"), PUBLIC, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.usefixtures("gpu")
def test_streams_and_events_have_what_those_of_pytorch_have(owner, name):
    made = getattr(owner, name)()
    assert PUBLIC[owner, name] - set(dir(made)) == set()


def test_memory_of_one_stream_does_not_serve_another(gpu):
    x = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
    del x
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() == 40 * MIB
    assert torch.cuda.memory_allocated() == y.nbytes
    streams = {block["stream"] for block in torch.cuda.memory_snapshot()}
    assert len(streams) == 2


def test_each_stream_has_a_workspace_of_its_own(gpu):
    a = torch.empty(512, 512, device="cuda")
    a @ a
    before = torch.cuda.memory_allocated()
    with torch.cuda.stream(torch.cuda.Stream()):
        a @ a
    on_stream = torch.cuda.memory_allocated() - before
    a @ a
    assert on_stream == 4096 * 1024 * 2 + 16 * 1024 * 8
    assert torch.cuda.memory_allocated() == before + on_stream


class OnTwoStreams:
    """Makes a tensor on a side stream, lets another use it, drops it and makes the next, with or without waiting."""

    def __init__(self, *, uses: bool, wait: str = "") -> None:
        self.uses, self.wait = uses, wait

    def setup(self) -> None:
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        for _ in range(3):
            with torch.cuda.stream(self.side):
                x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
            if self.uses:
                x.record_stream(torch.cuda.current_stream())
            before = torch.cuda.Event()
            before.record()
            del x
            after = torch.cuda.Event()
            after.record()
            if self.wait == "device":
                torch.cuda.synchronize()
            elif self.wait == "other":
                self.side.synchronize()
            elif self.wait:
                {"before": before, "after": after}[self.wait].synchronize()


def reserved(program, settings=None):
    recorded = trace_program(program, A100)
    return estimate(Timeline.of(recorded.trace), A100, recorded.trace.nodes, settings).reserved


@pytest.mark.parametrize("settings", [None, AllocatorSettings(expandable_segments=True)])
def test_what_another_stream_uses_may_stay_taken_until_the_program_waits(settings):
    def bounds(**options):
        most = reserved(OnTwoStreams(**options), settings)
        return most.low // MIB, most.estimate // MIB, most.high // MIB

    one = bounds(uses=False)
    assert one[2] - one[0] < 30
    assert bounds(uses=True, wait="device") == one
    assert bounds(uses=True, wait="after") == one
    for wait, num_held in (("", 6), ("other", 6), ("before", 2)):  # six are dropped in two steps
        low, likely, high = bounds(uses=True, wait=wait)
        assert (low, likely) == one[:2]
        assert num_held * 30 <= high <= num_held * 40


def test_a_value_that_is_read_waits_for_the_current_stream():
    class Reads(OnTwoStreams):
        def step(self) -> None:
            super().step()
            torch.ones((), device="cuda").item()

    most = reserved(Reads(uses=True))
    assert 3 * 30 * MIB <= most.high < 4 * 30 * MIB  # of one step


@pytest.mark.parametrize("to_gpu", [True, False])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_between_host_and_gpu_waits_for_the_current_stream_unless_it_need_not(to_gpu, pinned):
    class Copies(OnTwoStreams):
        non_blocking = False

        def step(self) -> None:
            super().step()
            source = torch.zeros(MIB) if to_gpu else torch.zeros(MIB, device="cuda")
            source = source.pin_memory() if to_gpu and pinned else source
            copied = source.to("cuda" if to_gpu else "cpu", non_blocking=self.non_blocking)
            assert copied.is_cuda == to_gpu

    class Goes(Copies):
        non_blocking = True

    one, two = reserved(Copies(uses=True)).high, reserved(Goes(uses=True)).high
    assert 3 * 30 * MIB <= one < 4 * 30 * MIB  # what is dropped in one step
    assert 6 * 30 * MIB <= two <= 6 * 40 * MIB  # or in two


def test_foreach_takes_from_the_pool_of_the_current_stream(gpu):
    tensors = [torch.zeros(5 * MIB, device="cuda") for _ in range(3)]
    dropped = [torch.empty_like(each) for each in tensors]
    del dropped
    before = torch.cuda.memory_reserved()
    torch._foreach_mul(tensors, 2.0)
    assert torch.cuda.memory_reserved() == before
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        made = torch._foreach_mul(tensors, 2.0)
        torch._foreach_add_(tensors, made)
    assert {stream_of(each) for each in made} == {side.stream_id}
    assert {stream_of(each) for each in tensors} == {0}
    assert torch.cuda.memory_reserved() - before == 3 * 20 * MIB
    parameters = [torch.nn.Parameter(each) for each in tensors]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    with torch.cuda.stream(side):
        optimizer.step()
    states = [optimizer.state[each][name] for each in parameters for name in ("exp_avg", "exp_avg_sq")]
    assert {stream_of(each) for each in states} == {side.stream_id}


def test_an_edited_timeline_keeps_what_is_held():
    recorded = trace_program(OnTwoStreams(uses=True), A100)
    timeline = Timeline.of(recorded.trace)
    first = min(timeline.streams.held)
    edited = end_at(timeline, {first: timeline.buffers[first].node})
    assert set(edited.streams.held) == set(timeline.streams.held)
    whole = estimate(timeline, A100, recorded.trace.nodes).reserved
    assert estimate(edited, A100, recorded.trace.nodes).reserved.high == whole.high


def test_peaks_of_streams_add_up_to_what_is_reserved():
    recorded = trace_program(OnTwoStreams(uses=False), A100)
    timeline = Timeline.of(recorded.trace)
    for settings in (None, AllocatorSettings(expandable_segments=True)):
        by_stream = stream_peaks(timeline, A100, settings)
        assert len(by_stream) == 1
        assert sum(each[2] for each in by_stream.values()) == reserved(OnTwoStreams(uses=False), settings).estimate


@pytest.mark.parametrize("name", ["a100-80gb", "cpu"])
def test_a_storage_that_is_freed_and_taken_back_counts_while_it_is_there(name):
    class Frees:
        def setup(self) -> None:
            self.device = "cpu" if name == "cpu" else "cuda"

        def step(self) -> None:
            x = torch.empty(4 * MIB, device=self.device)
            storage = x.untyped_storage()
            for nbytes in (0, x.numel() * 4):
                storage.resize_(nbytes)
                assert storage.size() == storage.nbytes() == len(storage) == nbytes
                y = torch.empty(MIB, device=self.device)
                del y

    device = device_named(name)
    trace = trace_program(Frees(), device).trace
    live, course = 0, []
    for event in trace.events[: len(trace.events) // 2]:
        live += trace.buffers[event].nbytes if event >= 0 else -trace.buffers[~event].nbytes
        course.append(live // MIB)
    assert course == [16, 0, 4, 0, 16, 20, 16, 0]
