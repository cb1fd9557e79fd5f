"""Files that a script opens or lists and that are not there: errors that name the line, or fake files in their place.

All readers come here, as they open files by functions that the overlay replaces, or are given the path that it knows.
What is made goes by the name of the file and by the functions that open it; the script sees it where it looked for it.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import errno
import fnmatch
import functools
import glob
import itertools
import linecache
import os
import re
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from memlint.accelerator import state
from memlint.base import cache
from memlint.base.frames import user_frames
from memlint.base.ownership import is_installed, is_memlint, is_standard_library, is_users
from memlint.base.patching import patched
from memlint.base.variables import variables_of
from memlint.memory.records import Assumption, Frame
from memlint.script.checkpoint_files import (
    SETTINGS_OF_WEIGHTS,
    are_known_settings,
    num_shards,
    write_settings,
    write_weights,
)
from memlint.script.fake_files import written
from memlint.script.file_kinds import PLAIN, kind_by_name
from memlint.script.forms import SETTINGS, forms
from memlint.script.overlay import real
from memlint.script.public_files import is_public, public_names
from memlint.source.similar_files import only_file_of_name
from memlint.source.typed_commands import typed_configs
from memlint.workloads.absent_weights import Absent
from memlint.workloads.giving_up import gives_up
from memlint.workloads.missing_checkpoints import is_of_weights, suffix_of
from memlint.workloads.notes import not_there, note, note_fake_data, note_lack, note_replaced

if TYPE_CHECKING:
    from memlint.script.overlay import Overlay
    from memlint.script.replacing import Replacing

Within = Callable[[Callable[[Any], Any]], Any]
_READERS = {
    "memmap": "zeros",
    "numpy": "array",
    "PIL": "image",
    "imageio": "image",
    "skimage": "image",
    "tifffile": "image",
    "cv2": "image",
    "wave": "audio",
    "librosa": "audio",
    "torchaudio": "audio",
    "soundfile": "audio",
    "scipy": "audio",
    "pandas": "table",
    "csv": "table",
    "json": "json",
    "pickle": "record",
    "torch": "record",
    "tiktoken": "ranks",
    "sentencepiece": "pieces",
    "xml": "xml",
    "decord": "video",
    "av": "video",
    "torchcodec": "video",
    **dict.fromkeys(("monai", "nibabel", "torchio"), "nifti"),
    "trimesh": "mesh",
    "plyfile": "mesh",
    "meshio": "mesh",
}
"""The kind of data that a module reads from a file whose name says nothing."""
_LIKE_OS = frozenset(("iopath",))
"""Packages whose functions ask and open for the line that calls them."""
_PLAIN_READERS = frozenset(
    (
        *(*_READERS, "polars", "pyarrow", "pycocotools", "torchvision", "torchaudio"),
        *("datasets", "sklearn", "h5py", "orjson"),
    )
)
"""Packages that read data out of files with names that settings have as well."""
_OURS = (__name__, "memlint.script.file_system")
_EXPECTED = frozenset(("FileNotFoundError", "OSError", "IOError", "EnvironmentError"))
_MEDIA = frozenset(("image", "audio", "video", "nifti", "mesh", "music"))
_WRITING = ("save", "write", "imsave", "imwrite")
"""Beginnings of the names of functions that write such a file, and may ask first if it is there."""
_SHIPPED = frozenset(("text", "json", "lines", "table", "pieces"))
"""Kinds of small files that a project may have in another folder."""
_BY_SIZE = frozenset(("nifti",))
"""Kinds whose readers look first if a file is empty."""
_OF_NUMBERS = frozenset(("loadtxt", "genfromtxt"))
"""Functions of NumPy that read numbers from a text, and ask if it is there before they open it."""
_BY_READER = frozenset((*_MEDIA, "pieces"))
"""Kinds that a reader says, whatever the file is called."""
_TABLES = frozenset(("pandas",))
_DELIMITER = re.compile(r"delimiter\s*=\s*[\"'](.+?)[\"']")
_READER = re.compile(r"\bcsv\.|[rR]eader\(|read_csv|loadtxt|genfromtxt")
"""Text of a function that gives what it opens to a reader of tables, and does not go by its lines."""
_ROW_A_LINE = re.compile(r"for (\w+) in [^\n]+:[\s\S]*?\bloads\(\1\b|\bloads\((\w+)[^()]*(?:\(\))?\) for \2 in\b")
"""The same of one that reads a row of values from each line."""
_EMPTY_LINES = re.compile(
    r"if not \w*line|if (?:len\()?\w*line\w*(?:\.r?strip\(\))?\)? *== *(?:0|[\"'](?:\\n)?[\"'])|isspace\("
)
"""Texts of a function that goes by lines between which there are empty ones."""
_NUM_LINES_OF_PARAGRAPH = 16
_SPLITS = ("train", "val", "test")
_NUM_FOLDERS = 2
"""Number of folders in a folder whose folders are looked into: one for each of two classes."""
_LISTS = frozenset(("listdir", "scandir", "glob", "iglob", "rglob", "walk", "iterdir"))
_LOOKS = ("isdir", "is_dir")
_BEGINNING = re.compile(r"(?<!not )\b\w+\.startswith\([\"']([\w-]+)[\"']\)")
_END = re.compile(
    r"(?<!not )\b\w+\.endswith\([\"'](?P<end>[\w-]*\.\w+)[\"']\)"
    r"|(?:\[-\d+:\]|\[-?1\]|\.suffix)\s*[!=]=\s*[\"']\.?(?P<suffix>\w+)[\"']"
)
"""A beginning, and an end, of the names of files that code takes."""
_LINES_OF_CHOICE = 2
"""Lines behind one that lists a folder in which it may choose among the names."""
_MOST_LOOKED_FOR = 3
_SAVED = frozenset((".pt", ".pth"))
"""Ends of names of what a training saves itself, and looks for to go on."""
_OF_RESULTS = re.compile(
    r"(?:.*[_-])?(?:check_?points?|ckpts?|snapshots?|runs?|logs?|outputs?|results?|exp(?:eriment)?s?|weights)",
    re.IGNORECASE,
)
"""Names of folders of what a training leaves, in which there is nothing before the first."""
_HINT = "put it there, or add --fake-data to make it up"
_NOT_DATA = ("/dev", "/proc", "/sys", "/etc", "/usr", "/opt", "/bin", "/lib", "/var", "/run", "/root/.")

_DISTRIBUTION = re.compile(r"\.(dist|egg)-info(/|$)")
"""Folders in which `importlib.metadata` looks for files that most packages do not have."""


class MissingFiles:
    """Makes files that are missing, if it may, and remembers what was looked for in vain."""

    def __init__(self, overlay: Overlay, folder: Path, *, fake: bool, seq: int | None) -> None:
        """The script sees files through `overlay`; with `fake` they are made in `folder`, with texts of `seq` words."""
        self._overlay, self._folder, self._fake, self._seq = overlay, folder, fake, seq
        self._asked: dict[str, Frame] = {}
        self._reported: Counter[str] = Counter()
        self._has_lists = False
        """True if a text of a public data set was made, which may list its images."""
        self._alike: dict[str, str] = {}
        """Files that were made, by the ends of their names, which stand for others."""
        self._checkpoints: set[str] = set()
        """Folders of checkpoints that are not there, without which the script gives up."""
        self.is_searching = False
        """True while folders are listed for files of a pattern."""
        self.reader = ""
        """The package that reads outside Python, while it does."""

    def make(self, place: str, error: OSError | None) -> bool:
        """Make the file at `place` if it is data, which is opened for reading; else note in `error` what is missing."""
        is_of_checkpoint = os.path.dirname(place) in self._checkpoints  # noqa: PTH120
        if suffix_of(PurePath(place)) == ".json" and (is_of_checkpoint or (self._fake and are_known_settings(place))):
            self._make_folder(os.path.dirname(place))  # noqa: PTH120 -- as the overlay has it
            write_settings(place, self._new(place))
            return True
        is_blank = place in self._overlay.blank
        if self._is_elsewhere(place) or (_is_expected() and not is_blank):
            return False
        if is_of_weights(place):
            is_opened = error is not None and not _reader()[0] and suffix_of(PurePath(place)) != ""
            return is_opened and self._stand_in(place)  # any other reader knows what to do without it
        kind, options = self._kind(place)
        if not kind and self._fake and _reader()[0] != "import":
            forms.begin()  # an attempt may know what it holds
            kind, options = self._kind(place)
        may_be_data = bool(kind) or (not self._fake and _reader()[0] == "" and PurePath(place).suffix not in SETTINGS)
        if not may_be_data:
            return False
        shown = _shown(place)
        if not self._fake:
            if error is not None:
                note(error, f"wants the file {shown}, which is not there", _HINT)
            return False
        forms.begin()
        kind, options = self._kind(place)  # an attempt may ask for another one
        self._overlay.blank.discard(place)
        self._make_folder(os.path.dirname(place))  # noqa: PTH120 -- as the overlay has it
        path = Path(self._overlay.fake[place]) if is_blank else self._new(place)
        if own := self._shipped(place, kind):
            _copy(own, path, forms.num_rows if kind == "lines" else 0)
            described = _shown(own)
        else:
            described = written(kind, place, path, options | {"seq": self._seq})
        self._has_lists |= kind == "public" and kind_by_name(place) not in _MEDIA
        if is_blank:
            return True
        self._report(shown, f"the file {shown} is not there: replaced by {described}", "files")
        return True

    def _shipped(self, place: str, kind: str) -> str:
        """Return the file that the project has under the name of another place; empty without one."""
        name = os.path.basename(place)  # noqa: PTH119 -- as the overlay has it
        return only_file_of_name(name, real.getcwd(), real.scandir) if kind in _SHIPPED else ""

    def _report_folder(self, place: str, shown: str, text: str) -> None:
        """Report the files of a folder; of several in a folder that was made itself, those of the first."""
        if os.path.dirname(place) in self._overlay.fake:  # noqa: PTH120
            self._report(str(PurePath(shown).parent), text, "folders")
        else:
            note_fake_data(text)

    def _report(self, shown: str, text: str, kind: str) -> None:
        """Report what was made; of several files or folders in a folder the first, and that there are others."""
        path = PurePath(shown)
        like = str(path.with_name(f"*{path.suffix}"))
        self._reported[like] += 1
        if self._reported[like] == 1:
            note_fake_data(text)
        elif self._reported[like] == 2:
            state.assume(f"other {kind} {like} are not there, either: replaced alike")

    def _is_elsewhere(self, place: str) -> bool:
        """Return True where no data is: in memlint's cache, in the system, in packages, and where scripts write."""
        is_own = f"{os.sep}{cache.NAME}{os.sep}" in place
        is_of_package = is_installed(place) or _DISTRIBUTION.search(place) is not None
        is_typed = place in map(os.path.abspath, typed_configs(sys.argv))
        is_config = is_typed or PurePath(place).name in SETTINGS_OF_WEIGHTS  # settings that nobody can make up
        return is_own or is_of_package or is_config or place.startswith(_NOT_DATA) or self._overlay.is_free(place)

    def _kind(self, place: str) -> tuple[str, dict[str, Any]]:
        """Return the kind of data that is read from `place`, with the variables of its reader; empty if it is none."""
        reader, frame = (self.reader, None) if self.reader else _reader()
        if place not in forms.asked and is_public(place):
            return "public", {}
        if reader == "memmap" and frame is not None:
            return "zeros", {name: frame.f_locals.get(name) for name in ("dtype", "shape", "offset")}
        if asked := forms.of(place).kind:
            return asked, _options()
        if frame is not None and frame.f_code.co_name in _OF_NUMBERS:
            given = variables_of(frame)
            if given.get("dtype") is not str:
                return "numbers", {"sep": _given(given.get("delimiter"))}
        kind = kind_by_name(place) or (_READERS.get(reader, "") if _READERS.get(reader) in _BY_READER else "")
        if reader in _TABLES:
            kind = "table" if kind in ("", "text", "zeros", "table") else kind
        kind = kind if reader else _as_read(kind)
        if place in self._overlay.blank:
            return kind if kind == "record" or kind in _MEDIA else _READERS.get(reader) or kind or "text", _options()
        if kind == "pieces":
            return _READERS.get(reader, kind), {}
        if kind in ("table", "text", "json"):
            return (kind if not reader or reader in _PLAIN_READERS else ""), _options()
        return (kind if kind not in PLAIN or not reader or reader in _PLAIN_READERS else ""), {}

    def _new(self, place: str) -> Path:
        """Return where to store what the script sees at `place`."""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{os.getpid()}-{len(self._overlay.fake)}{PurePath(place).suffix}"
        self._overlay.fake[place] = str(path)
        return path

    # --- folders

    def fill(self, place: str, error: OSError | None) -> bool:
        """Make files in the folder `place`, which is listed, is empty or not there, and was not made by the script."""
        reader, _frame = _reader()
        if self.is_searching or reader or place in self._overlay.lines or self._is_elsewhere(place):
            return False
        if place in self._checkpoints:
            return False
        if _is_expected(or_any=True) or _is_removing():
            return False
        if not self._fake:
            if error is not None:
                note(error, f"wants the folder {_shown(place)}, which is not there", _HINT)
            not_there.append(f"wants files in the folder {_shown(place)}")
            return False
        shown, why = _shown(place), "is empty" if error is None else "is not there"
        if any(map(_OF_RESULTS.fullmatch, (PurePath(place).name, PurePath(shown).parts[0]))):
            if error is None:
                return False
            self._make_folder(place)
            state.assume(f"the folder {shown}, in which the script looks for results, is not there: it is made")
            return True
        forms.begin()
        forms.has_folders = True
        self._make_folder(place)
        has_folders = forms.of(place).kind != "files" and _lists_inside()
        folders = public_names(place, "folders") or (list(map(str, range(_NUM_FOLDERS))) if has_folders else [])
        if folders:
            for name in folders:
                inner = os.path.join(place, name)  # noqa: PTH118 -- as the overlay has it
                self._make_folder(inner)
                forms.above[self._overlay.fake[inner]] = place
            named = f"{folders[0]} to {folders[-1]}"
            note_fake_data(f"the folder {shown} {why}: replaced by one of {len(folders)} folders, {named}")
            return True
        end = _END.search(_choosing_lines())
        suffix = _suffix_asked_for() if end is None else end["end"] or f".{end['suffix']}"
        chosen = dict.fromkeys(_BEGINNING.findall(_choosing_lines()))
        names = _known_names(place, "" if chosen else suffix)
        names = names or _made_names(chosen or _SPLITS, suffix)
        self._make_blanks(os.path.join(place, name) for name in names)  # noqa: PTH118 -- as the overlay has it
        replaced = f"replaced by one of {len(names)} files such as {names[0]}"
        self._report_folder(place, shown, f"the folder {shown} {why}: {replaced}")
        return True

    def _make_folder(self, place: str) -> None:
        """Make a folder and those above it, so that the script can write beside the data that is made up."""
        if place in self._overlay.blank:  # a name that was listed, and turns out to be a folder's
            self._overlay.blank.discard(place)
            self._new(place).mkdir()
        elif self._overlay.status(place) is None:
            self._make_folder(os.path.dirname(place))  # noqa: PTH120 -- as the overlay has it
            self._new(place).mkdir()

    def _make_blanks(self, places: Iterator[str]) -> None:
        for place in places:
            self._new(place).write_bytes(b"")
            self._overlay.blank.add(place)
            if kind_by_name(place) in _BY_SIZE:
                self.make(place, None)

    def match(self, pattern: str) -> bool:
        """Make files that match a pattern of `glob`, if these are data by their end, or by what is taken of them."""
        if PurePath(pattern).name in ("*", "*.*"):
            pattern = pattern.removesuffix(".*") + _suffix_asked_for(of_media=True)
        kind = kind_by_name(pattern)
        place = self._overlay.known(pattern)
        if _reader()[0] or self._is_elsewhere(place):
            return False
        if not glob.has_magic(pattern):
            return kind not in ("", *PLAIN) and self.make(place, None)
        if not kind and any(map(_OF_RESULTS.fullmatch, PurePath(_shown(place)).parts)):
            return False
        if not kind:
            not_there.append(f"wants files called {_shown(place)}")
            note_lack(f"no file matches {_shown(place)}")
            return False
        if os.path.dirname(place) in self._checkpoints and is_of_weights(place):  # noqa: PTH120
            for shard in range(num_shards()):
                write_weights(self._new(_matching(place, shard)))
            return True
        if not self._fake:
            not_there.append(f"wants files called {pattern}")
            return False
        forms.begin()
        forms.has_folders = True
        folder, end = os.path.dirname(_matching(place, 0)), PurePath(place).name  # noqa: PTH120
        names = fnmatch.filter(_known_names(folder, PurePath(end).suffix), end)
        places = [os.path.join(folder, each) for each in names]  # noqa: PTH118 -- as the overlay has it
        places = places or list(dict.fromkeys(_matching(place, i) for i in range(forms.num_files)))
        for each in places:
            self._make_folder(os.path.dirname(each))  # noqa: PTH120
        self._make_blanks(each for each in places if self._overlay.status(each) is None)
        text = f"no file matches {pattern}: replaced by {len(places)} such as {PurePath(places[0]).name}"
        self._report_folder(os.path.dirname(place), pattern, text)  # noqa: PTH120
        return True

    # --- what was looked for

    def note(self, place: str) -> bool:
        """Remember that the script asks for `place`, which is not there; make it if the script gives up without it."""
        if is_installed(place) or place.startswith(_NOT_DATA) or self.is_searching:
            return False
        reader, called = _reader()
        writes = called is not None and called.f_code.co_name.startswith(_WRITING)
        is_of_media = _READERS.get(reader) in _MEDIA and kind_by_name(place) in _MEDIA and not writes
        is_of_numbers = called is not None and called.f_code.co_name in _OF_NUMBERS
        is_measured = bool(kind_by_name(place)) and _asks_for_size()
        if is_of_media or is_of_numbers or is_measured:
            if not self._fake and kind_by_name(place):
                not_there.append(f"wants the file {_shown(place)}")
            # a reader that asks is about to open it
            return self._make_alike(place) if is_measured else self.make(place, None)
        is_weights = is_of_weights(place)  # for which a line may ask by a package: `g_pathmgr.exists(checkpoint)`
        is_of_package = is_weights and reader and reader not in _READERS
        frame = next(user_frames(), None) if is_of_package else _asking()
        return frame is not None and self._note_asked(place, frame, is_weights=is_weights)

    def _make_alike(self, place: str) -> bool:
        """Make one of many files whose sizes a script asks for: each is the first one of its kind, under its name."""
        suffix = PurePath(place).suffix
        if suffix not in self._alike:
            if is_made := self.make(place, None):
                self._alike[suffix] = self._overlay.fake[place]
            return is_made
        self._make_folder(os.path.dirname(place))  # noqa: PTH120 -- as the overlay has it
        self._overlay.fake[place] = self._alike[suffix]
        state.assume(f"other files *{suffix} are not there, either: each is like the first one")
        return True

    def _note_asked(self, place: str, frame: FrameType, *, is_weights: bool) -> bool:
        if is_weights:
            is_wanted = gives_up(frame.f_code.co_filename, frame.f_lineno)
            return is_wanted and not self._is_elsewhere(place) and self._stand_in(place)
        if forms.find(PurePath(place).name) is not None and not self._is_elsewhere(place):  # named by data made up
            if kind := kind_by_name(place) or _kind_read_by(frame):
                forms.change(place).kind = kind
                return self.make(place, None)
            self._make_blanks(iter([place]))
            return True
        is_in_made = os.path.dirname(place) in self._overlay.fake or (self._has_lists and is_public(place))  # noqa: PTH120
        if (is_in_made and kind_by_name(place) in _MEDIA) or self._is_pair(place):
            self._make_blanks(iter([place]))
            return True
        if not gives_up(frame.f_code.co_filename, frame.f_lineno):
            self._asked.setdefault(place, Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            return False
        if not self._fake:
            not_there.append(f"wants {_shown(place)}")
            return False
        if kind_by_name(place) == "pieces":  # in one of two formats, as who opens it will say
            self._make_blanks(iter([place]))
            return True
        if kind_by_name(place) or is_public(place):
            return self.make(place, None)
        if PurePath(place).suffix or self._is_elsewhere(place):
            return False
        forms.begin()
        self._make_folder(place)
        return True

    def _stand_in(self, place: str) -> bool:
        """Make what stands for a checkpoint: a file of weights, or a folder of such files. Returns True."""
        note_replaced(f"the checkpoint {_shown(place)} is not there: its weights are random")
        Absent(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place))  # so that loading no tensors is fine
        if suffix_of(PurePath(place)) or _asks_for_file():
            self._make_folder(os.path.dirname(place))  # noqa: PTH120 -- as the overlay has it
            if PurePath(place).suffix == ".zip":  # without the file that is to be taken out, which is not there either
                zipfile.ZipFile(self._new(place), "w").close()
            else:
                write_weights(self._new(place))
        else:
            self._make_folder(place)
            self._checkpoints.add(place)
        return True

    def _is_pair(self, place: str) -> bool:
        """Return True if a file of this name was made in a folder beside: a mask or the boxes belong to an image."""
        path = PurePath(place)
        if forms.lists(path):
            return True
        made = map(PurePath, self._overlay.fake)
        return bool(kind_by_name(place)) and any(
            each.name == path.name and path.parent.parent in each.parents and each.parent != path.parent
            for each in made
        )

    def looked_for(self) -> tuple[Assumption, ...]:
        """Return what the script looked for in vain beside data that is not there: its sizes may depend on it."""
        here = PurePath(real.getcwd())
        made = [parent for place in self._overlay.fake for parent in PurePath(place).parents[:2]]
        folders = {str(folder) for folder in made if not here.is_relative_to(folder)}
        found = (
            Assumption(f"{_shown(place)} was looked for and is not there: a size that it holds is not known", frame)
            for place, frame in self._asked.items()
            if self._is_beside(place, folders) and self._overlay.status(place) is None
        )
        return tuple(itertools.islice(found, _MOST_LOOKED_FOR))

    def _is_beside(self, place: str, folders: set[str]) -> bool:
        parents = [str(parent) for parent in PurePath(place).parents]
        holds_sizes = kind_by_name(place) in PLAIN and PurePath(place).suffix not in _SAVED
        return holds_sizes and any(folder in parents for folder in folders)


def replace_globs(missing: MissingFiles, replacing: Replacing, within: Within) -> None:
    """Make patterns that match no file ask `missing` for some; `within` calls a function beside the overlay."""
    search = glob.iglob  # which `glob.glob` calls

    def searched(find: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        with patched([(missing, "is_searching", True)]):
            return list(find(*args, **kwargs))

    def made(pattern: str) -> bool:
        return bool(within(lambda _overlay: missing.match(pattern)))

    def found(pathname: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        names = searched(search, pathname, *args, **kwargs)
        text = os.path.join(kwargs.get("root_dir") or "", os.fsdecode(pathname))  # noqa: PTH118
        return iter(names if names or not made(text) else search(pathname, *args, **kwargs))

    def found_in(find: Callable[..., Any], prefix: str) -> Callable[..., Iterator[Path]]:
        def found_paths(self: Path, pattern: str, **kwargs: Any) -> Iterator[Path]:
            paths = searched(find, self, pattern, **kwargs)
            return iter(paths if paths or not made(str(self / prefix / pattern)) else find(self, pattern, **kwargs))

        return found_paths

    replacing.put(glob, "iglob", found)
    replacing.put(Path, "glob", found_in(Path.glob, ""))
    replacing.put(Path, "rglob", found_in(Path.rglob, "**"))


def _known_names(folder: str, suffix: str) -> list[str]:
    """Return the names of files that a public data set, or data made up before, has for a folder; maybe none."""
    return public_names(folder) or forms.file_names(suffix)


def _matching(pattern: str, number: int) -> str:
    """Return a path that matches `pattern`: stars stand for a number, in the folders for the first of a split."""
    text = pattern.replace("**/", "").replace("**", "")
    text = re.sub(r"\[!?(.)[^\]]*\]", r"\1", text).replace("?", "0")
    return text.replace("*", f"{number:06}")


def _reader() -> tuple[str, FrameType | None]:
    """Return the package of the code between the user's line and the file system, with its frame; empty without one.

    The standard library and memlint do not count, but for modules that read a format.
    """
    frame: FrameType | None = sys._getframe(1)
    found: tuple[str, FrameType | None] = "", None
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith("<frozen importlib"):
            return "import", frame
        if is_users(path):
            break
        if path.startswith("<"):  # of the standard library
            frame = frame.f_back
            continue
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("importlib.metadata"):  # whose search path has entries that only finders know
            return "import", frame
        top = name.partition(".")[0]
        if not is_memlint(path) and top not in _LIKE_OS and (not is_standard_library(path) or top in _READERS):
            found = ("memmap" if name.endswith(".memmap") else top), frame
            if found[0] == "memmap":
                break
        frame = frame.f_back
    return found


def _copy(source: str, path: Path, num_lines: int) -> None:
    """Copy a file; the lines of a short one, an example of what the script reads, are repeated up to `num_lines`."""
    lines = Path(source).read_bytes().splitlines() if num_lines else []
    if not 0 < len(lines) < num_lines:
        shutil.copyfile(source, path)
        return
    repeated = itertools.islice(itertools.cycle(lines), num_lines)
    path.write_bytes(b"".join(line + b"\n" for line in repeated))


def _asks_for_size() -> bool:
    """Return True if the user's line has called `os.path.getsize`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_name == os.path.getsize.__name__:
            return True
        frame = frame.f_back
    return False


def _options() -> dict[str, Any]:
    """Return what a running reader of tables was told, or else what the user's running function says of them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_name in ("read_csv", "read_table"):
            given = variables_of(frame)
            return {name: _given(given.get(name)) for name in ("sep", "delimiter", "names", "header") if name in given}
        frame = frame.f_back
    text = "" if frame is None else _text_of(frame.f_code.co_filename, frame.f_lineno)
    delimiter = _DELIMITER.search(text)
    options: dict[str, Any] = {} if delimiter is None else {"sep": delimiter[1]}
    options |= {"is_row": True} if "DictReader" in text else {}
    return options | ({"paragraphs": _NUM_LINES_OF_PARAGRAPH} if _EMPTY_LINES.search(text) else {})


def _as_read(kind: str) -> str:
    """Return the kind of a file that the user's function opens: tables and JSON may be read line by line."""
    frame = next(user_frames(), None)
    text = "" if frame is None else _text_of(frame.f_code.co_filename, frame.f_lineno)
    if text and kind == "table" and not _READER.search(text):
        return "text"
    return "lines" if kind == "json" and _ROW_A_LINE.search(text) and "json.load(" not in text else kind


def _given(value: Any) -> Any:
    """Return an option of pandas, which marks the absent ones by an object of its own."""
    return value if isinstance(value, str | int | list | tuple) else None


@functools.cache
def _text_of(path: str, line: int) -> str:
    """Return the text of the function around a line; of a module, some lines around it."""
    lines = linecache.getlines(path)
    with contextlib.suppress(SyntaxError):
        functions = [
            node
            for node in ast.walk(ast.parse("".join(lines)))
            if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or line)
        ]
        if functions:
            inner = max(functions, key=lambda node: node.lineno)
            return "".join(lines[inner.lineno - 1 : inner.end_lineno])
    return "".join(lines[max(line - 3, 0) : line + 12])


def _asking() -> FrameType | None:
    """Return the user's line that asks for a file by the standard library, or by a package that does as `os` does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _OURS:
        frame = frame.f_back
    while frame is not None and (
        is_standard_library(path := frame.f_code.co_filename)
        or path.startswith("<frozen")
        or str(frame.f_globals.get("__name__")).partition(".")[0] in _LIKE_OS
    ):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def _kind_read_by(frame: FrameType) -> str:
    """Return the kind of media that a function of a package reads which the running function names."""
    values = [frame.f_globals.get(name) for name in frame.f_code.co_names]
    names = (str(getattr(each, "__module__", None) or getattr(each, "__name__", "")) for each in values)
    return next((kind for name in names if (kind := _READERS.get(name.partition(".")[0])) in _MEDIA), "") or ""


def _asks_for_file() -> bool:
    """Return True if the user's line asks for a file, and not for a folder or either."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_name in ("isfile", "is_file"):
            return True
        frame = frame.f_back
    return False


def _shown(place: str) -> str:
    """Return a path as short as it can be named."""
    folder = real.getcwd() + os.sep
    return place.removeprefix(folder)


def _is_removing() -> bool:
    """Return True if a folder is listed to be removed."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == shutil.__file__:
            return frame.f_code.co_name.startswith(("rmtree", "_rmtree"))
        frame = frame.f_back
    return False


def _is_expected(*, or_any: bool = False) -> bool:
    """Return True if the user's running line is in a `try` for files that are not there.

    With `or_any` also in one for any error, after which the function goes on with a value of its own.
    """
    frame = next(user_frames(), None)
    return frame is not None and _expects(frame.f_code.co_filename, frame.f_lineno, or_any=or_any)


@functools.cache
def _expects(path: str, line: int, *, or_any: bool) -> bool:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Try)
        and node.lineno <= line <= (node.body[-1].end_lineno or line)
        and any(
            _EXPECTED & _names_in(handler.type) if handler.type is not None else or_any and _replaces(node, handler)
            for handler in node.handlers
        )
        for node in ast.walk(tree)
    )


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _replaces(node: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Return True if what a `try` gives a name has another value in the handler: `states = []`."""
    given, instead = (
        {ast.unparse(target) for each in body if isinstance(each, ast.Assign) for target in each.targets}
        for body in (node.body, handler.body)
    )
    return bool(given & instead)


def _made_names(beginnings: Iterable[str], suffix: str) -> list[str]:
    """Return the names of files that are made up for a folder: a beginning with a number, or the number alone."""
    names = [f"{each}_{i:06}{suffix}" for each in beginnings for i in range(forms.num_files)]
    return [f"{i:06}{suffix}" for i in range(len(names))] if forms.has_numbered_files else names


def _lists_inside() -> bool:
    """Return True if the running function of the user lists what is in a folder, and then what is in that."""
    frame = next(user_frames(), None)
    if frame is None or frame.f_code.co_name == "<module>":
        return False
    instructions = list(dis.get_instructions(frame.f_code))
    listing = next((each.offset for each in instructions if each.argval in _LISTS), None)
    if listing is None:
        return False
    loops = [range(each.offset, each.argval) for each in instructions if each.opname == "FOR_ITER"]
    if any(listing < loop.start and frame.f_lasti in loop for loop in loops):
        return False  # it is the inner folder; since Python 3.12 comprehensions are loops of the function itself
    again = [each.offset for each in instructions if each.argval in (*_LISTS, *_LOOKS) and each.offset > listing]
    comprehensions = (value for value in frame.f_code.co_consts if _is_comprehension(value))
    return any(listing < loop.start and at in loop for loop in loops for at in again) or any(
        name in (*_LISTS, *_LOOKS) for each in comprehensions for name in _called(each)
    )


def _called(code: CodeType) -> Iterator[str]:
    """Yield the names of methods and functions in the order of the code, those of its comprehensions last."""
    for each in dis.get_instructions(code):
        is_plain = "GLOBAL" in each.opname and not isinstance(sys.modules.get(str(each.argval)), ModuleType)
        if isinstance(each.argval, str) and ("ATTR" in each.opname or "METHOD" in each.opname or is_plain):
            yield each.argval
    for value in code.co_consts:
        if _is_comprehension(value):
            yield from _called(value)


def _is_comprehension(value: object) -> TypeGuard[CodeType]:
    return isinstance(value, CodeType) and value.co_name.startswith("<")


def _suffix_asked_for(*, of_media: bool = False) -> str:
    """Return the end of file names that the running function of the user, or one that calls it, names in a string.

    With `of_media`, and where media are read, the ends of images, recordings and the like alone count. Where none does,
    a function that reads images, or that has a name or a file of images, has images.
    """
    called = ""
    for number, frame in enumerate(user_frames()):
        if number and frame.f_code.co_name == "<module>":
            break  # which names much else
        reads = _kind_read_by(frame)
        called += f" {PurePath(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname} {reads}"
        named = _named_strings(frame.f_code, frame.f_globals), _strings_of_methods(frame)
        for value in itertools.chain(_strings(frame.f_code.co_consts), *named):
            match = re.fullmatch(r"(\*?\.)?(\w+)", value)
            kind = kind_by_name(f"file.{match[2]}") if match else ""
            is_weights = number and f".{match[2]}" in _SAVED if match else False  # saved later by who calls
            is_any = match is not None and match[1] and not (of_media or reads)  # `name.endswith("png")`
            is_end = (kind in _MEDIA and value != "off") or is_any  # which is an end of meshes with its dot alone
            if match and kind and not is_weights and is_end:
                return f".{match[2]}"
    return ".png" if re.search(r"(?i)image|img", called) else ""


def _choosing_lines() -> str:
    """Return the user's line that lists a folder, and the lines around that may choose among the names of its files."""
    frame = next(user_frames(), None)
    if frame is None:
        return ""
    lines, own = linecache.getlines(frame.f_code.co_filename), frame.f_lineno - 1
    return "".join([*lines[own : own + 1 + _LINES_OF_CHOICE], *lines[max(own - 1, 0) : own]])


def _named_strings(code: CodeType, variables: Mapping[str, Any], *, is_called: bool = False) -> Iterator[str]:
    """Yield the strings in collections of the module that code names, or a function that it calls: `is_image(name)`."""
    codes = (code, *filter(_is_comprehension, code.co_consts))
    for value in (variables[name] for each in codes for name in each.co_names if name in variables):
        if isinstance(value, list | tuple | set | frozenset):
            yield from (each for each in value if isinstance(each, str))
        elif isinstance(value, FunctionType) and not is_called:
            yield from _strings(value.__code__.co_consts)
            yield from _named_strings(value.__code__, value.__globals__, is_called=True)


def _strings_of_methods(frame: FrameType) -> Iterator[str]:
    """Yield the strings in methods of its own object that a running method names: `self._check(names)`."""
    methods = vars(type(variables_of(frame).get("self")))
    for name in frame.f_code.co_names:
        method = getattr(methods.get(name), "__func__", methods.get(name))  # of a static method, too
        if isinstance(method, FunctionType):
            yield from _strings(method.__code__.co_consts)


def _strings(constants: tuple[Any, ...]) -> Iterator[str]:
    for value in constants:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from _strings(tuple(value))
        elif _is_comprehension(value):  # or a lambda
            yield from _strings(value.co_consts)
