"""The declaration of a model that cannot be built: inputs as its names and the code of its constructor say."""

from __future__ import annotations

import pytest

from memlint.base.errors import WorkloadError
from memlint.targets.workload import Workload
from memlint.workloads.declaration_draft import draft

MODEL = """
VOCABULARY = 300

class Stem(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.layer = nn.Conv2d(channels, width, 3)

    def forward(self, x): return self.layer(x)

class Net(nn.Module):
    def __init__(self, encoder: nn.Module, channels=1):
        super().__init__()
        {layers}
        self.encoder = encoder

    def forward(self, {taken}): return self.encoder({taken})
"""


@pytest.mark.parametrize(
    ("layers", "taken", "inputs"),
    [
        ("", "images", "images [batch, 3, 224, 224] float32"),
        ("", "input_ids", "input_ids [batch, 512] int64 below 1000"),
        ("self.stem = nn.Conv2d(channels, 8, 3)", "x", "x [batch, 1, 28, 28] float32"),
        ("self.stem = nn.Sequential(Stem(4, 8), nn.ReLU())", "x", "x [batch, 4, 224, 224] float32"),
        ("self.words = nn.Embedding(VOCABULARY, 8)", "x", "x [batch, 512] int64 below 300"),
        ("self.steps = nn.LSTM(40, encoder.width, batch_first=True)", "x", "x [batch, 512, 40] float32"),
        ("self.layer = nn.Linear(24, encoder.width)", "x", "x [batch, 24] float32"),
    ],
)
def test_inputs_of_a_model_that_cannot_be_built_are_those_of_its_names_and_layers(write, layers, taken, inputs):
    path = write(MODEL.format(layers=layers, taken=taken))
    text = draft(Workload("Net", f"{path}::Net", str(path), "Net"), path.parent, WorkloadError("Net needs encoder"))
    assert f"# Fill in the sizes that your data have: {inputs}\n" in text
    assert "return Net(encoder=...), {" in text
    compile(text, "model.py", "exec")
