"""Saving of tensors without memory, and files that code outside Python reads or writes.

PyTorch's archives store such a tensor as `memlint.cuda.facade.serialization` writes it, with the number of bytes that
it stands for.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import zipfile
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.private import REDUCE, SAVE, compiled
from memlint.base.after_import import after_import
from memlint.workloads.safetensors_files import replace_safetensors

if TYPE_CHECKING:
    from memlint.script.file_system import FileSystem
    from memlint.script.replacing import Replacing

_RECORD = "memlint_nbytes"
Tensor = torch.Tensor


def replace_writers(replacing: Replacing, files: FileSystem | None) -> None:
    """Make tensors without memory savable, and make writers and readers outside Python see `files`, if any."""
    _count_saved(replacing)
    after_import("safetensors", _import_safetensors_torch)
    after_import("safetensors.torch", lambda module: replace_safetensors(module, replacing.put, files))
    if files is None:
        return
    writing, reading = files.writing, files.reading
    for owner, name, mapped in (
        (compiled, "PyTorchFileWriter", writing),
        (torch, "load", reading),
        (torch, "from_file", reading),
        (torch.jit, "load", reading),
        (torch.autograd.profiler.profile, "export_chrome_trace", writing),
        (sqlite3, "connect", lambda path: path if _is_no_file(path) else files.updating(path)),
        (sqlite3.dbapi2, "connect", lambda path: path if _is_no_file(path) else files.updating(path)),
    ):
        position = int(isinstance(owner, type))
        replacing.put(owner, name, mapping(getattr(owner, name), position, mapped))
    for saver in (torch.jit, torch.jit.ScriptModule):
        replacing.put(saver, "save", mapping(vars(saver)["save"], 1, writing))
    replacing.put(np.memmap, "__new__", _updating_memory(np.memmap.__new__, files))
    after_import("pyarrow", lambda module: replacing.put(module, "memory_map", mapping(module.memory_map, 0, reading)))
    after_import("tokenizers", lambda module: _save_tokenizers(module, replacing, files))
    after_import("h5py", lambda module: replacing.put(module.File, "__init__", _hdf5(module.File.__init__, files)))
    after_import("cv2", lambda module: _write_pictures(module, replacing, files))


def _write_pictures(module: ModuleType, replacing: Replacing, files: FileSystem) -> None:
    for name in ("imwrite", "VideoWriter"):
        replacing.put(module, name, mapping(getattr(module, name), 0, files.writing))


def _hdf5(init: Callable[..., None], files: FileSystem) -> Callable[..., None]:
    """Let a file of h5py, whose library opens it itself, be where the script's other files are."""

    def initialize(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if isinstance(name, str | bytes | os.PathLike) and not kwargs.get("driver"):
            mapped = {"r": files.reading, "r+": files.updating, "a": files.updating}.get(mode, files.writing)
            name = mapped(name)
        init(self, name, mode, *args, **kwargs)

    return initialize


def _import_safetensors_torch(_package: ModuleType) -> None:
    """Replace its functions before any code takes one out of the package."""
    importlib.import_module("safetensors.torch")


def mapping(function: Callable[..., Any], position: int, mapped: Callable[[Any], Any]) -> Callable[..., Any]:
    """Wrap `function` so that `mapped` replaces the path among its arguments at `position`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and isinstance(args[position], str | bytes | os.PathLike):
            args = (*args[:position], mapped(args[position]), *args[position + 1 :])
        for name in ("f", "path", "database", "filename", "uri", "file", "source"):
            if isinstance(kwargs.get(name), str | bytes | os.PathLike):
                kwargs[name] = mapped(kwargs[name])
        return function(*args, **kwargs)

    return call


def _is_no_file(database: Any) -> bool:
    return os.fsdecode(database).startswith((":memory:", "file:")) or not database


def _updating_memory(new: Callable[..., Any], files: FileSystem) -> Callable[..., Any]:
    """Replace `numpy.memmap` by one that keeps its changes to files of others, which are large, in memory.

    So does one of a file that is not there: if anything, it reads a fake one.
    """

    def memmap(cls: type, filename: Any, dtype: Any = np.uint8, mode: str = "r+", *args: Any, **kwargs: Any) -> Any:
        if mode in ("r+", "readwrite") and isinstance(filename, str | os.PathLike):
            is_written = os.path.exists(filename) and not files.is_machines(filename)  # noqa: PTH110
            mode = mode if is_written else "c"
        return new(cls, filename, dtype, mode, *args, **kwargs)

    return memmap


def _save_tokenizers(module: ModuleType, replacing: Replacing, files: FileSystem) -> None:
    replacing.put(module.Tokenizer, "save", mapping(module.Tokenizer.save, 1, files.writing))
    replacing.put(module.Tokenizer, "from_file", mapping(module.Tokenizer.from_file, 0, files.reading))


# --- PyTorch's archives


def _count_saved(replacing: Replacing) -> None:
    """Make each archive of PyTorch record the bytes of the tensors without memory that it stores."""
    save: Callable[..., None] = vars(torch.serialization)[SAVE]
    reduce: Callable[..., Any] = vars(torch.Tensor)[REDUCE]
    archives: list[dict[int, int]] = []
    """For each open archive: bytes of the saved storages, by their number."""

    def reduce_tensor(tensor: Tensor, protocol: int) -> Any:
        if archives and is_virtual(tensor) and tensor.layout is torch.strided:
            archives[-1][entry_of(tensor).number] = tensor.untyped_storage().nbytes()
        return reduce(tensor, protocol)

    def save_counting(obj: object, archive: Any, *args: Any, **kwargs: Any) -> None:
        archives.append({})
        try:
            save(obj, archive, *args, **kwargs)
        finally:
            nbytes = sum(archives.pop().values())
        if nbytes:
            text = str(nbytes)
            archive.write_record(_RECORD, text, len(text))

    replacing.put(torch.serialization, SAVE, save_counting)
    replacing.put(torch.Tensor, REDUCE, reduce_tensor)


def nbytes_of(path: str) -> int:
    """Return the bytes that the file `path` would have on a real device."""
    nbytes = os.path.getsize(path)  # noqa: PTH202
    with open(path, "rb") as file:  # noqa: PTH123
        if file.read(2) != b"PK":
            return nbytes
    try:
        with zipfile.ZipFile(path) as archive:
            records = [name for name in archive.namelist() if name.endswith(f"/{_RECORD}")]
            return nbytes + sum(int(archive.read(name)) for name in records)
    except (zipfile.BadZipFile, ValueError, OSError):
        return nbytes
