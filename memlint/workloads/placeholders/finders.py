"""Import hooks that give the user's files a placeholder for a package."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

from memlint.base.after_import import after_import
from memlint.base.guarded_imports import is_guarded
from memlint.memory.records import Frame
from memlint.workloads.known_packages import NEEDS, STOOD_FOR
from memlint.workloads.missing_modules import is_of_cython
from memlint.workloads.placeholders.absent_packages import record
from memlint.workloads.placeholders.import_lines import asking, behind_package, is_optional
from memlint.workloads.placeholders.objects import PlaceholderModule
from memlint.workloads.placeholders.uncompiled import stand_in_for_what_is_not_compiled


def expect(names: Sequence[str]) -> None:
    """Replace these packages, installed or not, by placeholders in files that are imported from now on."""
    record.replaced.update(dict.fromkeys(names))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def expect_in_script(names: Sequence[str], required: Callable[[], Iterable[str]], *, quiet: bool = False) -> None:
    """Replace these packages by placeholders that do nothing in a script, and packages that are missing there as well.

    `required` gives all packages that the script has to import and that may be missing. With `quiet` no placeholder
    fails, whatever it stands for: only what the script builds is asked for.
    """
    expect(names)
    record.is_quiet = quiet
    record.quiet.update(names)
    record.in_script, record.required = True, required
    sys.meta_path.append(_MissingFinder())
    after_import("torch.utils.cpp_extension", stand_in_for_what_is_not_compiled)


class _Finder(MetaPathFinder, Loader):
    """Import hook that gives the user's files a placeholder for each module in the record, with its first import."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        name = next((name for name in record.replaced if f"{fullname}.".startswith(f"{name}.")), None)
        if name is None:
            needed = NEEDS.get(fullname) if record.in_script else None
            if needed is None or importlib.util.find_spec(needed):
                return None
            return self.stand_in(fullname, behind_package(fullname.partition(".")[0]))
        if not isinstance(sys.modules.get(fullname.rpartition(".")[0]), PlaceholderModule):
            frame = asking()
            if frame is None or (record.replaced[name] and is_guarded(frame.f_code.co_filename, frame.f_lineno)):
                return None
        return ModuleSpec(fullname, self, is_package=True)

    def stand_in(self, fullname: str, frame: FrameType | None) -> ModuleSpec | None:
        """Give the user's file that imports in `frame` a placeholder for a module, if it cannot do without it."""
        if frame is None or is_guarded(frame.f_code.co_filename, frame.f_lineno) or is_optional(frame.f_back):
            return None
        if fullname in STOOD_FOR:
            return None
        record.replaced[fullname] = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_finder = _Finder()


class _MissingFinder(MetaPathFinder):
    """Import hook behind all others: it finds what the files of a script import and nobody else has found."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        package = fullname.rpartition(".")[0]
        if package and not isinstance(sys.modules.get(package), PlaceholderModule):
            return self._built(fullname)
        return _finder.stand_in(fullname, asking())

    def _built(self, fullname: str) -> ModuleSpec | None:
        """Give a module of the project that nobody has built a placeholder that does nothing, as it runs on the CPU.

        What else is missing in a package is of another version of it, or a file of the user's that is not there.
        """
        frame = asking()
        if frame is None or not is_of_cython(fullname, frame.f_code.co_filename):
            return None
        record.quiet.add(fullname)
        return _finder.stand_in(fullname, frame)
