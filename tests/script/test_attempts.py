"""Scripts whose data is not there reach their training loop with data in the form that they ask for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from memlint.script import attempts
from tests.script.isolated import needs
from tests.script.running import run_script, run_text

FOLDER = Path(__file__).with_name("data_readers")
PACKAGES = {
    "caption_tsv": ("PIL",),
    "label_files": ("PIL",),
    "boxes_by_name": ("PIL",),
    "coco_detection": ("PIL",),
    "voc_xml": ("PIL",),
    "csv_tabular": ("pandas", "sklearn"),
    "ratings": ("pandas",),
    "time_series": ("pandas", "sklearn"),
    "audio_folder": ("scipy",),
    "h5_points": ("h5py",),
    "joined_tables": ("pandas",),
    "halved_sides": ("PIL",),
    "listed_in_process": ("pandas", "scipy"),
    "listed_images": ("PIL",),
    "pixel_maps": ("PIL",),
    "views_by_number": ("PIL",),
}
BATCHES = {
    "arrays_of_sides": 6,
    "slides_as_tensors": 22,
    "audio_folder": 16,
    "boxes_by_name": 8,
    "caption_tsv": 16,
    "coco_detection": 4,
    "csv_tabular": 32,
    "delimited_list": 8,
    "h5_points": 32,
    "halved_sides": 2,
    "json_pairs": 8,
    "joined_tables": 16,
    "jsonl_sft": 8,
    "label_files": 16,
    "listed_images": 8,
    "listed_in_process": 12,
    "ner_conll": 32,
    "npz_arrays": 64,
    "numbers_opened": 16,
    "pickle_reviews": 16,
    "pickle_tuple": 16,
    "pixel_maps": 4,
    "protocol_lines": 20,
    "ratings": 64,
    "recordings_of_a_rate": 12,
    "reshaped_record": 24,
    "rows_of_lines": 8,
    "samples_in_place": 20,
    "scene_cameras": 18,
    "series_columns": 16,
    "time_series": 32,
    "two_vocs": 32,
    "users_items": 24,
    "views_by_number": 24,
    "voc_xml": 8,
    "word_map": 8,
}
"""Batch sizes of the scripts' loaders."""
QUICK = (
    *("caption_tsv", "label_files", "jsonl_sft", "ner_conll", "json_pairs", "scene_cameras", "series_columns"),
    *("boxes_by_name", "halved_sides", "delimited_list", "listed_in_process", "pixel_maps", "rows_of_lines"),
    *("numbers_opened", "recordings_of_a_rate", "two_vocs", "views_by_number", "joined_tables", "protocol_lines"),
    *("listed_images", "reshaped_record", "samples_in_place", "users_items", "arrays_of_sides", "slides_as_tensors"),
)
"""Those that stand for the others in each run of the tests."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [needs(*PACKAGES.get(name, ())), *([] if name in QUICK else [pytest.mark.slow])]


@pytest.mark.parametrize(
    "name", [pytest.param(file.stem, marks=_marks(file.stem)) for file in sorted(FOLDER.glob("*.py"))]
)
def test_a_script_whose_data_is_not_there_takes_its_own_steps(tmp_path: Path, name: str) -> None:
    (tmp_path / "memlint.toml").touch()
    file = tmp_path / "train.py"
    file.write_text((FOLDER / f"{name}.py").read_text(encoding="utf-8"), encoding="utf-8")
    (workload,) = run_script(file).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, BATCHES[name])


HANGS = """
import json, time
rows = json.load(open("rows.json"))
print(rows["questions"], "it hangs", flush=True)
time.sleep(300)
"""


@pytest.mark.usefixtures("executed_pythons")  # copies of another process have its folder for temporary files
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends what a killed process leaves")
def test_an_attempt_ends_with_memlint_however_that_ends(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").touch()
    (tmp_path / "train.py").write_text(HANGS, encoding="utf-8")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "memlint", "run", "train.py"], cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}
    )
    deadline = time.monotonic() + 60
    while not any(b"it hangs" in file.read_bytes() for file in scratch.rglob("*") if file.is_file()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started = psutil.Process(running.pid).children(recursive=True)
    running.kill()
    running.wait()
    _, alive = psutil.wait_procs(started, timeout=20)
    for each in alive:
        each.kill()
    assert len(started) > 2, "the script, the copy that waits, and the attempt"
    assert alive == []


def test_a_number_of_a_file_that_is_not_there_is_named_and_not_made_up(tmp_path: Path) -> None:
    text = """
        import json
        from torch import nn
        class Sizes:
            def __init__(self, *, vocab_size, name):
                self.vocab_size = vocab_size + 1
        sizes = Sizes(**json.load(open("data/sizes.json")))
        model = nn.Embedding(sizes.vocab_size, 8).cuda()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert workload.error.hint is not None
    assert "The number 'vocab_size' is read from sizes.json: put the file there" in workload.error.hint


def test_data_that_is_made_up_has_a_whole_batch(tmp_path):
    (tmp_path / "memlint.toml").touch()
    file = tmp_path / "train.py"
    file.write_text("""
import csv
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

rows = list(csv.DictReader(open("houses.csv")))
prices = torch.tensor([float(row["price"]) for row in rows])
data = TensorDataset(torch.randn(len(prices), 32), prices)
train, _rest = random_split(data, [0.5, 0.5])
model = torch.nn.Linear(32, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(train, batch_size=1000, shuffle=True, drop_last=True):
    loss = (model(x.cuda()).squeeze(-1) - y.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    (workload,) = run_script(file).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 1000)


def test_attempts_begin_by_the_time_of_the_processor_on_a_busy_machine(monkeypatch):
    clock = SimpleNamespace(passed=0.0, spent=0.0)
    clock.monotonic, clock.process_time = lambda: clock.passed, lambda: clock.spent
    monkeypatch.setattr(attempts, "time", clock)
    begun = []
    monkeypatch.setattr(attempts.Attempts, "_give_way", lambda _self: begun.append(clock.passed))
    monkeypatch.setattr(attempts, "learned", lambda _error: True)
    monkeypatch.setattr(attempts, "copied", lambda: False)
    tried = attempts.Attempts(lambda: True, lambda: None, 100)
    tried.begin()
    for clock.passed, clock.spent in ((50, 50), (120, 30), (130, 110), (160, 30)):
        tried.fail(KeyError("text"))
    assert begun == [50, 120]


@needs("PIL")
def test_names_that_are_read_as_images_are_no_folders(tmp_path):
    (workload,) = run_text(
        tmp_path,
        """\
        import os
        import torch
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset
        class Images(Dataset):
            def __init__(self, root, masks=None):
                self.paths = [os.path.join(root, name) for name in os.listdir(root)]
                for kind in masks or ():
                    self.masks = [os.path.join(masks, kind, name) for name in os.listdir(os.path.join(masks, kind))]
            def __len__(self):
                return len(self.paths)
            def __getitem__(self, index):
                return torch.tensor(list(Image.open(self.paths[index]).resize((8, 8)).getdata())).float()
        model = torch.nn.Sequential(torch.nn.Linear(3, 3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        validation = Images("data/val")
        for images in DataLoader(Images("data/train"), batch_size=48, shuffle=True):
            model(images.cuda()).sum().backward()
            optimizer.step()
        """,
    ).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 48)


@needs("PIL")
def test_a_folder_that_holds_but_a_note_gives_images_for_a_whole_batch(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text("Put the images here.")
    (workload,) = run_text(
        tmp_path,
        """\
        import os
        import torch
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset
        ENDINGS = [".jpg", ".JPG", ".png"]
        def is_image_file(name):
            return any(name.endswith(ending) for ending in ENDINGS)
        class Images(Dataset):
            def __init__(self, root):
                self.paths = [
                    os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if is_image_file(name)
                ]
                assert self.paths, f"{root} has no valid image file"
            def __len__(self):
                return len(self.paths)
            def __getitem__(self, index):
                return torch.tensor(list(Image.open(self.paths[index]).resize((8, 8)).getdata())).float()
        model = torch.nn.Sequential(torch.nn.Linear(3, 3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for images in DataLoader(Images("data"), batch_size=48, shuffle=True, drop_last=True):
            model(images.cuda()).sum().backward()
            optimizer.step()
        """,
    ).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 48)


@needs("PIL")
def test_all_that_a_folder_holds_gives_a_whole_batch_which_is_not_cut_to_the_files_of_another_attempt(tmp_path):
    (workload,) = run_text(
        tmp_path,
        """\
        import glob, json, os
        import torch
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset
        FORMATS = ["bmp", "jpg"]
        class Images(Dataset):
            def __init__(self, root):
                assert os.path.exists(root), f"{root} is no folder"
                paths = glob.glob(os.path.join(root, "**/*"), recursive=True)
                self.paths = [path for path in paths if path.split(".")[-1].lower() in FORMATS]
                assert self.paths, f"No images found in {root}."
                if os.path.exists("seen.json"):
                    self.paths = json.load(open("seen.json"))["paths"]
                else:
                    json.dump({"paths": self.paths}, open("seen.json", "w"))
            def __len__(self):
                return len(self.paths)
            def __getitem__(self, index):
                return torch.tensor(list(Image.open(self.paths[index]).resize((8, 8)).getdata())).float()
        os.makedirs("runs")
        images = Images("data/train")
        model = torch.nn.Sequential(torch.nn.Linear(3, 3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in DataLoader(images, batch_size=min(40, len(images)), shuffle=True):
            model(batch.cuda()).sum().backward()
            optimizer.step()
        """,
    ).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 40)


@pytest.mark.parametrize("ranks", [None, 4])
def test_the_names_in_annotations_are_those_of_the_list_that_they_are_looked_up_in(tmp_path, ranks):
    text = """
        from xml.etree import ElementTree
        import torch

        classes = ["__background__", "smoke"]

        def labels(path):
            for member in ElementTree.parse(path).getroot().findall("object"):
                yield classes.index(member.find("name").text)

        target = torch.tensor(list(labels("data/annotations/000001.xml")), device="cuda")
        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.nn.functional.cross_entropy(model(torch.rand(len(target), 4, device="cuda")), target).backward()
        optimizer.step()
    """
    [workload] = run_text(tmp_path, text, fake_data=True, ranks=ranks).report.workloads
    assert workload.error is None
    assert workload.batch == 2


@needs("pandas")
def test_a_column_that_becomes_the_index_of_made_up_rows_is_one_of_theirs(tmp_path):
    text = """
        import pandas, torch
        rows = pandas.read_csv("meta.csv").set_index("file_name", drop=False)
        model = torch.nn.Linear(8, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for name in rows["file_name"]:
            model(torch.zeros(4, 8, device="cuda")).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.batch) == ("trained", 4)


@needs("pandas", "PIL")
def test_a_number_of_made_up_rows_that_is_taken_for_a_file_is_the_name_of_one(tmp_path):
    text = """
        import os, pandas, torch
        from pathlib import Path
        from PIL import Image
        rows = pandas.read_csv("truth.csv")
        images, masks = rows.iloc[:, 1].tolist(), rows.iloc[:, 2].tolist()
        model = torch.nn.Linear(8, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for image, mask in zip(images, masks):
            Image.open(os.path.join("data", image)), Image.open(Path("data") / mask)
            model(torch.zeros(4, 8, device="cuda")).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text, fake_data=True).report.workloads
    assert workload.error is None
    assert workload.script is not None
    assert (workload.script.happened, workload.batch) == ("trained", 4)


def test_a_pattern_that_nothing_matches_is_a_cause_of_what_fails_then(tmp_path):
    text = """
        from glob import glob
        from torch.utils.data import DataLoader
        DataLoader(glob("scans/of_nobody/*/*"), shuffle=True)
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert "no file matches scans/of_nobody/*/*" in (workload.error.hint or "")


def test_a_separator_that_a_parameter_has_by_default_is_between_the_columns(tmp_path: Path) -> None:
    text = """
        import torch

        def load(name, split="|"):
            with open(name, encoding="utf-8") as file:
                return [line.strip().split(split) for line in file]

        rows, lines = [], load("files/train.txt")
        for word, path, _kind in lines:
            rows.append((word, path))
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.zeros(len(rows[0]), 4, device="cuda")).sum().backward()
        optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.error, workload.batch) == (None, 2)
    assert any("3 columns, with '|' between them" in each.text for each in workload.assumptions)


def test_two_files_of_one_ending_may_hold_different_things_and_nothing_is_tried_twice(tmp_path):
    """A pickle and a text: asked for by their ending alone, each would take the other's place, without end."""
    (tmp_path / "memlint.toml").touch()
    text = """
        import pickle, torch
        words = pickle.load(open("data/vocab.small", "rb"))
        lines = open("data/corpus.small", encoding="utf-8").read().splitlines()
        model = torch.nn.Linear(8, 2).cuda()
        assert len(words) > 1000 and lines[0]
        model(torch.zeros(16, 8).cuda()).sum().backward()
    """
    (workload,) = run_text(tmp_path, text, "-c", "data/corpus.small").report.workloads
    assert (workload.error, workload.batch) == (None, 16)


@needs("datasets")
def test_a_data_set_has_the_columns_that_its_format_names(tmp_path: Path) -> None:
    text = """
        import torch
        from datasets import load_dataset

        rows = load_dataset("nobody/has-this", split="train").with_format("torch", columns=["query_token", "answer_token"])
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.utils.data.DataLoader(rows, batch_size=8):
            assert set(batch) == {"query_token", "answer_token"}
            model(torch.zeros(8, 4, device="cuda")).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text, fake_data=True).report.workloads
    assert (workload.error, workload.batch) == (None, 8)


@needs("datasets")
def test_a_data_set_has_the_columns_that_options_of_the_command_name(tmp_path: Path) -> None:
    text = """
        import sys
        import torch
        from datasets import load_dataset

        rows = load_dataset("nobody/has-this", split="train")
        assert "text" not in rows.column_names, rows.column_names
        rows = rows.rename_column(sys.argv[2], "text")
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.utils.data.DataLoader(rows, batch_size=8):
            assert {"text", "title"} <= set(batch)
            model(torch.zeros(8, 4, device="cuda")).sum().backward()
            optimizer.step()
    """
    words = ("--text_column_name", "sentence", "--eval_text_column=sentence+title")
    (workload,) = run_text(tmp_path, text, *words, fake_data=True).report.workloads
    assert (workload.error, workload.batch) == (None, 8)


@needs("pandas")
def test_a_table_has_the_columns_that_its_reader_is_told(tmp_path: Path) -> None:
    text = """
        import pandas
        import torch

        indexed = pandas.read_csv("labels.csv", index_col=["Path", "Image Index"])
        chosen = pandas.read_csv("labels.csv", usecols=["Path", "age"])
        assert [*indexed.index.names, *sorted(chosen)] == ["Path", "Image Index", "Path", "age"]
        assert "taken" in pandas.read_csv("labels.csv", parse_dates=["taken"])
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.zeros(8, 4, device="cuda")).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text, fake_data=True).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")


def test_lines_are_checked_to_have_as_many_pieces_as_the_program_says(tmp_path):
    (workload,) = run_text(
        tmp_path,
        """\
        import torch
        SEPARATOR = ";"
        numbers = []
        with open("data/train.csv") as file:
            for line in file.read().splitlines():
                assert len(line.split(SEPARATOR)) == 2
                path, label = line.split(SEPARATOR)
                numbers.append(int(label))
        model = torch.nn.Linear(3, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number in numbers:
            model(torch.zeros(4, 3, device="cuda")).sum().backward()
            optimizer.step()
        """,
    ).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("passed over" in each.text for each in workload.assumptions)


@needs("PIL")
def test_names_of_files_that_are_read_as_numbers_are_numbers(tmp_path):
    (workload,) = run_text(
        tmp_path,
        """\
        import torch
        from pathlib import Path
        from PIL import Image
        frames = sorted(Path("data/frames").iterdir(), key=lambda each: int(each.stem))
        model = torch.nn.Linear(3, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for frame in frames[:4]:
            model(torch.zeros(*Image.open(frame).size, 3, device="cuda")).sum().backward()
            optimizer.step()
        """,
    ).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("passed over" in each.text for each in workload.assumptions)
