"""Files of public data sets that a script reads by itself have the sizes that these are known by."""

import json
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from memlint.script import public_files
from memlint.script.public_files import is_public, public_names, write_public
from tests.script.isolated import needs, run

TABLE = json.loads(Path(public_files.__file__).with_name("public_files.json").read_text(encoding="utf-8"))
PARTS = [(name, part) for name, parts in TABLE.items() for part in parts]
CONTENTS = {*public_files._WRITERS, *public_files._NAMES}
_LARGE = 2**24


def test_each_entry_has_one_content_and_a_pattern_of_its_own():
    for name, part in PARTS:
        assert len(CONTENTS & part.keys()) == 1, (name, part["at"])
        assert part.keys() <= CONTENTS | {"at", "of", "lines", "head", "between", "minutes", "in_line", "mode"}, part[
            "at"
        ]
        re.compile(part["at"])
    patterns = [part["at"] for _, part in PARTS]
    assert len(set(patterns)) == len(patterns)


def test_all_lines_names_and_values_by_name_are_made(tmp_path):
    for name, part in PARTS:
        (kind,) = CONTENTS & part.keys()
        groups = {"width": "4", "year": "20"}
        if kind in ("names", "folders"):
            names = list(public_files._texts(part[kind], part, groups))
            assert names, name
            assert len(set(names)) == len(names), name
            assert not any("/" in each for each in names), name
        elif kind in ("line", "sentences", "words", "json", "texts"):
            path = tmp_path / "file"
            assert public_files._WRITERS[kind]("place", path, part, groups), name
            if "line" in part and name != "UCF101":
                widths = {
                    line.count(part.get("between", " "))
                    for line in path.read_text().splitlines()[len(part.get("head", [])) :]
                }
                assert len(widths) == 1 or '"' in part["line"], (name, part["at"])


# The sizes are those that the data sets are known by.
@pytest.mark.parametrize(
    ("place", "different"),
    [
        ("data/tiny-imagenet-200/wnids.txt", {0: 200}),
        ("data/CUB_200_2011/image_class_labels.txt", {0: 11_788, 1: 200}),
        ("ucfTrainTestlist/trainlist01.txt", {1: 101}),
        ("ml-1m/ratings.dat", {0: 6_040, 1: 3_952, 2: 5}),
        ("ml-100k/u.data", {0: 943, 1: 1_682}),
        ("dataset/ml-1m/ml-1m.inter", {0: 6_040, 1: 3_706}),
        ("ml-20m/ratings.csv", {0: 138_493, 1: 26_744}),
        ("Data/gowalla/train.txt", {0: 29_858}),
        ("ESC-50-master/meta/esc50.csv", {1: 5, 2: 50, 3: 50}),
        ("cora/cora.content", {0: 2_708, -1: 7}),
        ("LJSpeech-1.1/metadata.csv", {0: 13_100}),
        ("conll2003/train.txt", {0: 23_623, 3: 9}),
        ("UCI HAR Dataset/train/y_train.txt", {0: 6}),
    ],
)
def test_columns_have_as_many_values_as_the_data_set(tmp_path, place, different):
    path = tmp_path / "file"
    assert is_public(place)
    write_public(place, path)
    found = public_files._found(place)
    assert found is not None
    content = found[0].content
    lines = [
        line
        for line in path.read_text().splitlines()[len(content.get("head", [])) :]
        if line and "DOCSTART" not in line
    ]
    columns = list(zip(*(line.split(content.get("between", " ")) for line in lines), strict=False))
    assert {number: len(set(columns[number])) for number in different} == different


@pytest.mark.parametrize(
    ("place", "number"),
    [("wikitext-103/wiki.train.tokens", 267_735), ("penn/train.txt", 9_999), ("multi30k/train.de", 7_850)],
)
def test_a_vocabulary_has_its_words_each_more_than_once(tmp_path, place, number):
    write_public(place, tmp_path / "file")
    words = (tmp_path / "file").read_text().split()
    assert (len(set(words)), len(words)) == (number, 2 * number)


def test_a_series_has_its_columns_and_hours(tmp_path):
    write_public("ETT-small/ETTh1.csv", tmp_path / "file")
    head, first, second, *rest = (tmp_path / "file").read_text().splitlines()
    assert head == "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"
    assert [line.partition(",")[0] for line in (first, second)] == ["2016-07-01 00:00:00", "2016-07-01 01:00:00"]
    assert len(rest) + 2 == 17_420
    write_public("dataset/traffic/traffic.csv", tmp_path / "file")
    assert {line.count(",") for line in (tmp_path / "file").read_text().splitlines()} == {862}


@pytest.mark.parametrize(("encoding", "key"), [("bytes", b"labels"), ("latin1", "labels")])
def test_pickles_of_python_2_have_the_texts_that_the_reader_asks_for(tmp_path, encoding, key):
    write_public("cifar-10-batches-py/data_batch_1", tmp_path / "file")
    with (tmp_path / "file").open("rb") as file:
        batch = pickle.load(file, encoding=encoding)
    assert len(set(batch[key])) == 10
    assert batch[b"data" if encoding == "bytes" else "data"].shape == (10_000, 3_072)


def test_a_large_array_of_zeros_takes_no_place_on_the_disk(tmp_path):
    path = tmp_path / "file"
    write_public("mnist_test_seq.npy", path)
    assert np.load(path, mmap_mode="r").shape == (20, 10_000, 64, 64)
    assert path.stat().st_blocks * 512 < 2**20 < path.stat().st_size


def test_a_skeleton_has_persons_in_each_frame_and_a_class(tmp_path):
    path = tmp_path / "file"
    write_public("data/ntu120/NTU120_CSub.npz", path)
    with np.load(path) as arrays:
        assert arrays["x_train"].reshape(256, 300, 2, 25, 3).min() > 0
        assert len(np.where(arrays["y_train"] > 0)[1]) == 256


def test_bytes_have_the_header_of_their_format(tmp_path):
    write_public("MNIST/raw/t10k-images-idx3-ubyte", tmp_path / "images")
    content = (tmp_path / "images").read_bytes()
    assert struct.unpack(">IIII", content[:16]) == (2_051, 10_000, 28, 28)
    assert len(content) == 16 + 10_000 * 28 * 28
    write_public("MNIST/raw/t10k-labels-idx1-ubyte", tmp_path / "labels")
    content = (tmp_path / "labels").read_bytes()
    assert struct.unpack(">II", content[:8]) == (2_049, 10_000)
    assert set(content[8:]) == set(range(10))


@needs("scipy")
def test_a_graph_of_planetoid_is_of_one_piece(tmp_path):
    parts = {}
    for name in ("x", "tx", "allx", "ally", "graph"):
        write_public(f"data/ind.citeseer.{name}", tmp_path / name)
        with (tmp_path / name).open("rb") as file:
            parts[name] = pickle.load(file, encoding="latin1")
    write_public("data/ind.citeseer.test.index", tmp_path / "test")
    tested = np.loadtxt(tmp_path / "test", dtype=int)
    assert parts["allx"].shape == (2_312, 3_703)
    assert parts["ally"].shape == (2_312, 6)
    assert len(parts["graph"]) == 3_327
    assert (len(tested), tested.max()) == (1_000, 3_326)


SCRIPT = """
import glob, gzip, os, pickle
import numpy as np
with gzip.open("data/train-labels-idx1-ubyte.gz", "rb") as file:
    print(len(np.frombuffer(file.read(), np.uint8, offset=8)))
with open("cifar-100-python/meta", "rb") as file:
    print(len(pickle.load(file)["fine_label_names"]))
ids = [line.strip() for line in open("tiny-imagenet-200/wnids.txt")]
print(len(ids), sorted(os.listdir("tiny-imagenet-200/train")) == ids, len(os.listdir(f"tiny-imagenet-200/train/{ids[0]}/images")))
print(len({os.path.basename(each).split("_")[0] for each in glob.glob("Market-1501/bounding_box_train/*.jpg")}))
print(len(open("mine/wnids.csv").read().split()) != 200)
print(sorted(glob.glob("GOPRO_Large/train/*/blur/*.png"))[0].count("/"))
"""


def test_a_script_reads_lists_and_opens_them_by_their_paths(tmp_path):
    ran = run(tmp_path / "p", SCRIPT, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["60000", "100", "200 True 20", "751", "True", "4"]
    said = " ".join(ran.assumptions)
    assert "the file tiny-imagenet-200/wnids.txt is not there: replaced by 200 lines, as in Tiny ImageNet" in said
    assert "array uint8 60000, as in MNIST" in said
    assert not ran.writes


def test_no_other_file_is_public():
    for place in (
        "data/train.txt",
        "images.txt",
        "classes.txt",
        "ratings.csv",
        "metadata.csv",
        "train.csv",
        "data_1.pickle",
    ):
        assert not is_public(place), place
    assert public_names("data/train") == []
