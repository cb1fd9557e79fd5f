"""Sizes in bytes, read from text, written for people and held against a limit; counts of things."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from memlint.base.errors import UsageError

LARGEST_SIZE = 2**31 - 1
"""Of the batch or another named dimension. PyTorch's kernels count many of them in 32 bits."""

_FACTORS = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_SIZE_IN_LINE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?[KMGT]i?B\b", re.IGNORECASE)
_CONTEXTS = range(32 << 20, 8 << 30)
"""From a third of the smallest to twice the largest that processes were seen to hold beside PyTorch's memory."""

Outcome: TypeAlias = Literal["fits", "does not fit", "uncertain"]
Measure: TypeAlias = Literal["requested", "allocated", "reserved", "device"]
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16", "bf16-amp", "fp16-amp"]
Mode: TypeAlias = Literal["train", "inference"]

DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)
_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    dict(
        zip(
            ("float", "double", "half", "long", "int", "short", "fp32", "fp64", "fp16", "bf16"),
            ("float32", "float64", "float16", "int64", "int32", "int16", "float32", "float64", "float16", "bfloat16"),
            strict=True,
        )
    )
)
"""PyTorch's own second names, and those that people and papers write."""
_LEAST_WITHOUT_UNIT: Final = 2**20
"""A size without a unit is in bytes; of fewer than these nobody means bytes."""


def parse_nbytes(text: str) -> int:
    """Bytes of `24GiB`, `512 MB` or `1048576`; fractions are rounded down.

    Raises UsageError for anything else, and for a small number without a unit, which nobody means as bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise UsageError(f"{text!r} is not a size", "Write a number and a unit, such as 24GiB or 512MB.")
    factor = _FACTORS[match[2].lower()]
    if not match[2] and float(match[1]) < _LEAST_WITHOUT_UNIT:
        raise UsageError(f"{match[1]!r} has no unit: {match[1]}GiB?", f"Write {match[1]}GiB or {match[1]}MiB.")
    return int(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor


def parse_context(text: str) -> int:
    """Bytes of a CUDA context: a size as `1.7GiB`, or text with one size in it, as a line of nvidia-smi has.

    `|    0   N/A  N/A     12345      C   python     412MiB |` is 412 MiB; of `412MiB / 40960MiB` the first counts.
    Raises UsageError for text with no size or several, and for more than any context takes.
    """
    sizes = _SIZE_IN_LINE.findall(re.sub(r"/\s*\d+\s?[KMGT]i?B", "", text)) if _SIZE.fullmatch(text) is None else [text]
    hint = "Give a size such as 512MiB, or the line of one process from nvidia-smi."
    if len(sizes) != 1:
        problem = "names no size" if not sizes else "names several sizes"
        raise UsageError(f"the context {text.strip()!r} {problem}", hint)
    try:
        nbytes = parse_nbytes(sizes[0])
    except UsageError:
        raise UsageError(f"the context {text.strip()!r} has no unit", hint) from None
    if nbytes not in _CONTEXTS:
        raise UsageError(
            f"{format_nbytes(nbytes)} is no CUDA context",
            "Give what a process holds beside PyTorch's memory: what nvidia-smi shows less memory_reserved.",
        )
    return nbytes


def tensor_dtype_name(name: object) -> str:
    """PyTorch's first name of the dtype of a tensor, of which `name` may be another; what is unknown stays."""
    key = str(name).strip().lower().removeprefix("torch.")
    return _OTHER_NAMES.get(key, key)


def dtype_named(name: object) -> Dtype:
    """The dtype of a step by any name that people write: `bf16`, `half`, `torch.bfloat16`, in any case.

    Raises UsageError for a name that is none of them.
    """
    key = tensor_dtype_name(name)
    for dtype in DTYPES:
        if dtype == key:
            return dtype
    close = get_close_matches(key, (*DTYPES, *(other for other, of in _OTHER_NAMES.items() if of in DTYPES)), n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(f"dtype {str(name)!r} is unknown", f"{hint}Write one of {', '.join(DTYPES)}.")


def format_nbytes(nbytes: int) -> str:
    """`nbytes` in the largest binary unit that keeps it at least 1: three significant digits, at most two decimals."""
    sign = "-" if nbytes < 0 else ""
    value = float(abs(nbytes))
    if value < 1024:
        return f"{sign}{int(value)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if round(value, 1) < 1024 or unit == "TiB":
            break
    return f"{sign}{value:.2f} {unit}" if value < 10 else f"{sign}{value:.1f} {unit}"


def format_count(number: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def outcome(low: int, high: int, limit: int) -> Outcome:
    """Whether bytes, of which only bounds may be known, stay within a limit; `uncertain` where it lies between them."""
    return "fits" if high <= limit else "does not fit" if low > limit else "uncertain"
