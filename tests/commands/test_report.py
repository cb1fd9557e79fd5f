"""`memlint report`: what it reads, makes, writes where, and refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

import memlint.commands.check.check
from memlint import cli
from memlint.report.exports import EXPORTS, SUFFIXES
from memlint.report.formats import FORMATS
from memlint.report.formats.json import render_json
from memlint.report.model import Report, Settings, Skipped
from memlint.report.workloads import merged
from tests.report.exports.samples import step
from tests.report.sample import REPORT

pytestmark = pytest.mark.usefixtures("copied_pythons")

PICTURES = ("html", *EXPORTS)
GPT = step("GPT")
UNET = step("UNet")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def memlint_report(*arguments: str, **options):
    return CliRunner().invoke(cli.main, ["report", *arguments], **options)


def write(name: str, *workloads, **fields) -> str:
    report = Report(tool="memlint 0", workloads=list(workloads), **fields)
    Path(name).write_text(render_json(report), encoding="utf-8")
    return name


@pytest.fixture
def analysed(monkeypatch):
    """What check is asked for, with an answer that is no analysis."""
    asked = []

    class Run:
        workloads = (GPT,)

        @property
        def report(self):
            return Report(tool="memlint 0", workloads=list(self.workloads))

    def check(targets, settings, options, _on_wait):
        asked.append(
            (tuple(targets), {k: v for k, v in settings.items() if v is not None}, options.timeline, options.sweep)
        )
        return Run()

    monkeypatch.setattr(memlint.commands.check.check, "check", check)
    asked_of = Run
    return asked, asked_of


@pytest.mark.parametrize("form", PICTURES)
def test_a_picture_is_a_file_named_after_the_report(form):
    done = memlint_report(write("gpt.json", GPT), "--format", form)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"Wrote gpt{SUFFIXES[form]}\n")
    assert Path(f"gpt{SUFFIXES[form]}").stat().st_size > 100


@pytest.mark.parametrize("form", ["text", *FORMATS])
def test_other_formats_are_printed_or_written(form):
    Path("r.json").write_text(render_json(REPORT), encoding="utf-8")
    printed = memlint_report("r.json", "--format", form)
    assert printed.exit_code == 0
    assert "MEM107" in printed.stdout
    written = memlint_report("r.json", "--format", form, "-o", "report")
    assert (written.exit_code, written.stdout) == (0, "")
    assert Path("report").read_text(encoding="utf-8") == printed.stdout


def test_json_gives_back_the_report():
    Path("r.json").write_text(render_json(REPORT), encoding="utf-8")
    assert Report.model_validate_json(memlint_report("r.json", "--format", "json").stdout) == REPORT


def test_a_page_is_made_unless_something_else_is_asked_for():
    assert memlint_report(write("gpt.json", GPT)).stderr == "Wrote gpt.html\n"
    assert Path("gpt.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_a_file_that_is_there_is_kept_unless_it_was_named_or_forced():
    write("gpt.json", GPT)
    Path("gpt.pickle").write_text("mine")
    refused = memlint_report("gpt.json", "--format", "memviz")
    assert refused.exit_code == 2
    assert "gpt.pickle is there already" in refused.stderr
    assert "--force" in refused.stderr
    assert Path("gpt.pickle").read_text() == "mine"
    assert memlint_report("gpt.json", "--format", "memviz", "--force").exit_code == 0
    assert Path("gpt.pickle").read_bytes() != b"mine"
    Path("named").write_text("mine")
    assert memlint_report("gpt.json", "--format", "memviz", "-o", "named").exit_code == 0
    assert Path("named").read_bytes() == Path("gpt.pickle").read_bytes()


def test_a_report_comes_from_stdin():
    done = memlint_report("-", "--format", "speedscope", input=render_json(Report(tool="memlint 0", workloads=[GPT])))
    assert (done.exit_code, done.stderr) == (0, "Wrote memlint.speedscope.json\n")


def test_several_reports_are_one_picture():
    done = memlint_report(write("a.json", GPT), write("b.json", UNET), "--format", "memviz")
    assert done.stderr == "Wrote memlint.pickle: device 0 is GPT, device 1 is UNet\n"
    assert len(pickle.loads(Path("memlint.pickle").read_bytes())["device_traces"]) == 2


@pytest.mark.parametrize("name", ["UNet", "model.py::UNet"])
def test_one_workload_can_be_picked(name):
    write("both.json", GPT, UNET)
    memlint_report("both.json", "--workload", name, "--format", "speedscope")
    document = json.loads(Path("both.speedscope.json").read_text())
    assert [profile["name"] for profile in document["profiles"]] == ["UNet: requested bytes at the peak"]


def test_a_workload_that_is_not_there_is_told_with_one_that_is():
    done = memlint_report(write("both.json", GPT, UNET), "--workload", "Unet")
    assert done.exit_code == 2
    assert "there is no workload Unet" in done.stderr
    assert "Did you mean UNet?" in done.stderr


@pytest.mark.parametrize("form", EXPORTS)
def test_without_a_timeline_it_says_what_to_type(form):
    done = memlint_report(write("gpt.json", GPT.model_copy(update={"timeline": None})), "--format", form)
    assert done.exit_code == 2
    assert f"GPT has no timeline, which {form} is made of" in done.stderr
    assert "memlint check model.py::GPT --timeline --output-format json -o report.json" in done.stderr
    assert not Path(f"gpt{SUFFIXES[form]}").exists()


@pytest.mark.parametrize("form", EXPORTS)
def test_what_could_not_be_analysed_is_told_and_left_out(form):
    failed = REPORT.workloads[1]
    done = memlint_report(write("r.json", failed, GPT), "--format", form)
    assert done.exit_code == 0
    assert "UNet cannot be built" in done.stderr
    nothing = memlint_report(write("none.json", failed), "--format", form)
    assert nothing.exit_code == 2
    assert f"there is no estimate that {form} could show" in nothing.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "r.json is not a memlint report: it is not JSON"),
        (b"[]", "r.json is not a memlint report"),
        (b'{"tool": "memlint 9", "version": 9}', "a newer memlint wrote it"),
        (b'{"tool": "memlint 0", "workloads": [{"name": 1}]}', "r.json is not a memlint report"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b"[" * 100_000, "r.json is not a memlint report"),
    ],
    ids=["empty", "list", "newer", "wrong", "utf16", "deep"],
)
@pytest.mark.parametrize("form", ["html", "memviz", "json"])
def test_a_file_that_is_no_report_is_a_clear_error(content, said, form):
    Path("r.json").write_bytes(content)
    done = memlint_report("r.json", "--format", form)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not list(Path().glob("r.[!j]*"))


def test_a_broken_timeline_is_a_clear_error():
    broken = GPT.model_copy(update={"timeline": GPT.timeline.model_copy(update={"events": [0, 0]})})
    for form in EXPORTS:
        done = memlint_report(write("r.json", broken), "--format", form)
        assert done.exit_code == 2
        assert "r.json is not a memlint report: workloads.0.timeline: " in done.stderr


def test_a_target_is_analysed_with_what_the_format_shows(analysed):
    asked, _run = analysed
    Path("gpt.py").touch()
    done = memlint_report("gpt.py::GPT", "--batch", "4", "--dim", "seq=8", "--format", "perfetto")
    assert (done.exit_code, done.stderr) == (0, "Wrote gpt.perfetto.json\n")
    memlint_report("gpt.py", "--dtype", "bf16-amp", "--gpu", "h100")
    memlint_report("gpt.py", "--format", "concise")
    assert asked == [
        (("gpt.py::GPT",), {"batch": 4, "dimensions": {"seq": 8}}, True, False),
        (("gpt.py",), {"dtype": "bf16-amp", "gpu": "h100"}, True, True),
        (("gpt.py",), {}, False, True),
    ]


def test_targets_and_reports_are_one_report(analysed):
    asked, _run = analysed
    Path("config.json").write_text('{"model_type": "gpt2"}')
    Path("gpt.py").touch()
    done = memlint_report("gpt.py", write("unet.json", UNET), "config.json", "--format", "memviz")
    assert done.stderr == "Wrote memlint.pickle: device 0 is GPT, device 1 is UNet\n"
    assert [targets for targets, *_ in asked] == [("gpt.py", "config.json")]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("models/gpt.py::GPT", "gpt.html"),
        ("models/config.json", "models.html"),
        ("models", "models.html"),
        ("transformers::LlamaConfig", "LlamaConfig.html"),
    ],
)
def test_a_picture_is_named_after_the_target(analysed, target, name):
    Path("models").mkdir()
    Path("models/gpt.py").touch()
    Path("models/config.json").write_text("{}")
    assert memlint_report(target).stderr == f"Wrote {name}\n"


def test_a_target_that_cannot_be_analysed_is_status_2(analysed):
    _asked, run = analysed
    run.workloads = (REPORT.workloads[1],)
    Path("unet.py").touch()
    done = memlint_report("unet.py")
    assert done.exit_code == 2
    assert "UNet cannot be built" in done.stderr
    assert Path("unet.html").exists()


def test_a_target_that_is_not_there_is_status_2():
    done = memlint_report("nope.py")
    assert done.exit_code == 2
    assert "nope.py does not exist" in done.stderr


@pytest.mark.parametrize("option", [("--batch", "4"), ("--dim", "seq=8"), ("--gpu", "h100")])
def test_options_of_a_target_are_refused_where_there_is_none(option):
    done = memlint_report(write("gpt.json", GPT), *option)
    assert done.exit_code == 2
    assert f"{option[0]} changes nothing in a report that is written already" in done.stderr


def test_a_place_that_cannot_be_written_to_is_a_clear_error():
    done = memlint_report(write("gpt.json", GPT), "--format", "memviz", "-o", "no/where")
    assert done.exit_code == 2
    assert "cannot be written: No such file or directory" in done.stderr


def test_what_reports_say_alike_is_said_once():
    other = REPORT.model_copy(update={"workloads": [GPT], "torch": "2.10.0", "settings": Settings(batch=4)})
    both = merged([REPORT, other])
    assert [workload.name for workload in both.workloads] == ["GPT2", "models/unet.py", "GPT"]
    assert both.findings == REPORT.findings
    assert both.skipped == REPORT.skipped
    assert (both.tool, both.torch, both.settings) == (REPORT.tool, "2.13.0, 2.10.0", Settings())
    more = other.model_copy(update={"skipped": [Skipped(reason="new")], "settings": REPORT.settings})
    assert merged([REPORT, more]).skipped == [*REPORT.skipped, Skipped(reason="new")]


def test_a_model_becomes_every_picture_for_other_programs():
    pytest.importorskip("torch")
    model = Path(__file__).parents[2] / "fixtures" / "models" / "mlp.py"
    Path("mlp.py").write_text(model.read_text(encoding="utf-8"), encoding="utf-8")
    for form in EXPORTS:
        done = memlint_report("mlp.py", "--batch", "2", "--format", form)
        assert (done.exit_code, done.stderr) == (0, f"Wrote mlp{SUFFIXES[form]}\n")
