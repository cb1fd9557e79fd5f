from __future__ import annotations

import pytest

from memlint.compare.changes import compare
from memlint.compare.peak_growth import pattern
from tests.compare.samples import GIB, MIB, buffer, line, report, workload


def changes(before, after):
    (change,) = compare(report(before), report(after)).workloads
    return change


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("h.3.attn", "h.*.attn"),
        ("3", "*"),
        ("layers.10", "layers.*"),
        ("down2.conv1", "down2.conv1"),
        ("", ""),
        ("a.1.b.22.c", "a.*.b.*.c"),
    ],
)
def test_repeated_blocks_have_one_name(module, told):
    assert pattern(module) == told


def test_a_line_that_moved_has_not_changed():
    before = workload(lines=[line(GIB, 10, "scores = q @ k"), line(GIB, 12, "y = w @ v")])
    after = workload(lines=[line(GIB, 110, "scores = q @ k"), line(3 * GIB, 112, "y = w @ v")])
    (told,) = changes(before, after).lines
    assert (told.line, told.source, told.base, told.head) == (112, "y = w @ v", GIB, 3 * GIB)


def test_a_line_in_a_renamed_file_is_the_same():
    before = workload(lines=[line(GIB, 10, "scores = q @ k", path="old.py")])
    after = workload(lines=[line(2 * GIB, 10, "scores = q @ k", path="new.py")])
    (told,) = changes(before, after).lines
    assert (told.path, told.base, told.head) == ("new.py", GIB, 2 * GIB)


def test_lines_of_one_text_are_paired_in_order():
    before = workload(
        lines=[line(3 * MIB, 30, "x = x + y"), line(MIB, 10, "x = x + y"), line(2 * MIB, 20, "x = x + y")]
    )
    after = workload(lines=[line(MIB, 11, "x = x + y"), line(9 * MIB, 21, "x = x + y"), line(3 * MIB, 31, "x = x + y")])
    (told,) = changes(before, after).lines
    assert (told.line, told.base, told.head) == (21, 2 * MIB, 9 * MIB)


def test_a_line_that_was_replaced_is_gone_and_another_new():
    before = workload(lines=[line(GIB, 10, "y = sdpa(q, k, v)")])
    after = workload(lines=[line(5 * GIB, 10, "scores = q @ k")])
    new, gone = changes(before, after).lines
    assert (new.source, new.base, new.head) == ("scores = q @ k", 0, 5 * GIB)
    assert (gone.source, gone.base, gone.head) == ("y = sdpa(q, k, v)", GIB, 0)


def test_what_grew_most_comes_first_and_what_shrank_most_last():
    before = workload(categories={"activation": 4 * GIB, "gradient": 3 * GIB, "parameter": GIB, "input": MIB})
    after = workload(categories={"activation": 5 * GIB, "gradient": GIB, "parameter": 9 * GIB, "input": MIB})
    assert [told.category for told in changes(before, after).categories] == ["parameter", "activation", "gradient"]


def test_blocks_that_were_added_are_growth_of_one_module():
    before = workload(modules={"h.0.attn": GIB, "h.1.attn": GIB, "head": GIB})
    after = workload(modules={"h.0.attn": GIB, "h.1.attn": GIB, "h.2.attn": GIB, "head": GIB})
    (told,) = changes(before, after).modules
    assert (told.module, told.base, told.head) == ("h.*.attn", 2 * GIB, 3 * GIB)


def test_buffers_that_are_alike_are_counted_together():
    before = workload(buffers=[buffer(GIB, 10, "h.0"), buffer(GIB, 10, "h.1")], lines=[line(2 * GIB, 10)])
    after = workload(buffers=[buffer(2 * GIB, 15, f"h.{n}") for n in range(3)], lines=[line(6 * GIB, 15)])
    (told,) = changes(before, after).buffers
    assert (told.num_base, told.num_head, told.base, told.head) == (2, 3, 2 * GIB, 6 * GIB)


def test_named_buffers_are_told_by_their_names():
    before = workload(buffers=[buffer(GIB, 1, "wte", "wte.weight"), buffer(GIB, 1, "h.0", "h.0.up.weight")])
    after = workload(buffers=[buffer(2 * GIB, 99, "wte", "wte.weight"), buffer(GIB, 99, "h.0", "h.0.up.weight")])
    (told,) = changes(before, after).buffers
    assert (told.name, told.base, told.head) == ("wte.weight", GIB, 2 * GIB)


def test_what_has_a_name_is_the_same_whichever_kernel_made_it():
    made = buffer(GIB, 1, "up", "up.weight")
    before = workload(buffers=[made, buffer(GIB, 2, "a")])
    after = workload(buffers=[made.model_copy(update={"op": "aten.uniform_.default"}), buffer(GIB, 2, "a")])
    assert changes(before, after).buffers == []


def test_what_has_no_name_is_told_by_its_kernel():
    made = buffer(GIB, 1)
    before, after = workload(buffers=[made]), workload(buffers=[made.model_copy(update={"op": "aten.bmm.default"})])
    assert [(told.op, told.num_base, told.num_head) for told in changes(before, after).buffers] == [
        ("aten.bmm.default", 0, 1),
        ("aten.mm.default", 1, 0),
    ]


def test_buffers_that_one_report_has_no_room_for_are_not_called_new():
    """The base lists two of its hundred Buffers; the smaller ones of head may well have been there."""
    before = workload(buffers=[buffer(8 * MIB, 1, "a"), buffer(4 * MIB, 2, "b")], num_at_peak=100)
    after = workload(buffers=[buffer(9 * MIB, 1, "a"), buffer(4 * MIB, 2, "b"), buffer(2 * MIB, 3, "c")])
    assert [told.module for told in changes(before, after).buffers] == ["a"]
