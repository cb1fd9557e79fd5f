"""`memlint.check`, `estimate`, `run` and `fit`: what they answer, for models as people hand them over."""

from __future__ import annotations

from pathlib import Path

import pytest

import memlint
from memlint.base.errors import UsageError, WorkloadError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("copied_pythons")

ROOT = Path(__file__).parents[1]


class Model(torch.nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.first = torch.nn.Linear(64, width)
        self.second = torch.nn.Linear(width, 8)

    def forward(self, x, scale=1.0):
        return self.second(self.first(x).relu()) * scale


def requested(result):
    return result.workload.estimate.peak.requested.estimate


def test_an_optimizer_of_the_model_counts_with_its_groups_and_settings():
    model = Model(4096)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    momentum = torch.optim.SGD(
        [{"params": model.first.parameters(), "momentum": 0.9}, {"params": model.second.parameters()}], lr=0.1
    )
    sample = torch.zeros(4, 64)

    def state(optimizer):
        return memlint.estimate(model, sample, optimizer).workload.estimate.categories.get("optimizer_state", 0)

    assert state(sgd) == 0
    assert state(momentum) == 4 * sum(parameter.numel() for parameter in model.first.parameters())
    by_name, by_class = (requested(memlint.estimate(model, sample, each)) for each in ("sgd", torch.optim.SGD))
    assert by_name == by_class == requested(memlint.estimate(model, sample, sgd))
    assert not sgd.state
    assert all(parameter.grad is None and parameter.device.type == "cpu" for parameter in model.parameters())


def test_the_peak_of_the_host_is_that_of_a_real_step():
    from torch.distributed._tools.mem_tracker import MemTracker

    model, sample = Model(4096), torch.randn(512, 64)
    result = memlint.estimate(
        model, {"x": sample}, torch.optim.SGD, loss=lambda output, _inputs: output.sum(), gpu="cpu"
    )
    optimizer = torch.optim.SGD(model.parameters())
    tracker = MemTracker()
    tracker.track_external(model, optimizer, sample)
    with tracker:
        model(sample).sum().backward()
        optimizer.step()
    (peak,) = (sizes["Total"] for sizes in tracker.get_tracker_snapshot("peak").values())
    assert result.peak == pytest.approx(peak, rel=0.01)


def test_another_batch_lengthens_the_sample_and_a_function_builds_without_weights_on_the_host():
    sample = {"x": torch.randn(8, 64), "scale": torch.ones(1)}
    small, large = (memlint.estimate(Model, sample, "sgd", batch=batch) for batch in (8, 4096))
    assert [each.workload.batch for each in (small, large)] == [8, 4096]
    assert requested(large) - requested(small) > 4088 * (64 + 512) * 4
    huge = memlint.estimate(lambda: Model(2**28), torch.zeros(8, 64), "adamw", gpu="h100-80gb")
    assert huge.peak > 2**40 // 8
    assert (huge.fits(), huge.fits("b200")) == (False, False)


def test_whether_it_fits_another_gpu_is_estimated_for_that_gpu():
    result = memlint.estimate(Model(2**20), torch.zeros(8, 64), "adamw", gpu="a100-80gb")
    limits = {gpu: result.fits(gpu) for gpu in ("a100-80gb", "rtx4090", "rtx4060")}
    assert limits["a100-80gb"]
    assert limits == {
        gpu: memlint.estimate(Model(2**20), torch.zeros(8, 64), "adamw", gpu=gpu).fits() for gpu in limits
    }
    with pytest.raises(UsageError, match="no GPU named"):
        result.fits("rtx9999")


def test_a_result_is_a_page_in_a_notebook_and_text_elsewhere():
    result = memlint.estimate(Model(), torch.zeros(8, 64), "sgd", mode="train", dtype=torch.bfloat16)
    assert result.workload.dtype == "bfloat16"
    shown = result._repr_html_()
    assert shown.startswith('<iframe title="memlint" sandbox="allow-scripts" srcdoc="&lt;!')
    assert "Model needs" in shown
    assert "train step, batch 8, bfloat16, sgd" in result.report()
    assert repr(result).startswith("<memlint: Model takes ")


def test_what_cannot_be_estimated_is_a_clear_error():
    with pytest.raises(WorkloadError, match="cannot be multiplied"):
        memlint.estimate(Model(), torch.zeros(2, 3))
    with pytest.raises(UsageError, match="is no optimizer"):
        memlint.estimate(Model(), torch.zeros(8, 64), 3)
    with pytest.raises(UsageError, match="does not have"):
        memlint.estimate(Model(), torch.zeros(8, 64), torch.optim.SGD(Model().parameters()))
    with pytest.raises(UsageError, match="dtype"):
        memlint.estimate(Model(), torch.zeros(8, 64), dtype="fp33")


def test_the_largest_batch_of_a_model_is_that_of_its_file(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n"
        "def memlint_workload(batch):\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 8))\n"
        "    return model, torch.zeros(batch, 64)\n"
    )
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 8))
    handed = memlint.fit(model, torch.zeros(8, 64), "sgd", gpu="rtx4090")
    named = memlint.fit(file, optimizer="sgd", gpu="rtx4090")
    assert handed.batch == named.batch > 8
    assert "largest batch" in named.report()
    with pytest.raises(UsageError, match="says itself"):
        memlint.fit(file, torch.zeros(8, 64))


def test_a_checked_target_has_the_peak_of_the_model_at_hand(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n"
        "def memlint_workload(batch):\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 8))\n"
        "    return model, torch.zeros(batch, 64)\n"
        "def other(): return torch.nn.Linear(8, 8)\n"
    )
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 8))
    named = memlint.check(file, optimizer="sgd", batch=512, gpu="rtx4090")
    handed = memlint.check(model, torch.zeros(512, 64), "sgd", gpu="rtx4090")
    assert requested(named) == requested(handed)
    assert named.fits()
    for result in (named, handed):
        assert result._repr_html_().startswith('<iframe title="memlint"')
    with pytest.raises(UsageError, match="says itself"):
        memlint.check(file, torch.zeros(8, 64))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "settings.py").write_text("size = 3\n")
    with pytest.raises(UsageError, match="has no workloads"):
        memlint.check(tmp_path / "empty")


def test_a_script_that_fails_says_so_where_its_peak_is_asked_for(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise ValueError('no data')\n")
    result = memlint.run([str(script), "--lr", "1"])
    assert "no data" in result.report()
    with pytest.raises(WorkloadError, match="no data"):
        assert result.peak


def test_the_example_in_the_documentation_runs(capsys):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    namespace = {}
    exec(compile(code, "docs/python.md", "exec"), namespace)
    step = namespace["step"]
    assert step.peak > 2**30
    assert step.fits("rtx4090")
    assert capsys.readouterr().out.startswith("TransformerEncoderLayer needs ")
