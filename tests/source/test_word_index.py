"""The index of words never says of a file that it cannot mention what it mentions."""

import os
import sys
import time
from pathlib import Path

import pytest

from memlint.base import cache
from memlint.source.project_files import ProjectFiles
from memlint.source.word_index import READS_EVENT, WordIndex

MOST = 2**19
LONG_AGO = time.time() - 3600


@pytest.fixture
def project(tmp_path):
    """A folder whose files were written long ago."""

    def write(name: str, text: str, when: float = LONG_AGO) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        os.utime(file, (when, when))
        return file

    write("train.py", "from net import Net\nmodel = Net(width=8)\n")
    write("net.py", "class Net: ...\n")
    write("sub/other.py", "class MyTrainer: ...\nx = größe_Netz\n")
    return write


def files(index: WordIndex, *words: str, endings: tuple[str, ...] = ()) -> set[str]:
    return {str(path.relative_to(index.root)) for path in index.files_with(words, endings)}


def indexed(root: Path) -> WordIndex:
    return WordIndex.read(root).updated(sorted(root.rglob("*.py")), MOST)


def test_files_are_found_by_whole_words_and_by_endings(project, tmp_path):
    index = indexed(tmp_path)
    assert files(index, "Net") == {"train.py", "net.py"}
    assert files(index, "width") == {"train.py"}
    assert files(index, "Ne") == set()
    assert files(index, endings=("Trainer",)) == {"sub/other.py"}
    assert files(index, "nothing", "width", "MyTrainer") == {"train.py", "sub/other.py"}


def test_a_word_with_other_letters_is_looked_for_by_its_parts(project, tmp_path):
    assert files(indexed(tmp_path), "größe_Netz") == {"sub/other.py"}
    assert files(indexed(tmp_path), "größe") == set(), "the part e stands in no file"
    assert files(indexed(tmp_path), "ß") == {"train.py", "net.py", "sub/other.py"}, "which has no part that is indexed"


def test_it_is_kept_and_only_what_changed_is_read_again(project, tmp_path, monkeypatch):
    indexed(tmp_path)
    project("net.py", "class Network: ...\n", LONG_AGO + 60)
    read = []
    monkeypatch.setattr(Path, "read_bytes", lambda self, real=Path.read_bytes: (read.append(self.name), real(self))[1])
    index = indexed(tmp_path)
    assert [name for name in read if name.endswith(".py")] == ["net.py"]
    assert files(index, "Network") == {"net.py"}
    assert files(index, "Net") == {"train.py"}
    assert files(WordIndex.read(tmp_path), "Network") == {"net.py"}


def test_what_changed_since_and_what_is_new_may_mention_anything(project, tmp_path):
    index = indexed(tmp_path)
    changed = project("net.py", "class Other: ...\n", LONG_AGO + 60)
    new = project("new.py", "")
    assert index.unknown([*index.files_with(["class", "model"]), new]) == {changed, new}


def test_a_file_that_was_just_written_is_not_indexed(project, tmp_path):
    fresh = project("fresh.py", "class Fresh: ...\n", time.time())
    index = indexed(tmp_path)
    assert "fresh.py" not in files(index, "Fresh")
    assert fresh in index.unknown([fresh])


def test_a_damaged_index_is_empty(project, tmp_path):
    indexed(tmp_path)
    (words,) = (tmp_path / cache.NAME / "words").glob("*.bin")
    words.write_bytes(words.read_bytes()[:-1])
    assert WordIndex.read(tmp_path).entries == {}


def test_files_that_are_not_opened_still_count_as_read(project, tmp_path):
    """An answer that rests on what a file does not mention has to be found anew when it does."""
    events = []
    is_over = False

    def hook(event, arguments):
        if not is_over and event == READS_EVENT:
            events.append(Path(arguments[0]).name)

    indexed(tmp_path)
    sys.addaudithook(hook)
    names = [path.name for path in ProjectFiles(tmp_path, tmp_path / "net.py").paths]
    assert not ProjectFiles(tmp_path, tmp_path / "net.py").mentions(tmp_path / "sub" / "other.py", ("Net",))
    is_over = True
    assert sorted(events) == sorted(names)


def test_with_and_without_the_index_the_same_files_mention_a_word(project, tmp_path):
    without = ProjectFiles(tmp_path, tmp_path / "net.py")
    mentioning = {word: [p for p in without.paths if without.mentions(p, (word,))] for word in ("Net", "größe_Netz")}
    indexed(tmp_path)
    using = ProjectFiles(tmp_path, tmp_path / "net.py")
    for word, expected in mentioning.items():
        assert [path for path in using.paths if using.mentions(path, (word,))] == expected != []
