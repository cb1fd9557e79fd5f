"""The flame graph of the peak."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from hypothesis import given, settings

from memlint.report.exports.speedscope import render_speedscope
from tests.report.exports.samples import MIB, lifetimes_of, step, traces, workload_of

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "speedscope" / "file-format-schema.json").read_text(encoding="utf-8")
)


def document_of(*workloads):
    return json.loads(render_speedscope([lifetimes_of(workload) for workload in workloads]))


def stacks_of(document, number: int = 0) -> list[tuple[list[str], int]]:
    profile, frames = document["profiles"][number], document["shared"]["frames"]
    return [
        ([frames[frame]["name"] for frame in sample], weight)
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
    ]


@given(traces())
@settings(max_examples=25)
def test_the_weights_are_the_peak_and_the_published_schema_is_kept_to(trace):
    workload = workload_of(trace)
    document = document_of(workload)
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    (profile,) = document["profiles"]
    peak = workload.estimate.peak.requested.estimate
    assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"] == peak
    frames = document["shared"]["frames"]
    assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
    assert len({json.dumps(frame) for frame in frames}) == len(frames)


def test_a_stack_is_the_modules_the_line_and_the_tensor():
    stacks = stacks_of(document_of(step()))
    assert stacks == [
        (["(no submodule)", f"parameter aten.op.default uint8[{4 * MIB}]"], 4 * MIB),
        (["blocks", "blocks.0", "model.py:7 forward", f"activation aten.op.default uint8[{8 * MIB}]"], 8 * MIB),
        (["blocks", "blocks.0", "model.py:7 forward", f"activation aten.op.default uint8[{6 * MIB}]"], 6 * MIB),
        (["blocks", "blocks.0", "model.py:7 forward", f"temporary aten.op.default uint8[{3 * MIB}]"], 3 * MIB),
    ]


def test_what_belongs_to_a_parameter_is_in_its_module():
    workload = step()
    named = [
        site.model_copy(update={"name": "exp_avg of layers.0.1.attention.weight", "module": "", "path": None})
        for site in workload.timeline.sites
    ]
    timeline = workload.timeline.model_copy(update={"sites": named})
    stack, _weight = stacks_of(document_of(workload.model_copy(update={"timeline": timeline})))[0]
    assert stack[:-1] == ["layers", "layers.0", "layers.0.1", "attention"]
    assert "exp_avg of layers.0.1.attention.weight" in stack[-1]


def test_several_workloads_are_several_profiles():
    document = document_of(step("A"), step("B"))
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    assert [profile["name"] for profile in document["profiles"]] == [
        "A: requested bytes at the peak",
        "B: requested bytes at the peak",
    ]
    assert stacks_of(document, 0) == stacks_of(document, 1)
