"""Scripts whose data is not there reach their training loop with data in the form that they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.script.isolated import needs
from tests.script.running import run_script

FOLDER = Path(__file__).with_name("data_readers")
PACKAGES = {
    "csv_tabular": ("pandas", "sklearn"),
    "ratings": ("pandas",),
    "time_series": ("pandas", "sklearn"),
    "audio_folder": ("librosa",),
    "h5_points": ("h5py",),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(file.stem, marks=needs(*PACKAGES.get(file.stem, ()))) for file in sorted(FOLDER.glob("*.py"))],
)
def test_a_script_whose_data_is_not_there_takes_its_own_steps(tmp_path, name):
    (tmp_path / "memlint.toml").touch()
    file = tmp_path / "train.py"
    file.write_text((FOLDER / f"{name}.py").read_text(encoding="utf-8"), encoding="utf-8")
    (workload,) = run_script(file).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error) == ("trained", None)
