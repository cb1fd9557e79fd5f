"""Files of safetensors, written from and read into tensors that may have no memory.

The library is compiled and reads and writes at `data_ptr()`, where a tensor without memory has nothing. Files written
here are complete; for unknown values they have a hole, which takes no space on the disk and reads as zeros.
"""

from __future__ import annotations

import functools
import json
import math
import os
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Protocol

import torch

from memlint.accelerator import values
from memlint.accelerator.device import is_virtual
from memlint.base.after_import import after_import
from memlint.workloads.missing_checkpoints import Put

Tensor = torch.Tensor

_KNOWN_NBYTES = 2**18
"""Larger tensors whose elements are all one number are saved without their values."""


class Paths(Protocol):
    """Knows where the files of a program really are."""

    def writing(self, path: Any) -> Any:
        """Return the place of a file that is written."""

    def reading(self, path: Any) -> Any:
        """Return the place of a file that is read."""


@functools.cache
def save_without_memory() -> None:
    """Make the functions of `safetensors.torch` accept tensors without memory in this process, for good."""
    after_import("safetensors.torch", lambda module: replace_safetensors(module, setattr))


def replace_safetensors(module: ModuleType, put: Put, files: Paths | None = None) -> None:
    """Make the functions of `safetensors.torch` accept tensors without memory, and the paths of `files`, if any."""
    names = {dtype: name for name, dtype in module._TYPES.items()}
    real_open, real_save, real_save_file = module.safe_open, module.save, module.save_file

    def save_file(tensors: dict[str, Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
        if _has_memory(tensors):
            real_save_file(tensors, filename if files is None else files.writing(filename), metadata)
            return
        _refuse_shared(tensors, module)
        with Path(filename).open("wb") as file:
            _write(file, tensors, metadata, names)

    def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
        if _has_memory(tensors):
            return bytes(real_save(tensors, metadata))
        _refuse_shared(tensors, module)
        header, order = _header(tensors, metadata, names)
        return b"".join([header, *(_content(tensor).ljust(_nbytes(tensor), b"\0") for tensor in order)])

    def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        if framework not in ("pt", "torch", "pytorch"):
            return real_open(filename if files is None else files.reading(filename), framework, device, **options)
        return Opened(filename, device, module._TYPES)

    replaced = {id(real_save): save, id(real_save_file): save_file, id(real_open): safe_open}
    for user in list(sys.modules.values()):  # some have taken them out of the package before
        for name, value in list(vars(user).items()) if isinstance(user, ModuleType) else ():
            if id(value) in replaced:
                put(user, name, replaced[id(value)])


def _has_memory(tensors: Any) -> bool:
    """Return True if the library itself can save them, or must report that they are no dictionary of tensors."""
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        return True
    return not any(map(is_virtual, tensors.values()))


def _refuse_shared(tensors: dict[str, Tensor], module: ModuleType) -> None:
    """Raise the library's own errors for tensors that it does not accept."""
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided:
            raise ValueError(f"You are trying to save a sparse tensors: `{[name]}` which this library does not support")
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call `.contiguous()`"
                " on your tensor to pack it before saving."
            )
    shared = [group for group in module._find_shared_tensors(tensors) if len(group) > 1]
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when"
            f" loading them again: {shared}. A potential way to correctly save your model is to use `save_model`."
        )


def _header(
    tensors: dict[str, Tensor], metadata: dict[str, str] | None, names: dict[torch.dtype, str]
) -> tuple[bytes, list[Tensor]]:
    """Return the header of a file, and the tensors in the order of their bytes."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name in order:
        start, end = end, end + _nbytes(tensors[name])
        shape = list(tensors[name].shape)
        header[name] = {"dtype": names[tensors[name].dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [tensors[name] for name in order]


def _write(
    file: BinaryIO, tensors: dict[str, Tensor], metadata: dict[str, str] | None, names: dict[torch.dtype, str]
) -> None:
    header, order = _header(tensors, metadata, names)
    file.write(header)
    for tensor in order:
        start = file.tell()
        file.write(_content(tensor))
        file.seek(start + _nbytes(tensor))
    file.truncate()


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _content(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor; none if they are unknown, or if many are the same."""
    tensor = tensor.detach()
    if is_virtual(tensor):
        if values.content(tensor) is None and (values.uniform_value(tensor) is None or _nbytes(tensor) > _KNOWN_NBYTES):
            return b""
        tensor = values.real_copy(tensor)
    content: bytes = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return content


class Opened:
    """`safetensors.safe_open` for PyTorch: large tensors have no memory."""

    def __init__(self, filename: Any, device: Any, dtypes: dict[str, torch.dtype]) -> None:
        """Read the header of the file `filename`. Tensors are put on `device`."""
        self._device = torch.device("cuda", device) if isinstance(device, int) else torch.device(str(device))
        self._dtypes = dtypes
        self._file = Path(filename).open("rb")  # noqa: SIM115 -- for as long as tensors are asked for
        length = struct.unpack("<Q", self._file.read(8))[0]
        self._tensors: dict[str, dict[str, Any]] = json.loads(self._file.read(length))
        self._metadata: Any = self._tensors.pop("__metadata__", None)
        self._start = 8 + length

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata stored beside the tensors."""
        metadata: dict[str, str] | None = self._metadata
        return metadata

    def keys(self) -> list[str]:
        """Return the names of the tensors, sorted."""
        return sorted(self._tensors)

    def offset_keys(self) -> list[str]:
        """Return the names of the tensors in the order of their bytes."""
        return sorted(self._tensors, key=lambda name: self._tensors[name]["data_offsets"])

    def get_tensor(self, name: str) -> Tensor:
        """Return the tensor `name` on the device. Raises SafetensorError if there is none."""
        if name not in self._tensors:
            from safetensors import SafetensorError  # noqa: PLC0415 -- nobody but those who have it comes here

            raise SafetensorError(f"File does not contain tensor {name}")
        record = self._tensors[name]
        tensor = torch.empty(record["shape"], dtype=self._dtypes[record["dtype"]], device="cpu")
        if not is_virtual(tensor) and tensor.numel():
            start, end = record["data_offsets"]
            # threads read one file at a time, which has one position
            read = os.pread(self._file.fileno(), end - start, self._start + start)
            content = torch.frombuffer(bytearray(read), dtype=tensor.dtype)
            tensor = content.reshape(tensor.shape)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)

    def get_tensors(self) -> dict[str, Tensor]:
        """Return all tensors, by name."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        """Return the tensor `name` for reading parts of it."""
        return Slice(self, name, self._tensors[name])


class Slice:
    """A tensor of a file, for reading parts of it."""

    def __init__(self, opened: Opened, name: str, record: dict[str, Any]) -> None:
        """Represents the tensor `name` of the file `opened`, as its header describes it."""
        self._opened, self._name, self._record = opened, name, record

    def get_shape(self) -> list[int]:
        """Return its shape."""
        return list(self._record["shape"])

    def get_dtype(self) -> str:
        """Return its dtype as the format names it, such as F32."""
        return str(self._record["dtype"])

    def __getitem__(self, index: Any) -> Tensor:
        part = self._opened.get_tensor(self._name)[index]
        return part if part.numel() == math.prod(self._record["shape"]) else part.contiguous().clone()
