"""The ways in which a script ends its process, and the preparations for an answer from the middle of it."""

from __future__ import annotations

import builtins
import os
import re
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from memlint.accelerator.lazy_imports import is_stand_in
from memlint.base.errors import MemlintError
from memlint.base.frames import causes, chain, is_out_of_host_memory, line_of, text_of, user_lines
from memlint.base.ownership import is_users
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.script.overlay import real
from memlint.targets.script import END_SIGNAL, Ending
from memlint.workloads.absent_weights import unknown_settings
from memlint.workloads.environment_variables import absent_setting
from memlint.workloads.missing_modules import installed_without
from memlint.workloads.notes import replaced
from memlint.workloads.pinned_versions import of_another_time
from memlint.workloads.placeholders.absent_packages import AbsentError, has_called, lacking
from memlint.workloads.user_errors import describe, is_of_parser, meant_options, missing_package, user_line, what_to_do

if TYPE_CHECKING:
    from memlint.base.patching import Patch

_OURS = frozenset((END_SIGNAL, getattr(signal, "SIGUSR1", END_SIGNAL)))
"""Signals that a script cannot handle or block; at the second one it writes where it is."""
_ASSERTED_VERSION = re.compile(r"(\w+)\.__version__\s*==\s*[\"']([\w.]+)")
_INSTALLS = re.compile(r"(?i)\b(?:pip3?|conda|apt(?:-get)?) install|\bplease install\b")
_URL = re.compile(r"\w+://\S+")
_WANTED_MODEL = re.compile(r"(?:wants the (?:model|pipeline) '|loads )([\w./-]+).*?, which is not on this machine")
_WANTS_PATH = re.compile(r"raise\b|assert\b.*\b(?:exists|is_?file|is_?dir)\(")
"""A line that ends a script, perhaps as nothing is at a path."""
_PATH = re.compile(r"(?:\.{0,2}/)?[\w.-]+/[\w./*+-]+")
_MOST_REPLACED = 4
_MOST_SAID = 200
"""Characters of a script's last words that its ending repeats."""
"""Things that were made up and that a message names."""
_STACK_FRAMES = 2000
"""Stack depth that an answer may need."""
_SYSTEM = tuple(module for name in ("os", "posix") if (module := sys.modules.get(name)) is not None)
_set_mask: Callable[[int, Iterable[int]], Any] = getattr(signal, "pthread_sigmask", lambda _how, _numbers: None)


Handler = Callable[[int, FrameType | None], Any]

_exit = os._exit
"""The original `os._exit`; scripts may replace it."""


class Interpreter:
    """State of the interpreter that memlint needs, from before the script ran."""

    def __init__(self) -> None:
        self._builtins = dict(vars(builtins))
        # Once the script has loaded a real module, to put back its stand-in would have it loaded a second time.
        self._modules = {name: module for name, module in sys.modules.items() if not is_stand_in(module)}
        self._all_modules = sys.modules
        self._path, self._finders, self._hooks = list(sys.path), list(sys.meta_path), list(sys.path_hooks)
        self._folder = real.getcwd()
        self._functions = sys.settrace, sys.setprofile, _set_mask, sys.setrecursionlimit, sys._getframe

    def restore(self) -> None:
        """Let memlint's code run undisturbed in this thread, whatever the script has changed in the interpreter."""
        builtins.__dict__.update(self._builtins)
        settrace, setprofile, set_mask, set_limit, frame_at = self._functions  # which it may have replaced
        settrace(None)
        setprofile(None)
        frame: FrameType | None = frame_at()
        depth = 0
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        set_limit(depth + _STACK_FRAMES)
        set_mask(signal.SIG_BLOCK, signal.valid_signals() - _OURS)
        sys.modules = self._all_modules
        sys.modules.update(self._modules)
        sys.path[:0] = self._path
        sys.meta_path[:] = self._finders + [each for each in sys.meta_path if each not in self._finders]
        sys.path_hooks[:] = self._hooks
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        with suppress(OSError):
            real.chdir(self._folder)


class End:
    """Ends the process when called with an Ending: once, in the main thread; forks of the script just exit."""

    def __init__(self, finished: Callable[[Ending], NoReturn], failed: Callable[[BaseException], NoReturn]) -> None:
        """`finished` ends the process with an answer, `failed` if that raises. Saves the interpreter's state."""
        self._finished, self._failed = finished, failed
        self._endings: list[Ending] = []
        self._interpreter = Interpreter()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def take_over(self) -> None:
        """Make this process the one to end with an answer."""
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """True if this process is the script's, and not one that it has forked."""
        return os.getpid() == self._process

    @property
    def is_urgent(self) -> bool:
        """True if the script was asked to end while it was ending."""
        return len(self._endings) > 1

    def undisturbed(self) -> None:
        """Let memlint's code run as before the script."""
        self._interpreter.restore()

    def __call__(self, ending: Ending) -> None:  # noqa: D102 -- the class says it
        if not self.is_here:
            _exit(int(ending.is_failure))
        self._endings.append(ending)
        main = threading.main_thread()
        if threading.current_thread() is not main:
            signal.pthread_kill(main.ident or 0, END_SIGNAL)
            threading.Event().wait()
        if not self._lock.acquire(blocking=False):
            return  # already ending, and called once more
        self.undisturbed()
        try:
            self._finished(self._endings[0])
        except BaseException as error:
            self._failed(error)


def exits(end: End, reason_to_end: Callable[[], str], postponing: Callable[[Handler], Handler]) -> list[Patch]:
    """Return patches that turn the ways to end a process into calls of `end`.

    `reason_to_end` returns the reason of `END_SIGNAL`: the reason of an Ending, and on another line its hint, if any.
    `postponing` wraps the script's own signal handlers.
    """
    kill, handle = os.kill, signal.signal

    def ending(name: str, *, is_failure: Callable[[Any], bool] = lambda _status: True) -> Callable[..., Any]:
        original = getattr(os, name)

        def leave(*args: Any, **kwargs: Any) -> Any:
            if end.is_here:
                shown = f"os.{name}({args[0] if args else ''!s})"
                end(Ending(f"the script ended its process with {shown}", is_failure=is_failure(*args[:1] or (1,))))
            return original(*args, **kwargs)

        return leave

    def killing(pid: int, number: int) -> None:
        if pid in (0, os.getpid()) and end.is_here and _is_deadly(number):
            name = signal.Signals(number).name
            end(Ending(f"the script ended its process with {name}", is_failure=True))
        kill(pid, number)

    def handling(number: int, handler: Any) -> Any:
        return None if number in _OURS else handle(number, postponing(handler) if callable(handler) else handler)

    def asked_to_end(_number: int, frame: FrameType | None) -> None:
        stack = (each for each in traceback.extract_stack(frame) if is_users(each.filename))
        lines = tuple(f"{each.filename}:{each.lineno} in {each.name}" for each in stack)
        reason, _, hint = reason_to_end().partition("\n")
        end(Ending(reason or "it was stopped", goes_on=True, is_failure=True, traceback=lines, hint=hint))

    handle(END_SIGNAL, asked_to_end)
    replaced: list[Patch] = [(signal, "signal", handling)]
    if hasattr(signal, "sigwaitinfo"):
        wait, wait_some_time = signal.sigwaitinfo, signal.sigtimedwait
        replaced += [
            (signal, "sigwait", lambda numbers: signal.Signals(wait(set(numbers) - _OURS).si_signo)),
            (signal, "sigwaitinfo", lambda numbers: wait(set(numbers) - _OURS)),
            (signal, "sigtimedwait", lambda numbers, seconds: wait_some_time(set(numbers) - _OURS, seconds)),
        ]
    replaced.append((signal, "pthread_sigmask", _mask))
    ways: dict[str, Callable[..., Any]] = {
        "_exit": ending("_exit", is_failure=bool),
        "abort": ending("abort"),
        "execv": ending("execv"),
        "execve": ending("execve"),
        "kill": killing,
    }
    return [*replaced, *((module, name, way) for module in _SYSTEM for name, way in ways.items())]


def _is_deadly(number: int) -> bool:
    """Return True if this signal ends the process: signals that are ignored by default do not."""
    ignored = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP, signal.SIGTSTP, 0)
    return number not in ignored and (number == signal.SIGKILL or signal.getsignal(number) is signal.SIG_DFL)


def _mask(how: int, numbers: Iterable[int]) -> Any:
    return _set_mask(how, set(numbers) - (_OURS if how != signal.SIG_UNBLOCK else set()))


def wait_for_threads() -> None:
    """Wait for the script's threads that keep a process alive, as Python does at exit."""
    threading._shutdown()  # type: ignore[attr-defined]


def ending_of(error: BaseException) -> Ending:
    """Return the Ending of a script that this exception ended."""
    lines = tuple(user_lines(error))
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return Ending("the script called sys.exit()")
        refused = is_of_parser(error)
        hint = meant_options(error) if refused else of_another_time(error)
        said = textwrap.shorten(repr(error.code), _MOST_SAID, placeholder="...")
        reason = f"the script called sys.exit({said})"
        return Ending(reason, is_failure=True, traceback=lines, hint=hint, is_refusal=refused, has_exited=True)
    named = unknown_attribute(error) or error
    if isinstance(named, MemlintError):
        hint = named.hint + (_stub(named.package) if isinstance(named, AbsentError) and named.package else "")
        lacks = re.split(r"\W", named.message)[0] if isinstance(named, AbsentError) else ""
        return Ending(named.message, is_failure=True, traceback=lines, hint=hint, lacks=lacks)
    with suppress(Exception):  # stderr may be closed
        traceback.print_exception(error)
    hint = what_to_do(error)
    error.__dict__.pop("__notes__", None)  # which are the hint
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        hint = hint or "".join(unknown_settings)
    hint = hint or absent_setting(error) or _absent_path(error)
    if not hint and has_called():
        hint = lacking(user_line(error).rpartition(":")[0])
    asserted = line_of(error) if isinstance(error, AssertionError) and not str(error) else ""
    if "__version__" in asserted:
        version = _ASSERTED_VERSION.search(asserted)
        command = f": pip install {version[1]}=={version[2]}" if version is not None else "."
        hint = hint or f"Install the version that it asks for{command}"
    says_itself = _INSTALLS.search(str(error)) is not None
    is_other = isinstance(error, ImportError | SyntaxError | OSError) or type(error) is NameError
    if replaced and not (hint or says_itself or is_other):
        others = f"; and {len(replaced) - _MOST_REPLACED} more" if len(replaced) > _MOST_REPLACED else ""
        shown = "; ".join(replaced[: -_MOST_REPLACED - 1 : -1])  # the last is the likeliest
        hint = f"The cause may be what is not there; if so, put it there: {shown}{others}."
    if (name := missing_package(error)) and not installed_without(name) and _is_of_user(error):
        hint += _stub(name.partition(".")[0])
    is_of_own = isinstance(error, ImportError) and error.path is not None and is_users(error.path)
    hint = hint or ("" if is_of_own else of_another_time(error))
    if is_out_of_host_memory(error):
        hint = "Allow more host memory with --memory-limit SIZE."
    text = ": ".join(filter(None, (_shown(error), asserted)))
    model = _WANTED_MODEL.search(hint)
    lacks = missing_package(error) or ("" if model is None else model[1])
    return Ending(f"the script raised {text}", is_failure=True, traceback=lines, hint=hint, lacks=lacks)


def _shown(error: BaseException) -> str:
    """Return an exception with its text, and the one that it was first raised from if the text does not have it.

    So is one in place of which a line of the script raises its own.
    """
    *_, first = causes(error)
    *_, handled = chain(error) if line_of(error).lstrip().startswith("raise") else (first,)
    shown, cause = map(_text, (error, handled))
    how = "from" if handled is first else "in place of"
    return shown if text_of(handled) in shown or cause == shown else f"{shown}, {how} {cause}"


def _text(error: BaseException) -> str:
    if isinstance(error, SyntaxError):  # whose own text has its line and a mark below it
        return describe(error)
    return "".join(traceback.format_exception_only(error)).strip()


def _absent_path(error: BaseException) -> str:
    """Return a hint at the path that the script asserts, or an error names, if nothing is there; else empty."""
    wanting = (
        each
        for each in chain(error)
        if isinstance(each, FileNotFoundError) or _WANTS_PATH.match(line_of(each).lstrip())
    )
    paths = [path.rstrip(".") for each in wanting for path in _PATH.findall(_URL.sub("", str(each)))]
    absent = (each for each in paths if not os.path.lexists(each.partition("*")[0]))
    return next((f"It wants {each}, which is not there: put it there." for each in absent), "")


def _stub(package: str) -> str:
    return f" If no tensor passes through it, do without it: --stub {package}."


def _is_of_user(error: BaseException) -> bool:
    """Return True if a line of the user's imports what is missing: a placeholder stands in for nobody else."""
    files = [frame.f_code.co_filename for frame, _line in traceback.walk_tb(error.__traceback__)]
    return next((is_users(file) for file in reversed(files) if not file.startswith("<frozen importlib")), False)
