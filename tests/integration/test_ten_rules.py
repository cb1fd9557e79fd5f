"""Ten rules on one file: each finds its own, and exact savings are what the corrected file takes less."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memlint.config import Settings
from memlint.worker.protocol import Request

pytestmark = pytest.mark.usefixtures("copied_pythons")

pytest.importorskip("torch")

FILE = Path(__file__).parents[2] / "fixtures" / "rules" / "ten.py"
CORRECTIONS = {
    "MEM101": [
        ("            x = block(x)", "            x = checkpoint(block, x, use_reentrant=False)"),
        ("import memlint\n", "import memlint\nfrom torch.utils.checkpoint import checkpoint\n"),
    ],
    "MEM103": [
        ("        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // 8)\n", ""),
        ("        weights = scores.softmax(-1)", ""),
        ("mixed = weights @ v", "mixed = F.scaled_dot_product_attention(q, k, v)"),
    ],
    "MEM107": [("doubled.tanh())", "doubled.tanh())\n            del doubled")],
    "MEM201": [("nn.Linear(WIDTH, WIDTH)\n        self.blocks", "nn.Linear(WIDTH, WIDTH).requires_grad_(False)\n        self.blocks")],
    "MEM202": [("        self.auxiliary = nn.Linear(4096, 4096)", "")],
    "MEM205": [("set_to_none=False", "")],
    "MEM401": [("total += loss", "total += loss.detach()")],
    "MEM404": [("def evaluate(", "@torch.no_grad()\ndef evaluate(")],
    "MEM405": [("append(model(x))", "append(model(x).cpu())")],
    "MEM601": [("        torch.cuda.empty_cache()", "")],
}  # fmt: skip


def corrected(*codes: str) -> str:
    """The text of the file with the corrections for these rules."""
    text = FILE.read_text()
    for old, new in (edit for code in codes for edit in CORRECTIONS[code]):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def checked(folder: Path, *codes: str) -> dict[str, Any]:
    """The Report of the file with the corrections for these rules."""
    (folder / "ten.py").write_text(corrected(*codes))
    command = [
        sys.executable,
        "-m",
        "memlint",
        "check",
        "ten.py",
        "--no-sweep",
        "--output-format",
        "json",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    assert [workload["error"] for workload in report["workloads"]] == [None], done.stdout
    assert done.returncode == int(bool(report["findings"]))
    return report


def peak(report: dict[str, Any]) -> int:
    return int(report["workloads"][0]["estimate"]["peak"]["requested"]["estimate"])


def peak_of(file: Path, code: str) -> int:
    """The peak of the file with the corrections for one rule, traced in this process, which takes no start."""
    from tests.in_process import analyse

    file.write_text(corrected(code))
    settings = Settings.model_validate({"select": ["MEM010"]})
    request = Request(target=str(file), path=str(file), root=str(file.parent), settings=settings)
    (workload,) = analyse(request).workloads
    assert workload.estimate is not None
    return workload.estimate.peak.requested.estimate


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked(tmp_path_factory.mktemp("ten"))


def test_each_of_ten_rules_finds_its_own_at_its_line(report: dict[str, Any]) -> None:
    named = {
        (code, n) for n, line in enumerate(FILE.read_text().splitlines(), 1) for code in re.findall(r"(MEM\d+):", line)
    }
    assert {code for code, _ in named} == CORRECTIONS.keys()
    assert sorted((finding["code"], finding["line"]) for finding in report["findings"]) == sorted(named)


def test_exact_savings_are_those_of_the_corrected_file(report: dict[str, Any], tmp_path: Path) -> None:
    said = {f["code"]: f["peak_change"] for f in report["findings"] if f["confidence"].startswith("exact")}
    assert said.keys() == {"MEM101", "MEM107", "MEM201", "MEM202"}
    assert said == {code: peak_of(tmp_path / f"without_{code}.py", code) - peak(report) for code in said}


def test_with_all_corrections_made_nothing_is_found(tmp_path: Path) -> None:
    assert checked(tmp_path, *CORRECTIONS)["findings"] == []
