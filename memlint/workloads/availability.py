"""The answer to "is there a GPU?" for files that are being imported: yes, there is one.

`DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32` then has its value on a GPU. Imports happen
outside any simulation, where tensors cannot be created on the device: memlint imports a file that creates some once
more, on a simulated GPU, and every later simulation begins with those tensors. If that import fails as well, and the
file asked for a GPU, memlint imports it without one.
"""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType

import torch

from memlint.base.ownership import is_users
from memlint.base.patching import Patch, patched
from memlint.memory.devices import Device
from memlint.memory.records import Assumption, Frame
from memlint.workloads.placeholders.second_import import forget_users
from memlint.workloads.user_errors import wants_a_gpu

_OWNERS = (torch.cuda, torch.accelerator, torch.backends.cuda, torch.version)
_QUESTIONS = ("is_available", "is_built")
_asked: dict[Frame, None] = {}
"""Lines of the user's files that asked for a GPU."""
_simulated: Device | None = None


def expect(device: Device) -> None:
    """Let files that are imported from now on find this device."""
    global _simulated  # noqa: PLW0603 -- of the process, which analyses one target
    _simulated = device if device.is_cuda and not torch.cuda.is_available() else None


def with_gpu(load: Callable[[], ModuleType]) -> ModuleType:
    """Return the module that `load` imports, with a GPU if possible, or else without.

    Passes on the exceptions of `load`.
    """
    if _simulated is None:
        return load()
    # A process that takes real steps imports this module, but no virtual device.
    from memlint.accelerator import state  # noqa: PLC0415
    from memlint.cuda.simulated import Simulated  # noqa: PLC0415

    if isinstance(state.current, Simulated):
        return _held(load)
    modules, lines = set(sys.modules), dict(_asked)
    try:
        with patched(_patches(_simulated)):
            return load()
    except Exception as error:
        wants = wants_a_gpu(error)
        if _asked == lines and not wants:
            raise
    forget_users(modules)
    if wants:
        from memlint.cuda.session import virtual_device  # noqa: PLC0415

        try:
            with virtual_device(_simulated):
                return _held(load)
        except Exception:
            if _asked == lines:
                raise
        forget_users(modules)
    _asked.clear()
    _asked.update(lines)
    return load()


def _held(load: Callable[[], ModuleType]) -> ModuleType:
    """Return the module that `load` imports on a simulated GPU; every later simulation begins with its tensors."""
    from memlint.accelerator import preexisting_tensors  # noqa: PLC0415

    with patched(_noting("")), preexisting_tensors.recording(_place):
        return load()


def _place() -> Frame | None:
    """Return the innermost running line of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def assumptions() -> list[Assumption]:
    """Return the assumption that there is a GPU, once for each line that asked at import."""
    return [Assumption("a GPU is present while the file is imported, which checks for one", frame) for frame in _asked]


def noting() -> list[Patch]:
    """Return patches that note which lines of a script's files ask for a GPU at import, while a device is simulated."""
    return _noting("<module>")


def _noting(within: str) -> list[Patch]:
    answers = [(owner, name, vars(owner).get(name)) for owner in _OWNERS for name in _QUESTIONS]
    return [(owner, name, _noted(answer, within)) for owner, name, answer in answers if answer is not None]


def _patches(device: Device) -> list[Patch]:
    # A process that takes real steps imports this module, but no virtual device.
    from memlint.accelerator.ledger import Ledger  # noqa: PLC0415
    from memlint.cuda.facade import queries  # noqa: PLC0415
    from memlint.cuda.simulated import Simulated  # noqa: PLC0415
    from memlint.cuda.workspaces import Workspaces  # noqa: PLC0415
    from memlint.memory.allocator.settings import AllocatorSettings  # noqa: PLC0415

    simulation = Simulated(ledger=Ledger(), device=device, allocator=AllocatorSettings(), workspaces=Workspaces(device))
    patches = [patch for patch in queries.patches(simulation) if patch[0] in _OWNERS]
    return [(owner, name, _noted(value) if name in _QUESTIONS else value) for owner, name, value in patches]


def _noted(answer: Callable[[], bool], within: str = "") -> Callable[[], bool]:
    def ask() -> bool:
        caller = sys._getframe(1)
        if is_users(caller.f_code.co_filename) and within in ("", caller.f_code.co_name):
            _asked[Frame(caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name)] = None
        return answer()

    return ask
