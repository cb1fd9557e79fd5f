"""A file system over another: the same calls give the same answers, and the one below stays as it is."""

import errno
import os
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memlint.script.file_system import FileSystem
from memlint.script.overlay import Overlay
from tests.script.isolated import tree

PATHS = st.sampled_from(["a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "n", "n/m", "l", "l/x", "up"])
CALLS = st.one_of(
    st.tuples(st.sampled_from(["read", "write", "append", "update", "exclusive", "list", "scan", "size"]), PATHS),
    st.tuples(st.sampled_from(["mkdir", "remove", "rmdir", "rmtree", "truncate", "touch", "kind", "readlink"]), PATHS),
    st.tuples(st.sampled_from(["rename", "symlink", "copy"]), PATHS, PATHS),
)


def below(folder: Path) -> None:
    (folder / "d/e").mkdir(parents=True)
    for name in ("a", "d/x", "d/y", "d/e/z"):
        (folder / name).write_text(f"{name} of the machine", encoding="utf-8")
    (folder / "l").symlink_to("d")
    (folder / "up").symlink_to("a")


def outcome(files, folder: Path, call: tuple[str, ...]) -> object:  # noqa: C901 -- a line a call
    """What a call gives, as text or as the number of its error; texts that are written name the call."""
    kind, path, *rest = call
    place, other = folder / path, [folder / name for name in rest]
    opened = {"write": "w", "append": "a", "update": "r+", "exclusive": "x"}
    try:
        match kind:
            case "read":
                with files.open_file(place, encoding="utf-8") as file:
                    return file.read()
            case "write" | "append" | "update" | "exclusive":
                with files.open_file(place, opened[kind], encoding="utf-8") as file:
                    file.write(f"<{kind}>")
            case "list":
                return sorted(files.listdir(place))
            case "scan":
                with files.scandir(place) as entries:
                    return sorted((e.name, e.is_dir(), e.is_file(), e.is_symlink(), e.path[-4:]) for e in entries)
            case "size":
                return files.stat(place).st_size if not place.name.startswith(("d", "n", "e", "l", "m")) else None
            case "kind":
                return files.lstat(place).st_mode >> 12
            case "mkdir":
                files.mkdir(place)
            case "remove":
                files.remove(place)
            case "rmdir":
                files.rmdir(place)
            case "rmtree":
                remove_tree(files, place)
            case "truncate":
                files.truncate(place, 3)
            case "touch":
                files.utime(place, (1, 1))
            case "readlink":
                return files.readlink(place)
            case "rename":
                files.rename(place, other[0])
            case "symlink":
                files.symlink(path, other[0])
            case "link":
                files.link(place, other[0], follow_symlinks=False)
            case "copy":
                with files.open_file(place, "rb") as source:
                    content = source.read()
                with files.open_file(other[0], "wb") as target:
                    target.write(content)
    except OSError as error:
        # A folder that is none may be called missing, and of several reasons not to rename any will do.
        if kind == "rename":
            return "refused"
        return errno.errorcode[errno.ENOENT if error.errno == errno.ENOTDIR else error.errno]
    return None


def remove_tree(files, place: Path) -> None:
    for name in files.listdir(place):
        inner = place / name
        if files.lstat(inner).st_mode >> 12 == 4:
            remove_tree(files, inner)
        else:
            files.remove(inner)
    files.rmdir(place)


class Machine:
    """The system's own functions."""

    def __getattr__(self, name):
        return open if name == "open_file" else getattr(os, name)


@settings(max_examples=150)
@given(calls=st.lists(CALLS, max_size=12))
@example(calls=[("rmtree", "d"), ("mkdir", "d"), ("list", "d"), ("list", "l"), ("write", "d/x"), ("scan", "d")])
@example(calls=[("rename", "d", "n"), ("mkdir", "d"), ("read", "n/e/z"), ("rename", "n", "d"), ("list", "d")])
@example(calls=[("append", "up"), ("read", "a"), ("remove", "up"), ("list", "."), ("read", "up")])
@example(
    calls=[("symlink", "d", "n"), ("write", "n/x"), ("read", "d/x"), ("remove", "n"), ("mkdir", "n"), ("list", "n")]
)
@example(calls=[("link", "a", "b"), ("remove", "a"), ("read", "b"), ("link", "d", "n"), ("link", "n", "b")])
def test_what_a_script_sees_is_what_it_would_see_without_an_overlay(calls):
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        mine, theirs, scratch = (home / name for name in ("mine", "theirs", "scratch"))
        scratch.mkdir()
        for each in (mine, theirs):
            below(each)
        before = tree(theirs)
        files = FileSystem(Overlay(scratch, (Path("/proc"),)))
        for call in calls:
            assert outcome(files, theirs, call) == outcome(Machine(), mine, call), call
        for call in [
            ("list", ""),
            *((kind, path) for path in ("a", "b", "d", "d/x", "n", "l/x") for kind in ("read", "list")),
        ]:
            assert outcome(files, theirs, call) == outcome(Machine(), mine, call), call
        assert tree(theirs) == before
