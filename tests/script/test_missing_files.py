"""Files and folders that a script opens, lists or looks for, and that are not there."""

import textwrap

import pytest

from tests.script.isolated import needs, run

READS = {  # a statement, what it prints, and what the report says
    "np.load('tokens/shard_0.npy').shape": ("(16777216,)", "the file tokens/shard_0.npy is not there: replaced by 16,777,216 zeros"),
    "np.memmap('a.bin', dtype=np.uint16, mode='r').shape": ("(16777216,)", "the file a.bin is not there: replaced by 16,777,216 zeros"),
    "np.memmap('b.npy', dtype='f4', shape=(30, 400)).shape": ("(30, 400)", "the file b.npy is not there: replaced by 12,000 zeros"),
    "np.fromfile('raw/c.bin', dtype=np.int32, count=5).shape": ("(5,)", "the file raw/c.bin is not there: replaced by 16,777,216 zeros"),
    "sorted(set(open('input.txt').read()) >= set('Aaz,.\\n '))": None,
    "len(open('files.txt').read().splitlines())": ("4096", "the file files.txt is not there: replaced by 4,096 lines of 16 random words"),
    "list(json.load(open('data.json'))[0])": ("['image', 'label', 'images']", "the file data.json is not there: replaced by 256 rows with image, label, images"),
    "len([json.loads(line) for line in open('data.jsonl')])": ("256", "the file data.jsonl is not there: replaced by 256 rows with image, label, images"),
    "len(list(csv.DictReader(open('train.csv'))))": ("256", "the file train.csv is not there: replaced by 256 rows with image, label, images"),
    "pickle.load(open('rows.pkl', 'rb'))['image'].shape": ("(224, 224, 3)", "the file rows.pkl is not there: replaced by values that go by their names"),
    "np.load('slice.npz')['label'].dtype": ("int64", "the file slice.npz is not there: replaced by values that go by their names"),
    "torch.load('data/processed/train.pt')['image'].dtype": ("torch.float32", "the file data/processed/train.pt is not there: replaced by values that go by their names"),
    "open('body.off').readline().strip()": ("OFF", "the file body.off is not there: replaced by a mesh of 5,042 vertices and 10,080 triangles"),
    "len(list(Path('images').glob('*.png')))": ("8", "no file matches images/*.png: replaced by 8 such as 000000.png"),
    "sorted(glob.glob('fineweb/train_*.npy'))[0]": ("fineweb/train_000000.npy", "no file matches fineweb/train_*.npy: replaced by 8 such as train_000000.npy"),
}  # fmt: skip
IMPORTS = "import csv, glob, json, os, pickle\nfrom pathlib import Path\nimport numpy as np\nimport torch\n"


def test_files_are_made_by_their_names_and_readers(tmp_path):
    reads = {read: shown for read, shown in READS.items() if shown}
    ran = run(tmp_path / "p", IMPORTS + "".join(f"print({read})\n" for read in reads), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [shown for shown, _ in reads.values()]
    assert ran.assumptions == {text: 5 + i for i, (_, text) in enumerate(reads.values())}
    assert not ran.writes


@pytest.mark.parametrize(
    ("first", "name"), [pytest.param("torchvision", "dog", marks=needs("torchvision")), ("re", "class 16")]
)
def test_classes_of_coco_have_the_names_that_torchvision_knows(tmp_path, first, name):
    text = f"""\
        import {first}, json
        held = json.load(open("data/annotations/instances_train2017.json"))
        print(len(held["annotations"]) > 0, held["categories"][16]["name"])
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout == f"True {name}\n"


def test_a_pointer_of_git_lfs_is_a_file_that_is_not_there(tmp_path):
    (tmp_path / "p" / "log" / "scratch_weights").mkdir(parents=True)
    (tmp_path / "p" / ".gitattributes").write_text("*.pth filter=lfs -text\n/train.npy filter=lfs -text\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 178067890\n"
    for name in ("weights.pth", "train.npy", "log/scratch_weights/epoch.0180.pth"):
        (tmp_path / "p" / name).write_text(pointer)
    text = """\
        import os
        import numpy as np
        import torch
        print(os.path.exists("weights.pth"), os.listdir("log/scratch_weights"))
        print(np.load("train.npy").dtype)
        torch.nn.Linear(4, 3).load_state_dict(torch.load("weights.pth"))
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout == "False []\nuint16\n"
    said = "the checkpoint weights.pth is not there: the weights stay as they were initialized"
    assert said in ran.assumptions
    assert not ran.writes


def test_a_file_that_the_project_has_in_another_folder_is_that_one(tmp_path):
    (tmp_path / "p" / "data").mkdir(parents=True)
    (tmp_path / "p" / "data" / "vocabulary.txt").write_text("one\ntwo\n")
    for folder in ("first", "second"):
        (tmp_path / "p" / folder).mkdir()
        (tmp_path / "p" / folder / "lines.txt").write_text("1\n")
    text = """\
        print(open(".data/words/vocabulary.txt").read().split(), len(open(".data/words/lines.txt").readlines()) > 1)
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert ran.stdout == "['one', 'two'] True\n"
    said = "the file .data/words/vocabulary.txt is not there: replaced by data/vocabulary.txt"
    assert said in ran.assumptions


def test_a_short_example_that_stands_for_data_has_as_many_rows_as_data_that_is_made_up(tmp_path):
    (tmp_path / "p" / "samples").mkdir(parents=True)
    (tmp_path / "p" / "samples" / "train.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    text = """\
        import json
        rows = [json.loads(line)["a"] for line in open("data/train.jsonl")]
        print(len(rows), rows[:4])
    """
    assert run(tmp_path / "p", text, fake=True).stdout == "256 [1, 2, 1, 2]\n"


def test_a_vocabulary_has_as_many_words_as_one_of_a_text(tmp_path):
    text = """\
        import pickle
        print(len(pickle.load(open("data/vocab.pkl", "rb"))), len(pickle.load(open("data/rows.pkl", "rb"))))
    """
    assert run(tmp_path / "p", text, fake=True).stdout == "33278 256\n"


def test_points_have_three_coordinates_and_one_class(tmp_path):
    text = """\
        import numpy as np
        print(*(np.loadtxt(f"chairs/{name}").shape for name in ("1.pts", "1.seg")))
    """
    assert run(tmp_path / "p", text, fake=True).stdout == "(4096, 3) (4096,)\n"


def test_series_and_the_matrix_of_sensors_have_the_number_that_the_script_says(tmp_path):
    text = """\
        import numpy as np
        num_nodes, input_dim = 207, 2
        print(np.load("data/roads_adj.npy").shape)
        roads = np.load("data/roads.npz")
        print(roads["data"].shape, float(roads["std"]))
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert (ran.error, ran.stdout.splitlines()) == (None, ["(207, 207)", "(4096, 207, 2) 1.0"])


@pytest.mark.parametrize(
    ("read", "wants"),
    [
        ("np.load('data/train.npy')", "the file data/train.npy"),
        ("np.fromfile('data/train.bin', dtype=np.uint16)", "the file data/train.bin"),
        ("open('input.txt')", "the file input.txt"),
        ("pickle.load(open('data/train.pkl', 'rb'))", "the file data/train.pkl"),
        ("torch.load('data/train.pt')", "the file data/train.pt"),
        ("os.listdir('shards')", "the folder shards"),
    ],
)
def test_the_error_about_missing_data_names_its_line_and_the_option(tmp_path, read, wants):
    ran = run(tmp_path / "p", IMPORTS + read)
    assert ran.error.startswith("FileNotFoundError")
    assert f"{tmp_path}/p/train.py:5 wants {wants}, which is not there: put it there, or add --fake-data" in ran.error
    assert not ran.assumptions


def test_a_script_can_write_beside_data_whose_folder_is_not_there(tmp_path):
    text = """\
        import json, os
        words = sorted(set(open("data/raw/train.txt").read().split()))
        print(os.path.isdir("data/raw"), os.path.isdir("data"), os.path.isdir("other"))
        with open("data/raw/vocab.json", "w") as file:
            json.dump(words, file)
        print(json.load(open("data/raw/vocab.json")) == words, sorted(os.listdir("data/raw")))
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert ran.stdout.splitlines() == ["True True False", "True ['train.txt', 'vocab.json']"]
    assert ran.error is None
    assert not (tmp_path / "p" / "data").exists()


def test_shards_of_a_folder_that_is_not_there(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os
        import numpy as np, torch
        def load_tokens(path): return torch.tensor(np.load(path).astype(np.int32), dtype=torch.long)
        def shards(folder): return [name for name in sorted(os.listdir(folder)) if "val" in name]
        names = shards("edu_fineweb10B")
        print(len(names), load_tokens(os.path.join("edu_fineweb10B", names[0])).shape)
        def images(folder):
            return [entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name.endswith(".jpg")]
        print(len(images("photos")), [len(files) for _, _, files in os.walk("pictures")])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["8 torch.Size([16777216])", "24 [24]"]
    assert (
        ran.assumptions["the folder edu_fineweb10B is not there: replaced by one of 24 files such as train_000000"] == 4
    )


@needs("PIL")
def test_images_and_masks(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from PIL import Image
        print(Image.open("images/a.jpg").convert("RGB").size, Image.open("masks/a.png").mode)
        print(Image.open("voc/SegmentationClass/a.png").mode, Image.open("gtFine/a_labelIds.png").mode)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["(500, 375) L", "L L"]
    assert ran.assumptions["the file images/a.jpg is not there: replaced by a black image of 500 x 375 pixels"] == 2


@needs("pandas", "pyarrow", "cv2", "h5py")
def test_readers_outside_python(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import cv2, h5py
        import pandas as pd
        print(len(pd.read_csv("a.csv")), len(pd.read_parquet("a.parquet")))
        print(cv2.imread("a.jpg").shape, h5py.File("a.h5", "r+")["image"][:].shape, isinstance(h5py.File, type))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["256 256", "(375, 500, 3) (224, 224, 3) True"]


@needs("pyarrow")
def test_a_table_is_made_for_the_library_of_its_format(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import pyarrow.parquet as parquet
        print(parquet.read_table("a.parquet").num_rows, parquet.ParquetFile("b.parquet").metadata.num_rows)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "256 256\n"


def test_a_file_of_objects_in_images(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import json
        coco = json.load(open("annotations/instances_train2017.json"))
        print(len(coco["images"]), coco["annotations"][9]["image_id"], len(coco["categories"]))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "256 1 80\n"


def test_files_that_are_there_are_read_as_they_are(tmp_path):
    project = tmp_path / "p"
    (project / "data").mkdir(parents=True)
    (project / "data/a.txt").write_text("mine", encoding="utf-8")
    (project / "data/rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    ran = run(
        project,
        """\
        import csv, glob, os
        print(open("data/a.txt").read(), sorted(os.listdir("data")), sorted(glob.glob("data/*.csv")))
        print(list(csv.reader(open("data/rows.csv"))))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["mine ['a.txt', 'rows.csv'] ['data/rows.csv']", "[['a', 'b'], ['1', '2']]"]
    assert not ran.assumptions


def test_what_a_script_can_do_without_is_not_made(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os, json
        try:
            data = json.load(open("cache.json"))
        except FileNotFoundError:
            data = "none"
        os.makedirs("out")
        print(data, os.path.exists("rows.csv"), os.listdir("out"))
        open("settings.yaml")
        """,
        fake=True,
    )
    assert ran.stdout == "none False []\n"
    assert "settings.yaml" in ran.error
    assert not ran.assumptions


def test_a_number_in_a_missing_record_is_not_made_up(tmp_path):
    ran = run(
        tmp_path / "p",
        "import pickle\nmeta = pickle.load(open('meta.pkl', 'rb'))\nprint(meta['vocab_size'])\n",
        fake=True,
    )
    assert ran.error.startswith("FileNotFoundError")
    assert "The number 'vocab_size' is read from it: put the file there, as a size may depend on it." in ran.error


def test_the_steps_of_a_control_program_have_as_many_values_as_its_config_says(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import collections
        import numpy as np
        class RunConfig(collections.UserDict): ...
        def main(cfg):
            data = np.load("run.npz")
            total = np.sum(data["traj_lengths"])
            print(data["states"][:total].shape, data["actions"][:total].dtype, len(data["actions"][0]))
        main(RunConfig(obs_dim=11, action_dim=3))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "(256, 11) float32 3\n"


def test_an_array_has_the_sides_that_the_script_takes_apart(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import argparse
        import numpy as np
        def load(path):
            data = np.load(path)
            image, label = data["image"], data["label"]
            h, w = image.shape
            return (h, w), label.shape
        def main(args): print(load("case1.npz"))
        main(argparse.Namespace(img_size=96))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "((96, 96), (96, 96))\n"


def test_what_was_looked_for_beside_fake_data_is_assumed_away_by_name(tmp_path):
    project = tmp_path / "p"
    (project / "data/chars").mkdir(parents=True)
    ran = run(
        project,
        """\
        import os
        from pathlib import Path
        import numpy as np
        folder = os.path.join("data", "chars")
        vocabulary = 50304 if not os.path.exists(os.path.join(folder, "meta.pkl")) else 65
        print(Path("/.dockerenv").exists(), os.path.isfile("elsewhere/list.txt"), Path("data/chars/last.pth").exists())
        print(os.path.exists("data/chars/written.json"), len(np.memmap(f"{folder}/train.bin", dtype=np.uint16, mode="r")))
        open("data/chars/written.json", "w").close()
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.assumptions == {
        "data/chars/meta.pkl was looked for and is not there: a size that it holds is not known": 5,
        "the file data/chars/train.bin is not there: replaced by 16,777,216 zeros": 7,
    }


GIVES_UP = """
import os, sys, zipfile
from pathlib import Path
assert os.path.exists("corpus/train.txt")
if not Path("archive").is_dir():
    raise SystemExit("no data")
if not os.path.isfile("images/cats-32x32.zip"):
    sys.exit(2)
if (place := Path("corpus") / "train.json").is_file():
    print("as JSON")
elif (place := Path("corpus") / "train.txt").is_file():
    print("as a text")
else:
    raise NotImplementedError
assert not os.path.exists("runs/exp1")
print(len(open("corpus/train.txt").readlines()), os.path.exists("other.txt"), os.path.isdir("archive"))
with zipfile.ZipFile("images/cats-32x32.zip") as archive:
    from PIL import Image
    print(Image.open(archive.open("00000/img00000007.png")).size, len(archive.namelist()))
"""


@needs("PIL")
def test_data_without_which_a_script_gives_up_is_made_where_it_asks_whether_it_exists(tmp_path):
    ran = run(tmp_path / "p", GIVES_UP, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["as JSON", "4096 False True", "(32, 32) 257"]
    shown = "the file images/cats-32x32.zip is not there: replaced by 256 black images of 32 pixels in 10 classes"
    assert shown in ran.assumptions


def test_the_size_of_a_terminal_and_the_models_of_a_hub_are_answered(tmp_path):
    text = """
    import os, subprocess, torch
    rows, columns = os.popen("stty size", "r").read().split()
    print(rows, columns, subprocess.check_output(["tput", "cols"]).decode().strip(), torch.hub.list("owner/repo:main"))
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.rstrip().endswith("24 80 80 []")


def test_nvidia_smi_answers_for_the_simulated_gpu(tmp_path):
    text = """
    import os, subprocess
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used,pstate", "--format=csv,nounits,noheader"]
    print(subprocess.check_output(query, encoding="utf-8").strip())
    print(subprocess.run("nvidia-smi --query-gpu=memory.total --format=csv", shell=True, capture_output=True).stdout)
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,nounits,noheader"]
    pid, used = subprocess.check_output(query, encoding="utf-8").strip().split(", ")
    print(int(pid) == os.getpid(), int(used) >= 0)
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert ran.error is None, ran.stderr
    query, table, process = ran.stdout.splitlines()
    assert process == "True True"
    name, total, used, state = query.split(", ")
    assert ("A100" in name, state) == (True, "[N/A]")
    assert 0 <= int(used) < int(total)
    assert table == repr(f"memory.total\n{total} MiB\n".encode())


@needs("PIL")
def test_an_image_that_is_written_is_not_made_before(tmp_path):
    text = """
    from PIL import Image
    Image.new("RGB", (4, 4)).save("out.png")
    print(Image.open("out.png").size, Image.open("in.png").size)
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert ran.stdout.splitlines() == ["(4, 4) (500, 375)"], ran.stderr
    assert [text for text in ran.assumptions if ".png" in text] == [
        "the file in.png is not there: replaced by a black image of 500 x 375 pixels"
    ]


def test_a_mask_is_made_for_each_image_of_a_folder_beside(tmp_path):
    text = """
    import glob, os
    masks = glob.glob("data/masks/*.png")
    images = [mask for mask in masks if os.path.isfile(os.path.join("data/images", os.path.basename(mask)))]
    print(len(masks), len(images), os.path.isfile("data/images/other.png"))
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["8 8 False"]


def test_folders_of_classes_are_made_with_the_images_that_are_looked_for_in_them(tmp_path):
    text = """
    import glob, os
    from PIL import Image

    def load(root):
        images, labels = [], []
        for name in os.listdir(root):
            for path in glob.glob(os.path.join(root, name, "*.png")):
                images.append(Image.open(path).size)
                labels.append(int(name))
        return len(images), sorted(set(labels))

    def classes(root):
        folders = sorted(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name)))
        return folders, [len(os.listdir(os.path.join(root, name))) for name in folders]

    print(load("data/train"), classes("other"))
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["(16, [0, 1]) (['0', '1'], [24, 24])"]
    assert "the folder data/train is not there: replaced by one of 2 folders, 0 to 1" in ran.assumptions
    assert "other folders data/train/* are not there, either: replaced alike" in ran.assumptions


def test_two_folders_that_are_listed_side_by_side_have_the_files_whose_endings_are_asked_for(tmp_path):
    text = """
    import os

    def is_image(name):
        return any(name.endswith(ending) for ending in [".jpeg", ".png"])

    class Pairs:
        def __init__(self, root):
            inputs = sorted(os.listdir(os.path.join(root, "input")))
            targets = sorted(os.listdir(os.path.join(root, "target")))
            self.inputs = [name for name in inputs if is_image(name)]
            self.targets = [name for name in targets if is_image(name)]

    pairs = Pairs("data/train")
    print(len(pairs.inputs) == len(pairs.targets) > 0)
    """
    ran = run(tmp_path / "p", text.replace("\n    ", "\n"), fake=True)
    assert (ran.error, ran.stdout) == (None, "True\n"), ran.stderr


def test_rows_have_the_keys_by_which_the_script_takes_their_values(tmp_path):
    text = """
    import json

    TEMPLATE = "Below is a task. {instructions_of_mine} Answer:"
    rows = json.load(open("rows.json"))
    lines = [json.loads(line) for line in open("rows.jsonl")]
    print(all(TEMPLATE.format_map(row) for row in rows), rows[0]["story"][:1], lines[0].get("hint_of_mine", "")[:1])
    """.replace("\n    ", "\n")
    ran = run(tmp_path / "p", f"{text}\ndef tokenize(text):\n    return text.split()\n", fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["True w w"]
    ran = run(tmp_path / "q", text, fake=True)  # which has no tokenizer: its rows are numbers
    assert (ran.error, ran.stdout) == (None, "True [0] [1]\n")


def test_no_file_of_an_installed_package_is_made(tmp_path):
    text = """
    import importlib.metadata
    names = importlib.metadata.packages_distributions()
    print(names["click"], max(map(len, names)) < 100)
    print(importlib.metadata.distribution("click").read_text("none.txt"))
    """
    ran = run(tmp_path / "p", "\n".join(line.strip() for line in text.splitlines()), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["['click'] True", "None"]
    assert not ran.assumptions


def test_settings_that_the_command_line_names_are_not_made_up(tmp_path):
    script = "import json, sys\nprint(json.load(open(sys.argv[2]))[0])\n"
    ran = run(tmp_path / "p", script, "--config", "config/base.json", fake=True)
    assert "config/base.json" in str(ran.error)
    ran = run(tmp_path / "p", script, "--annotations", "config/base.json", fake=True)
    assert ran.error is None, ran.stderr


def test_the_small_images_of_super_resolution_are_as_much_smaller_as_their_folder_says(tmp_path):
    names = ("DIV2K_train_HR/0001.png", "DIV2K_train_LR_bicubic/X4/0001x4.png", "Set5/LRbicx3/a.png", "Set5/all/a.png")
    opened = "".join(f"print(Image.open('data/{name}').size)\n" for name in names)
    ran = run(tmp_path / "p", f"from PIL import Image\n{opened}", fake=True)
    assert ran.stdout.splitlines() == ["(480, 360)", "(120, 90)", "(160, 120)", "(500, 375)"], ran.stderr


@needs("safetensors", "transformers")
def test_a_checkpoint_of_a_known_model_has_its_settings_and_random_weights(tmp_path):
    script = """\
    import json, torch
    from pathlib import Path
    from safetensors import safe_open
    def path_of(folder, name, missing_ok=False):
        path = folder / name
        if not missing_ok and not path.is_file():
            raise ValueError(f"no {name} in {folder}")
        return path
    folder = Path("weights/Llama-3.2-1B-Instruct")
    config = json.loads((folder / "config.json").read_text())
    print(config["hidden_size"], config["num_attention_heads"])
    with safe_open(path_of(folder, "model.safetensors"), framework="pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}
    print(torch.nn.Linear(2, 2).load_state_dict(weights))
    print(path_of(folder, "adapter.safetensors", missing_ok=True).exists())
    """
    ran = run(tmp_path / "p", textwrap.dedent(script), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["2048 32", "<All keys matched successfully>", "False"]
    known = "config.json of the checkpoint is not there: it has the sizes known by the name of its folder"
    assert known in ran.assumptions


def test_videos_scans_and_shards_are_files_of_their_kind(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import glob, gzip, json, struct, tarfile
        print(open("clips/a.mp4", "rb").read(12)[4:8], len(glob.glob("films/*.mp4")))
        scan = gzip.open("scans/a.nii.gz").read()
        print(struct.unpack_from("<8h", scan, 40)[:4], scan[344:347], len(scan) - 352)
        with tarfile.open("shard-000000.tar") as shard:
            names = shard.getnames()
            print(len(names), names[:4], json.load(shard.extractfile("000007.json"))["label"])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "b'ftyp' 8",
        f"(3, 240, 240, 155) b'n+1' {2 * 240 * 240 * 155}",
        "1024 ['000000.jpg', '000000.txt', '000000.cls', '000000.json'] 7",
    ]


def test_numbers_are_read_by_functions_of_numpy_which_see_the_files_of_the_script(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os
        import numpy as np
        np.savetxt("mine.txt", np.eye(3))
        print(np.loadtxt("mine.txt").shape, np.loadtxt("cloud.txt", delimiter=",").shape)
        image = os.listdir("images")[0]
        print(np.loadtxt(f"labels/{os.path.splitext(image)[0]}.txt", ndmin=2).shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["(3, 3) (4096, 6)", "(8, 6)"]
    assert not (tmp_path / "p" / "mine.txt").exists()


def test_a_table_that_is_read_line_by_line_has_no_header(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import csv
        lines = open("lines.csv").readlines()
        rows = list(csv.reader(open("rows.csv")))
        def by_line(): return open("other.csv").readlines()
        print(len(rows), rows[0][0], len(by_line()), len(by_line()[0].split()))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "257 x0 4096 16\n"


def test_tokens_have_the_header_that_the_script_asks_for(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        header = torch.from_file("tokens.bin", False, 256, dtype=torch.int32)
        assert header[0] == 20240520 and header[1] == 1
        tokens = torch.from_file("tokens.bin", False, 512 + int(header[2]), dtype=torch.uint16)[512:]
        print(tokens.shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "torch.Size([16777216])\n"


def test_messages_of_json_rows_are_those_of_a_chat(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import json
        row = json.loads(open("chats.jsonl").readline())
        print([message["role"] for message in row["messages"]])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "['user', 'assistant']\n"


def test_the_folders_of_a_function_called_by_images_have_images(tmp_path):
    """Whoever calls it may name the end of its checkpoints; it looks for those among what it has left itself."""
    source = """\
        import os

        def paired_image_paths(folder):
            return sorted(os.listdir(folder))

        def train():
            saved = ".pth"
            print(paired_image_paths("data/input")[0], os.listdir("experiments/first/models"))

        train()
        """
    ran = run(tmp_path / "p", source, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.strip() == "test_000000.png []"


def test_a_year_in_the_name_of_an_archive_is_no_side_of_its_images(tmp_path):
    source = """\
        import io, zipfile
        from PIL import Image
        for name in ("train2017.zip", "faces-64.zip"):
            archive = zipfile.ZipFile(name)
            print(Image.open(io.BytesIO(archive.read(archive.namelist()[0]))).size)
        """
    ran = run(tmp_path / "p", source, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["(256, 256)", "(64, 64)"]


@needs("h5py", "cv2")
def test_what_a_library_writes_itself_is_where_the_script_reads_it(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os, cv2, h5py, numpy as np
        for mode, name in (("w", "a"), ("a", "b")):
            with h5py.File("made/x.h5", mode) as file:
                file[name] = np.zeros(3)
        with h5py.File("made/x.h5") as file:
            print(sorted(file), os.path.exists("made/x.h5"))
        print(cv2.imwrite("made/x.png", np.zeros((5, 6, 3), np.uint8)), cv2.imread("made/x.png").shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["['a', 'b'] True", "True (5, 6, 3)"]
    assert {"made/x.h5", "made/x.png"} <= set(ran.writes)


def test_files_of_a_folder_are_called_as_a_table_names_them(tmp_path):
    text = """\
        import csv, glob, os

        def listed(folder):
            return sorted(name for name in os.listdir(folder) if name.endswith(".jpg"))

        names = sorted(row["image"] for row in csv.DictReader(open("scans/list.csv")))
        print(listed("scans/files") == names, sorted(map(os.path.basename, glob.glob("scans/more/*.jpg"))) == names)
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.split()) == (None, ["True", "True"])


def test_a_scan_that_is_looked_for_in_a_made_up_folder_is_there(tmp_path):
    text = """\
        import os

        def cases(root):
            found = []
            for name in sorted(os.listdir(root)):
                folder = os.path.join(root, name)
                if os.path.isdir(folder) and os.path.exists(os.path.join(folder, name + "_seg.nii.gz")):
                    found.append(os.path.getsize(os.path.join(folder, name + "_seg.nii.gz")) > 0)
            return found

        print(cases("BraTS2020_TrainingData"), os.path.exists("BraTS2020_TrainingData/BraTS2020_001/notes.md"))
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.strip()) == (None, f"{[True] * 8} False")


def test_a_pattern_of_any_name_with_an_end_has_images_where_the_function_opens_some(tmp_path):
    text = """\
        import glob
        from PIL import Image

        class Images:
            def __init__(self, root):
                self.files = sorted(glob.glob(root + "/A/*.*"))

            def __getitem__(self, index):
                return Image.open(self.files[index]).size

        print(Images("data")[3])
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.strip()) == (None, "(500, 375)")


def test_recordings_whose_sizes_are_asked_for_are_all_like_the_first(tmp_path):
    text = """\
        import os, wave

        names = [f"wavs/p{number % 3}/{number}.wav" for number in range(2000)]
        sizes = {os.path.getsize(name) for name in names}
        print(sizes == {os.path.getsize(names[7])}, wave.open(names[7]).getnframes() > 0, os.path.exists("notes.wav"))
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.strip()) == (None, "True True False")


def test_files_of_a_folder_have_the_end_of_the_name_that_is_taken(tmp_path):
    text = """\
        import os

        print(len([name for root, _, names in os.walk("scenes") for name in names if name.endswith("tonemap.jpg")]) > 0)
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.strip()) == (None, "True")


def test_images_that_the_text_of_a_public_data_set_lists_are_there(tmp_path):
    text = """\
        import csv, os

        names = [row[0] for row in csv.reader(open("celeba/list_eval_partition.csv"))][1:40:7]
        print({os.path.exists(f"celeba/img_align_celeba/{name}") for name in names}, names[0].endswith(".jpg"))
    """
    ran = run(tmp_path / "p", textwrap.dedent(text), fake=True)
    assert (ran.error, ran.stdout.strip()) == (None, "{True} True")
