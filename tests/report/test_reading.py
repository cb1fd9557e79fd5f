"""A Report that anybody may have written is read in full, or refused with the reason."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memlint.base.errors import TargetError
from memlint.report.formats.json import render_json
from memlint.report.reading import LARGEST, LONGEST, MOST_DEPTH, parse_report, read_report
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import REPORT

DOCUMENT = json.loads(render_json(REPORT))
SMALL = b'{"version": 1, "tool": "memlint 0"}'
FINDING = DOCUMENT["findings"][0]
EVENTS = {"sites": [], "buffer_sites": [], "nbytes": [], "events": [], "stretches": [], "peak": -1}
ONE_EVENT = {
    "sites": [{"category": "other", "op": "aten.add", "dtype": "float32", "shape": [1]}],
    "buffer_sites": [0],
    "nbytes": [512],
    "events": [0],
    "stretches": [{"first": 0, "phase": "forward", "step": 0}],
    "peak": 0,
}


def with_(path: str, value: Any) -> bytes:
    """The sample as JSON, with `value` at the dotted `path`."""
    document = json.loads(json.dumps(DOCUMENT))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = document
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return json.dumps(document).encode()


def zipped(*files: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return data.getvalue()


def field(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """A zip with other bytes in the header that begins with `signature`."""
    start = data.rindex(signature) + offset
    return data[:start] + value + data[start + len(value) :]


def test_what_memlint_writes_reads_back_as_itself(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(render_json(REPORT))
    assert read_report(file) == REPORT


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + SMALL, SMALL + b"\r\n", zipped(("head.json", SMALL))])
def test_a_byte_order_mark_an_empty_line_and_a_zip_of_one_file_are_no_harm(data):
    assert parse_report(data, "head.json").tool == "memlint 0"


BOMB = zipped(("head.json", b"\0" * 64 * 2**20))
REFUSED = {
    "an empty file": (b"", "it is not JSON (line 1, column 1"),
    "half a report": (render_json(REPORT).encode()[:-20], "it is not JSON (line "),
    "lines of JSON": (b"{}\n{}\n", "it is not JSON (line 2, column 1: Extra data)"),
    "a list": (b"[]", "object"),
    "a number": (b"1", "object"),
    "a string": (b'"::set-output name=x::y"', "object"),
    "no version of memlint": (b'{"version": 1}', "tool: Field required"),
    "a version that is a string": (with_("version", "1"), "version: Input should be 1"),
    "UTF-16": (SMALL.decode().encode("utf-16"), "it is UTF-16, as PowerShell writes"),
    "latin-1": (b'{"tool": "\xe9"}', "it is not UTF-8 (byte 10)"),
    "a key twice": (b'{"version": 1, "tool": "a", "tool": "b"}', "has a key twice"),
    "not a number": (b'{"version": 1, "tool": "a", "x": NaN}', "a number that is too large, or none"),
    "infinity": (b'{"version": 1, "tool": "a", "x": [-Infinity]}', "a number that is too large, or none"),
    "a float that becomes infinity": (b'{"version": 1, "tool": "a", "x": 1e999}', "a number that is too large"),
    "a number of 400 digits": (with_("findings.0.nbytes", 10**400), "a number that is too large"),
    "a number of a million digits": (b'{"version": ' + b"1" * 10**6 + b"}", "a number that is too large"),
    "a number in a string": (with_("findings.0.nbytes", "1" * 5000), "findings.0.nbytes: Input should be"),
    "2^63": (with_("findings.0.nbytes", LARGEST + 1), "a number that is too large"),
    "negative bytes": (with_("findings.0.nbytes", -1), "findings.0.nbytes: Input should be greater than or equal to 0"),
    "a negative peak": (with_("workloads.0.estimate.peak.device.low", -5), "should be greater than or equal to 0"),
    "bytes that are half": (with_("findings.0.nbytes", 1.5), "findings.0.nbytes: Input should be a valid integer"),
    "bytes that are true": (with_("findings.0.nbytes", True), "findings.0.nbytes: Input should be a valid integer"),
    "an unknown severity": (with_("findings.0.severity", "<b>"), "findings.0.severity: Input should be 'error', "),
    "an unknown category": (with_("workloads.0.estimate.categories", {"<b>": 1}), "Input should be 'parameter', "),
    "a message that is a list": (with_("findings.0.message", ["a"]), "findings.0.message: Input should be a valid"),
    "a million brackets": (b"[" * 10**6, "more than 32 deep"),
    "a million objects in each other": (b'{"a":' * 10**6, "more than 32 deep"),
    "one too deep": (b'{"x":' + b"[" * MOST_DEPTH + b"]" * MOST_DEPTH + b"}", "more than 32 deep"),
    "50,000 findings": (with_("findings", [FINDING] * 50_000), "a list with more than 25,000 entries"),
    "5,000 workloads": (with_("workloads", [{}] * 5000), "more than 2,000 workloads"),
    "100,000 keys": (with_("x", {str(i): 0 for i in range(10**5)}), "a list with more than 25,000 entries"),
    "a file of 50 MB": (SMALL + b" " * 50 * 10**6, "it is larger than 32.0 MiB"),
    "positions outside of a timeline": (
        with_("workloads.0.timeline", {**EVENTS, "buffer_sites": [7], "nbytes": [1], "events": [0], "peak": 0}),
        "positions in a timeline lie outside",
    ),
    "a timeline that closes what it has not opened": (
        with_("workloads.0.timeline", {**EVENTS, "events": [-1], "peak": 0}),
        "opens or closes what it cannot",
    ),
    "a timeline of no phase": (with_("workloads.0.timeline", {**ONE_EVENT, "stretches": []}), "a timeline lie outside"),
    "a timeline without a peak": (with_("workloads.0.timeline", {**ONE_EVENT, "peak": -1}), "a timeline lie outside"),
    "a course with too few steps": (
        with_("workloads.0.estimate.course", {"nbytes": [1, 2], "phases": ["forward"], "steps": [0]}),
        "as many phases and steps as bytes",
    ),
    "an empty zip": (zipped(), "a zip that holds 0 files"),
    "a zip of two": (zipped(("base.json", SMALL), ("head.json", SMALL)), "a zip that holds 2 files"),
    "a zip of 1,000": (zipped(*((f"{i}.json", SMALL) for i in range(1000))), "a zip that holds many files"),
    "a zip bomb": (BOMB, "it is larger than 32.0 MiB"),
    "a zip bomb that denies it": (
        field(BOMB, b"PK\x01\x02", 24, (1000).to_bytes(4, "little")),
        "a zip that is broken or locked",
    ),
    "a zip in a zip": (zipped(("head.zip", zipped(("head.json", SMALL)))), "it is not"),
    "a zip with a password": (
        field(zipped(("head.json", SMALL)), b"PK\x01\x02", 8, b"\x01\x00"),
        "a zip that is broken or locked",
    ),
    "a zip of another kind": (zipped(("head.json", SMALL), how=zipfile.ZIP_LZMA), "a kind that forges do not write"),
    "half a zip": (zipped(("head.json", SMALL))[:60], "a zip that is broken or locked"),
    "a zip with a wrong checksum": (
        field(zipped(("head.json", SMALL)), b"PK\x01\x02", 16, b"\0\0\0\0"),
        "a zip that is broken or locked",
    ),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_report_is_refused_with_the_reason_and_what_to_do(data, reason, tmp_path):
    file = tmp_path / "head.json"
    file.write_bytes(data)
    with pytest.raises(TargetError) as refused:
        read_report(file)
    assert refused.value.message.startswith(f"{file} is not a memlint report: ")
    assert reason in refused.value.message
    assert refused.value.hint.endswith(".")
    assert len(refused.value.message) < 500


def test_a_report_of_a_later_version_says_to_update():
    with pytest.raises(TargetError, match="a newer memlint wrote it, as version 2 ") as refused:
        parse_report(with_("version", 2), "head.json")
    assert "pip install --upgrade torch-memlint" in refused.value.hint


@pytest.mark.parametrize("name", ["missing.json", "folder", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_clear_error(name, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(TargetError, match="cannot be read: "):
        read_report(tmp_path / name)


@pytest.mark.parametrize("content", ["token=hunter2", '{"token": "hunter2"}', '"hunter2"', '{"version": "hunter2"}'])
def test_a_message_never_quotes_the_file(content, tmp_path):
    """A link in an artifact may lead to any file of the machine that reads it."""
    (tmp_path / "environ").write_text(content)
    (tmp_path / "head.json").symlink_to(tmp_path / "environ")
    with pytest.raises(TargetError) as refused:
        read_report(tmp_path / "head.json")
    assert "hunter2" not in refused.value.message + refused.value.hint


def test_names_in_a_zip_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "head.zip").write_bytes(zipped(("../../etc/cron.d/memlint", SMALL)))
    assert read_report(Path("head.zip")).tool == "memlint 0"
    assert [file.name for file in tmp_path.iterdir()] == ["head.zip"]


def test_a_million_wrong_entries_are_refused_at_the_first():
    data = with_("workloads.0.timeline", {**EVENTS, "sites": [1] * 10**6})
    with pytest.raises(TargetError, match=r"workloads\.0\.timeline\.sites\.0: ") as refused:
        parse_report(data, "head.json")
    assert isinstance(refused.value.__context__, ValidationError)
    assert refused.value.__context__.error_count() == 1


def test_a_timeline_of_200_000_events_is_read():
    number = 100_000
    timeline = {
        **ONE_EVENT,
        "buffer_sites": [0] * number,
        "nbytes": [512] * number,
        "events": [event for buffer in range(number) for event in (buffer, ~buffer)],
    }
    read = parse_report(with_("workloads.0.timeline", timeline), "report.json").workloads[0].timeline
    assert read is not None
    assert len(read.events) == 2 * number


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in (*value, *value.values()) for text in strings(item)]
        case list() | tuple():
            return [text for item in value for text in strings(item)]
    return []


@pytest.mark.parametrize(
    "text", [HOSTILE, "\u3164\u2800\u115f", "a\u202eb\u2066", "\ud800", "\x1b]8;;http://x\x1b\\", "x" * 10**5]
)
def test_every_string_is_one_visible_line_of_bounded_length(text):
    report = parse_report(render_json(hostile(text)).encode(), "head.json")
    found = strings(report.model_dump())
    assert all(part.isprintable() and len(part) <= LONGEST for part in found)
    assert not any(char in part for part in found for char in "\u3164\u2800\u115f\u202e")
    assert report.findings[0].message == report.workloads[0].name


def test_words_that_mean_something_elsewhere_are_left_to_whoever_writes_them():
    text = "</code> @someone ![x](http://x) #1 ::error:: | `x`"
    assert parse_report(render_json(hostile(text)).encode(), "head.json").workloads[0].name == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from([*DOCUMENT, "estimate", "peak"]) | st.text(), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.binary() | JSON.map(lambda value: json.dumps({**DOCUMENT, "workloads": [value], "x": value}).encode()))
def test_whatever_a_file_holds_it_is_read_or_refused(data):
    with suppress(TargetError):
        parse_report(data, "head.json")


ARTIFACT = zipped(("head.json", SMALL))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(ARTIFACT) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_however_a_zip_is_broken_it_is_read_or_refused(changes):
    data = bytearray(ARTIFACT)
    for position, byte in changes:
        data[position] = byte
    with suppress(TargetError):
        assert parse_report(bytes(data), "head.zip").tool
