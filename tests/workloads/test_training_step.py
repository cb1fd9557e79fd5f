"""A module that has a training step and no forward is traced through that step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch import nn

from memlint.commands.analyse.description import described
from memlint.workloads.construction.training_step import calls_training_step
from memlint.workloads.discover import find_workloads
from tests.in_process import analysed
from tests.script.isolated import needs

if TYPE_CHECKING:
    from pathlib import Path

CLASSIFIER = """
import {package} as lightning
import torch
from torch import nn
from torch.nn import functional as F


class Classifier(lightning.LightningModule):
    def __init__(self, hidden=4096):
        super().__init__()
        self.save_hyperparameters()
        self.first = nn.Linear(784, hidden)
        self.last = nn.Linear(hidden, 10)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.last(torch.relu(self.first(x.view(x.size(0), -1))))
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        return {{"loss": loss}}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]
"""
NUM_PARAMETERS = 784 * 4096 + 4096 + 4096 * 10 + 10


@pytest.mark.parametrize(
    "package", [pytest.param(each, marks=needs(each)) for each in ("lightning", "pytorch_lightning")]
)
def test_a_lightning_module_without_forward_takes_its_own_step_and_optimizer(tmp_path: Path, package: str) -> None:
    file = tmp_path / f"classifier_of_{package}.py"
    file.write_text(CLASSIFIER.format(package=package))
    (workload,) = find_workloads(str(file), tmp_path).workloads
    analysis = analysed(workload, tmp_path)
    reported = described(analysis, None)
    assert reported.optimizer == "sgd"
    assert analysis.estimate.categories["optimizer_state"] == 4 * NUM_PARAMETERS  # the momentum
    texts = [each.text for each in reported.assumptions]
    assert "Classifier has no forward: a step is its training_step" in texts
    assert "batch 8, dtype float32: memlint's own, as nothing was found that sets them for this model" in texts
    assert "input batch.1 [batch] int64 below 10 (the model runs with it)" in texts
    assert not any("mean of the model's outputs" in text for text in texts)


class Stepping(nn.Module):
    def training_step(self, batch):
        return batch.sum()


class Both(Stepping):
    def forward(self, x):
        return x


class Neither(nn.Module):
    pass


def test_only_a_step_without_a_forward_takes_its_place() -> None:
    assert [calls_training_step(kind()) for kind in (Stepping, Both, Neither)] == [True, False, False]
    assert calls_training_step(Stepping())  # as before
    assert Both()(3) == 3
