"""Pickles of plain objects: read as Python reads them, and nothing else is."""

import gzip
import io
import pickle
import pickletools
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.base.errors import TargetError
from memlint.capture import plain_pickle
from memlint.capture.plain_pickle import PlainPickleError, read_plain
from memlint.capture.recording import read_recordings


class NoEvents:
    """Takes no event."""

    def take(self, event):
        raise AssertionError(event)

    def taker(self, keys, value):
        raise AssertionError(keys)


TEXTS = st.text(max_size=400)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(TEXTS.filter(lambda key: key != "action"), inner, max_size=6)
    ),
    max_leaves=40,
)


@given(PLAIN, st.sampled_from((2, 3, 4, 5)))
@settings(deadline=None, max_examples=60)
def test_plain_objects_are_what_python_reads(value, protocol):
    assert read_plain(io.BytesIO(pickle.dumps(value, protocol)), NoEvents()) == value


def test_shared_objects_cycles_and_texts_longer_than_a_chunk_are_read(monkeypatch):
    monkeypatch.setattr(plain_pickle, "_CHUNK", 2**17)
    shared = ["once"]
    value = {"a": [shared, shared], "long": "x" * 100_000 + "ü" * 1000, "numbers": list(range(70_000))}
    assert read_plain(io.BytesIO(pickle.dumps(value)), NoEvents()) == value
    cycle: list[object] = []
    cycle.append(cycle)
    found = read_plain(io.BytesIO(pickle.dumps(cycle)), NoEvents())
    assert found[0] is found


class Runs:
    """Unpickling it prints."""

    def __reduce__(self):
        return print, ("it ran",)


def snapshot(**changes):
    block = {"address": 2**30, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 2**30, "total_size": 2**21, "stream": 0, "segment_type": "small"}
    event = {"action": "alloc", "addr": 2**30, "size": 1000, "stream": 0, "frames": []}
    whole = {"segments": [segment | {"blocks": [block]}], "device_traces": [[event]], "allocator_settings": {}}
    for path, value in changes.items():
        at = {"segment": whole["segments"][0], "block": block, "event": event}.get(path.partition("_")[0], whole)
        at[path.partition("_")[2] if at is not whole else path] = value
    return whole


def many_segments(num):
    """Each of `num` references to one segment with `num` references to one block."""
    block = {"address": 1, "size": 512, "requested_size": 1, "state": "inactive"}
    segment = {"device": 0, "address": 1, "total_size": 512, "stream": 0, "blocks": [block] * num}
    return {"segments": [segment] * num, "device_traces": []}


CYCLE: list[object] = []
CYCLE.append(CYCLE)
TEXT = b"X" + struct.pack("<I", 3) + b"abc"
HOSTILE = {
    "reduce": pickle.dumps(Runs()),
    "reduce inside": pickle.dumps({"segments": Runs()}),
    "reduce, protocol 0": pickle.dumps(Runs(), 0),
    "global": b"\x80\x02cos\nsystem\n.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "instance": b"\x80\x02(ios\nsystem\n.",
    "new object": b"\x80\x02)\x81.",
    "build": b"\x80\x02}}b.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent id": b"\x80\x02K\x01Q.",
    "bytes": pickle.dumps(b"abc"),
    "set": pickle.dumps({"segments": {1}}),
    "long number": b"\x80\x02\x8b" + struct.pack("<I", 2**31 - 1) + b"\xff" * 100,
    "number of 80 bits": pickle.dumps({"segments": [], "device_traces": 2**79}),
    "text without end": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc",
    "text of 4 GiB": b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"abc",
    "no text": b"\x80\x02X" + struct.pack("<I", 4) + b"\xff\xfe\xfd\xfc.",
    "marks": b"\x80\x02" + b"(" * 100_000,
    "dicts": b"\x80\x02" + b"}" * 20_000,
    "lists in lists": b"\x80\x02" + b"]" * 20_000 + b"a" * 20_000 + b".",
    "memo": b"\x80\x02N" + b"q\x05",
    "memo without end": b"\x80\x02Nr" + struct.pack("<I", 2**31),
    "reference to nothing": b"\x80\x02h\x07.",
    "empty stack": b"\x80\x02e.",
    "append to a number": b"\x80\x02K\x01K\x02a.",
    "items of a number": b"\x80\x02K\x01(K\x02K\x03u.",
    "odd items": b"\x80\x02}(" + TEXT + b"u.",
    "tuple of nothing": b"\x80\x02\x87.",
    "key is a number": pickle.dumps({1: 2}),
    "key is a list": b"\x80\x02}(]K\x01u.",
    "nothing": b"\x80\x04.",
    "two objects": b"\x80\x04NN.",
    "cut short": pickle.dumps(snapshot())[:-5],
    "list": pickle.dumps(CYCLE),
    "empty": pickle.dumps({}),
    "cycle of segments": pickle.dumps({"segments": CYCLE, "device_traces": []}),
    "cycle of events": pickle.dumps({"segments": [], "device_traces": CYCLE}),
    "cycle of frames": pickle.dumps(snapshot(event_frames=CYCLE)),
    "segments share blocks": pickle.dumps(many_segments(3_000)),
    "event outside": pickle.dumps(snapshot() | {"other": {"action": "alloc", "addr": 1, "size": 1, "stream": 0}}),
    "device without end": pickle.dumps(snapshot(segment_device="all")),
    "size is a text": pickle.dumps(snapshot(event_size="1")),
    "size is a fraction": pickle.dumps(snapshot(event_size=1.5)),
    "size is negative": pickle.dumps(snapshot(event_size=-512)),
    "size is none": pickle.dumps(snapshot(event_size=None)),
    "address of 64 bits": pickle.dumps(snapshot(event_addr=2**63)),
    "action is a list": pickle.dumps(snapshot(event_action=["alloc"])),
    "stream is a dict": pickle.dumps(snapshot(event_stream={})),
    "frames is a number": pickle.dumps(snapshot(event_frames=7)),
    "frame is a text": pickle.dumps(snapshot(event_frames=["main.py"])),
    "line is a text": pickle.dumps(snapshot(event_frames=[{"filename": "main.py", "line": "x", "name": "f"}])),
    "traces are a dict": pickle.dumps(snapshot(device_traces={"0": []})),
    "segment is a text": pickle.dumps(snapshot(segments=["segment"])),
    "blocks are a number": pickle.dumps(snapshot(segment_blocks=3)),
    "block size is a text": pickle.dumps(snapshot(block_size="many")),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_runs_nothing_stays_in_bounds_and_gets_one_message(tmp_path, capsys, name, compressed):
    file = tmp_path / ("snapshot.pickle" + ".gz" * compressed)
    file.write_bytes(gzip.compress(HOSTILE[name]) if compressed else HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(TargetError) as refused:
            read_recordings(file)
        assert tracemalloc.get_traced_memory()[1] < 400 * 2**20
    finally:
        tracemalloc.stop()
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 300
    assert "_dump_snapshot" in refused.value.hint
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("opcode", [bytes([each]) for each in range(256)])
def test_every_opcode_that_is_not_plain_is_refused(opcode):
    """The opcodes are those of pickletools; none may reach a class, a function or the caller's objects."""
    known = pickletools.code2op.get(opcode.decode("latin-1"))
    plain = {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"}
    plain |= {"LONG1", "BINFLOAT", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "PROTO", "FRAME"}
    content = b"\x80\x04" + opcode + b"\0" * 16
    if known is None or known.name not in plain:
        with pytest.raises(PlainPickleError):
            read_plain(io.BytesIO(content), NoEvents())


@pytest.mark.parametrize(
    ("bound", "content"),
    [
        ("_MOST_OBJECTS", pickle.dumps([[] for _ in range(2000)])),
        ("_MOST_ON_STACK", b"\x80\x02(" + b"N" * 5000 + b"t."),
        ("_MOST_MEMO", b"\x80\x04N" + b"\x94" * 5000 + b"."),
        ("_MOST_PLAIN", b"\x80\x04" + (b"\x95" + b"\0" * 8) * 100_000 + b"N."),
        ("MOST_NBYTES", b"\x80\x04" + (b"\x95" + b"\0" * 8) * 100_000 + b"N."),
    ],
)
def test_each_bound_is_kept(monkeypatch, bound, content):
    monkeypatch.setattr(plain_pickle, "_CHUNK", 2**17)
    monkeypatch.setattr(plain_pickle, bound, 1000)
    with pytest.raises(PlainPickleError):
        read_plain(io.BytesIO(content), NoEvents())


def test_a_bomb_of_gzip_is_read_no_further_than_it_makes_sense(tmp_path):
    file = tmp_path / "bomb.pickle.gz"
    with gzip.open(file, "wb") as opened:
        opened.write(b"\x80\x04")
        for _ in range(16):
            opened.write(bytes(2**20))
    assert file.stat().st_size < 2**16
    tracemalloc.start()
    try:
        with pytest.raises(TargetError, match="no snapshot has"):
            read_recordings(file)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_events_written_in_any_protocol_are_the_same(tmp_path, protocol):
    """Most events are matched by a pattern that is learnt from the first ones; Python's reader has no patterns."""
    stacks = [[{"filename": f"m{n}.py", "line": n, "name": "f"}] for n in range(300)]
    events = [
        {"action": action, "addr": 2**46 + 512 * n, "size": (n * n) % 70_000, "stream": n % 3, "time_us": 2**50 + n}
        | ({"frames": stacks[n % 300]} if n % 7 else {})
        | ({"user_metadata": f"step {n}"} if n % 11 == 0 else {})
        for n in range(5000)
        for action in ("alloc", "free_requested", "free_completed")
    ]
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps({"segments": [], "device_traces": [[], events]}, protocol))
    (recording,) = read_recordings(file)
    found = recording.events
    assert recording.device == 1
    assert list(found.addresses) == [event["addr"] for event in events]
    assert list(found.sizes) == [event["size"] for event in events]
    assert list(found.streams) == [event["stream"] for event in events]
    lines = [recording.sites[site].frame.line if site >= 0 else None for site in found.sites]
    assert lines == [event["frames"][0]["line"] if "frames" in event else None for event in events]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_events_with_texts_pairs_and_stacks_of_their_own_are_read_in_bounds(tmp_path, monkeypatch, protocol):
    """As PyTorch from 2.7 on writes them: each event has a text of its own, and its stack may stand in it."""
    frames = [{"filename": f"m{n}.py", "line": n, "name": "f"} for n in range(100)]
    events, blocks = [], []
    for n in range(4000):
        stack = [frames[n % 100], frames[n * 7 % 100]]
        own = {"compile_context": "".join(("N", "/A")), "pool_id": (0 * n, 0), "frames": stack}
        if n % 50 == 0:
            own["compile_context"] = f"{n % 3}/0"
        events += [
            {"action": action, "addr": 2**46 + 512 * n, "size": 512, "stream": 0} | own
            for action in ("alloc", "free_requested", "free_completed")
        ]
        if n % 10 == 0:
            address = 2**46 + 512 * n
            blocks.append({"address": address, "size": 512, "requested_size": 512, "state": "active_allocated"})
            blocks[-1]["frames"] = stack  # written before, in an event
    segment = {"device": 0, "address": 2**46, "total_size": 2**21, "stream": 0, "blocks": blocks}
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps({"device_traces": [events], "segments": [segment]}, protocol))
    monkeypatch.setattr(plain_pickle, "_MOST_OBJECTS", 4000)  # of the frames and blocks alone
    monkeypatch.setattr(plain_pickle, "_MOST_PLAIN", file.stat().st_size // 3)
    (recording,) = read_recordings(file)
    lines = [recording.sites[site].frame.line for site in recording.events.sites]
    assert lines == [event["frames"][0]["line"] for event in events]
    found = [recording.sites[block.site].frame.line for block in recording.segments[0].blocks]
    assert found == [block["frames"][0]["line"] for block in blocks]


JSON = {
    "nested": b"[" * 100_000,
    "text": b'"abc"',
    "no events": b"{}",
    "cut": b'{"events": [[',
    "not a list": b'{"events": 1}',
}


@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_a_history_that_is_none_gets_one_message(tmp_path, content):
    file = tmp_path / "history.json.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(TargetError):
        read_recordings(file)
