"""The Report is strict when written, tolerant when read, and described by the schema in docs."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from memlint.report.formats.json import render_json
from memlint.report.model import Finding, Verdict
from memlint.report.reading import parse_report
from memlint.report.schema import schema_text
from tests.report.sample import REPORT

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"


def test_the_schema_in_docs_is_current():
    assert SCHEMA.read_text() == schema_text(), "run `python -m memlint.report.schema`"


def test_a_report_written_as_json_reads_back_as_itself():
    assert parse_report(render_json(REPORT).encode(), "report.json") == REPORT


def test_json_keeps_to_the_schema():
    jsonschema.validate(json.loads(render_json(REPORT)), json.loads(schema_text()))


def test_the_schema_refuses_what_is_no_report():
    document = json.loads(render_json(REPORT))
    document["workloads"][0]["estimate"]["peak"]["device"] = 5
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(schema_text()))


def test_writing_an_unknown_field_is_an_error():
    with pytest.raises(ValidationError):
        Verdict(outcome="fits", limit=1, limit_name="budget", extra=1)


def test_reading_tolerates_fields_of_later_versions_at_every_depth():
    document = json.loads(render_json(REPORT))
    document["new"] = document["findings"][0]["new"] = document["workloads"][0]["estimate"]["peak"]["new"] = [1]
    assert parse_report(json.dumps(document).encode(), "report.json") == REPORT
    jsonschema.validate(document, json.loads(schema_text()))


def test_the_phase_that_stood_for_prefill_and_decoding_is_still_read():
    document = json.loads(render_json(REPORT))
    document["workloads"][0]["estimate"]["phase_peaks"] = {"generation": 5}
    read = parse_report(json.dumps(document).encode(), "report.json")
    assert read.workloads[0].estimate.phase_peaks == {"generation": 5}


def test_reading_tolerates_that_optional_fields_are_missing():
    assert parse_report(b'{"version": 1, "tool": "memlint 0"}', "report.json").findings == []


@pytest.mark.parametrize("field", ["severity", "confidence"])
def test_words_outside_the_vocabulary_are_refused(field):
    with pytest.raises(ValidationError):
        Finding.model_validate({**REPORT.findings[0].model_dump(), field: "bad"})


def test_the_keys_other_tools_rely_on_are_there():
    document = json.loads(render_json(REPORT))
    assert set(document) >= {"version", "tool", "torch", "settings", "workloads", "findings", "skipped"}
    workload = document["workloads"][0]
    assert set(workload) >= {"name", "target", "mode", "batch", "dtype", "optimizer", "gpu", "assumptions", "estimate"}
    assert set(workload) >= {"sweep", "error"}
    assert set(workload["estimate"]) >= {"peak", "categories", "at_peak"}
    for kind in ("requested", "allocated", "reserved", "device"):
        assert set(workload["estimate"]["peak"][kind]) == {"low", "estimate", "high"}
    assert set(document["findings"][0]) >= {
        *("code", "path", "line", "column", "message", "severity", "confidence", "nbytes", "peak_change", "fix")
    }
