"""What a change would save a script is what it saves where it is made in the script."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.script.isolated import needs
from tests.script.running import run_text

RULE = '''
from memlint.lint.rule import Confidence, Severity, TraceRule
from memlint.whatif.changes import AutocastTraining, ChunkedCrossEntropy, OptimizerImplementation, ParameterDtype

class Saves(TraceRule):
    """Says what each change would make of the peak.

    One finding a change, with what tracing it gave.

    ## Why it costs memory

    It does not.

    ## How the saving is computed

    Each is traced.

    ## Known limits

    None.

    - https://docs.pytorch.org/docs/stable/checkpoint.html
    """

    code, name, severity = "ACM001", "saves", Severity.WARNING

    def check(self, context):
        changes = {
            "autocast": AutocastTraining("bfloat16"),
            "dtype": ParameterDtype("bfloat16"),
            "chunks": ChunkedCrossEntropy(8),
            "fused": OptimizerImplementation(foreach=False, fused=True),
        }
        for name, change in changes.items():
            after = context.retrace(change)
            if after is not None:
                peak = after.requested.estimate
                yield self.finding(
                    context, None, name, nbytes=peak, peak_change=-1, fix="", confidence=Confidence.EXACT_RETRACE
                )
'''
MODEL = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.up, self.down = nn.Embedding(9000, 128), nn.Linear(128, 512), nn.Linear(512, 128)
            self.head = nn.Linear(128, 9000, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            x = x + self.down(F.gelu(self.up(x)))
            return HEAD

    def in_chunks(hidden, targets):
        chunks = zip(hidden.flatten(0, 1).chunk(8), targets.flatten().chunk(8))
        sums = [checkpoint(of_chunk, h, t, use_reentrant=False) for h, t in chunks]
        return torch.stack(sums).sum() / targets.numel()

    def of_chunk(hidden, targets):
        return F.cross_entropy(model.head(hidden).float(), targets, reduction="sum")
"""
LOOP = """
    model = Model().cuda()DTYPE
    optimizer = torch.optim.AdamW(model.parameters()FUSED)
    while True:
        tokens = torch.randint(9000, (16, 129), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=AUTOCAST):
            targets = tokens[:, 1:]
            output = model(tokens[:, :-1])
            loss = LOSS
        del output
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
PLAIN = {
    "HEAD": "self.head(x)",
    "DTYPE": "",
    "FUSED": "",
    "AUTOCAST": "False",
    "LOSS": "F.cross_entropy(output.flatten(0, 1), targets.flatten())",
}
EDITS = {
    "autocast": {"AUTOCAST": "True"},
    "dtype": {"DTYPE": ".bfloat16()"},
    "chunks": {"HEAD": "x", "LOSS": "in_chunks(output, targets)"},
    "fused": {"FUSED": ", fused=True"},
}


def text_with(edits: dict[str, str], loop: str = LOOP) -> str:
    """The script with these parts of it instead."""
    text = textwrap.dedent(MODEL) + textwrap.dedent(loop)
    for name, part in (PLAIN | edits).items():
        text = text.replace(name, part)
    return text


def saved(folder: Path, text: str) -> dict[str, int]:
    """The peaks that the changes would give a script."""
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "acm001.py").write_text(RULE)
    settings = {"rule_paths": ("own",), "select": ("ACM001",), "timeout": 300.0}
    report = run_text(folder, text, settings=settings).report
    assert report.workloads[0].error is None, report.workloads[0].error
    return {finding.message: finding.nbytes or 0 for finding in report.findings}


@pytest.mark.slow  # five runs
def test_changes_of_a_loop_save_what_they_save_by_hand(tmp_path: Path) -> None:
    peaks = saved(tmp_path / "plain", text_with({}))
    assert peaks.keys() == EDITS.keys()
    for name, edits in EDITS.items():
        folder = tmp_path / name
        folder.mkdir()
        (workload,) = run_text(folder, text_with(edits)).report.workloads
        assert workload.estimate is not None, workload.error
        by_hand = workload.estimate.peak.requested.estimate
        assert 0 <= peaks[name] - by_hand <= 4, name  # the element that stands for logits


@needs("accelerate", "transformers")
@pytest.mark.slow
@pytest.mark.parametrize("library", ["accelerate", "transformers"])
def test_changes_of_what_libraries_train_are_known(tmp_path: Path, library: str) -> None:
    loops = {
        "accelerate": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model = Model()
            data = torch.utils.data.DataLoader(torch.zeros(64, 129, dtype=torch.int64), 16)
            model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
            for tokens in data:
                output = model(tokens[:, :-1])
                accelerator.backward(F.cross_entropy(output.flatten(0, 1), tokens[:, 1:].flatten()))
                del output
                optimizer.step()
                optimizer.zero_grad()
        """,
        "transformers": """
            from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
            config = GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=9000)
            row = torch.zeros(256, dtype=torch.int64)
            arguments = TrainingArguments("out", per_device_train_batch_size=8, report_to=[], max_steps=4)
            data = [{"input_ids": row, "labels": row}] * 32
            Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data).train()
        """,
    }
    text = text_with({}, loops[library])
    peaks = saved(tmp_path / "plain", text)
    (tmp_path / "again").mkdir()
    (workload,) = run_text(tmp_path / "again", text).report.workloads
    assert workload.estimate is not None
    before = workload.estimate.peak.requested.estimate
    assert {name for name, peak in peaks.items() if peak < before} >= {"autocast", "dtype"}
