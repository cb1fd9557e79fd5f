"""Quick dataclasses are those of Python, made in less time."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

import pytest

from memlint.base import quick_dataclasses

quick = quick_dataclasses._quick


def both(options):
    """The same classes, made by Python and quickly."""

    def plain():
        class Point:
            """A point."""

            x: int
            names: tuple[str, ...] = ()
            others: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)
            dimensions: ClassVar[int] = 2

            def __post_init__(self):
                if self.x < 0:
                    raise ValueError("negative")

        Point.__module__, Point.__qualname__ = "memlint.base.quick_dataclasses", "Point"
        return Point

    return dataclasses.dataclass(plain(), **options), quick(plain(), **options)


@pytest.fixture(params=[{"frozen": True}, {"frozen": True, "slots": True}], ids=str)
def classes(request):
    return both(request.param)


def test_they_are_made_and_shown_and_compared_as_pythons(classes):
    usual, own = classes
    assert own.__init__.__code__ is not usual.__init__.__code__
    assert own.__eq__.__closure__ is not None, "made by Python"
    parameters = [list(inspect.signature(each).parameters) for each in classes]
    assert parameters[0] == parameters[1] == ["x", "names", "others"]
    assert own.__match_args__ == usual.__match_args__
    assert own.__init__.__annotations__ == usual.__init__.__annotations__
    assert hasattr(own(1), "__dict__") == hasattr(usual(1), "__dict__")
    for kind in classes:
        first, same, other = kind(1, ("a",)), kind(1, names=("a",), others={"b": 1}), kind(2)
        assert repr(first).endswith("Point(x=1, names=('a',))")
        assert (first == same, hash(first) == hash(same), first != other) == (True, True, True)
        assert first != (1, ("a",), {})
        assert first.others == {}
        assert first.others is not kind(1).others
        assert dataclasses.replace(first, x=3) == kind(3, ("a",))
        assert dataclasses.asdict(first) == {"x": 1, "names": ("a",), "others": {}}
        assert copy.copy(first) == first == copy.deepcopy(first)
        with pytest.raises(ValueError, match="negative"):
            kind(-1)
        with pytest.raises(TypeError):
            kind()


def test_they_are_frozen(classes):
    for kind in classes:
        point = kind(1)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            point.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del point.x


def test_they_can_be_pickled(classes, monkeypatch):
    for kind in classes:
        monkeypatch.setattr(quick_dataclasses, "Point", kind, raising=False)
        assert pickle.loads(pickle.dumps(kind(1, ("a",)))) == kind(1, ("a",))


def test_others_may_inherit_from_them(classes):
    for kind in classes:

        @dataclasses.dataclass(frozen=True)
        class Place(kind):
            """One with a name."""

            name: str = "here"

        place = Place(1)
        assert (place.x, place.name, place == Place(1)) == (1, "here", True)
        with pytest.raises(dataclasses.FrozenInstanceError):
            place.name = "there"


def test_those_of_other_packages_and_unusual_ones_are_pythons():
    def made(**options):
        class Thing:
            """One."""

            value: int = 1

        Thing.__module__ = options.pop("module", "memlint.base.quick_dataclasses")
        return quick(Thing, **options).__eq__.__closure__

    assert made(frozen=True) is not None
    assert made(frozen=True, module="torch.nn") is None
    assert made() is made(frozen=True, order=True) is made(frozen=True, kw_only=True) is None


def test_modules_of_the_command_have_them_and_user_code_does_not():
    code = (
        "import dataclasses, sys; sys.argv[1:] = ['check', '--no-exec', 'nothing.py']\n"
        "try:\n    import memlint.__main__\nexcept SystemExit:\n    pass\n"
        "from memlint.memory.timeline import Timeline\n"
        "assert (Timeline.__eq__.__closure__ is not None) == (sys.version_info < (3, 13))\n"
        "assert dataclasses.dataclass.__module__ == 'dataclasses'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
