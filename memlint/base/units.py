"""Sizes in bytes: parsed from text, formatted for people and compared with a limit; and counts of things."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from memlint.base.errors import UsageError

LARGEST_SIZE = 2**31 - 1
"""Largest value of the batch or another named dimension. Many PyTorch kernels count them in 32 bits."""

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
"""Plausible CUDA contexts in bytes: from a third of the smallest to twice the largest that was seen in a process."""

Outcome: TypeAlias = Literal["fits", "does not fit", "uncertain"]
Measure: TypeAlias = Literal["requested", "allocated", "reserved", "device"]
Quantized: TypeAlias = Literal["int8", "nf4", "fp4"]
"""Dtypes that store the weights of linear layers in 8 or 4 bits, and compute in bfloat16: not for training."""
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16", "bf16-amp", "fp16-amp", Quantized]
Mode: TypeAlias = Literal["train", "inference", "generate"]
Cache: TypeAlias = Literal["", "dynamic", "static", "quantized", "offloaded", "offloaded_static", "none"]
"""Kinds of caches of keys and values; the empty one is the model's own choice, `none` is to compute them anew."""
Compile: TypeAlias = Literal["off", "auto", "on"]

DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)
QUANTIZED: Final[tuple[Quantized, ...]] = get_args(Quantized)
_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    dict(
        zip(
            ("float", "double", "half", "long", "int", "short", "fp32", "fp64", "fp16", "bf16"),
            ("float32", "float64", "float16", "int64", "int32", "int16", "float32", "float64", "float16", "bfloat16"),
            strict=True,
        )
    )
)
"""Further names of dtypes: PyTorch's own second names, and those that people and papers write."""
_IN_BITS: Final = MappingProxyType({"8bit": "int8", "4bit": "nf4"})
_LEAST_WITHOUT_UNIT: Final = 2**20
"""Smallest size that may be written without a unit. Such a size is in bytes, and nobody means fewer bytes than this."""


def parse_nbytes(text: str) -> int:
    """Parse a size such as `24GiB`, `512 MB` or `1048576` into bytes; fractions are rounded down.

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
    """Parse the bytes of a CUDA context: a size such as `1.7GiB`, or a line of nvidia-smi with one size in it.

    `|    0   N/A  N/A     12345      C   python     412MiB |` is 412 MiB; in `412MiB / 40960MiB` the first size counts.
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
    """Return PyTorch's first name for a tensor dtype that `name` stands for; unknown names stay."""
    key = str(name).strip().lower().removeprefix("torch.")
    return _OTHER_NAMES.get(key, key)


def dtype_named(name: object) -> Dtype:
    """Return the dtype of a step from any name that people write: `bf16`, `half`, `torch.bfloat16`, in any case.

    Raises UsageError for an unknown name.
    """
    key = tensor_dtype_name(name)
    key = _IN_BITS.get(key, key)
    for dtype in DTYPES:
        if dtype == key:
            return dtype
    close = get_close_matches(key, (*DTYPES, *(other for other, of in _OTHER_NAMES.items() if of in DTYPES)), n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(f"dtype {str(name)!r} is unknown", f"{hint}Write one of {', '.join(DTYPES)}.")


def format_nbytes(nbytes: int) -> str:
    """Format `nbytes` in the largest binary unit that keeps it at least 1.

    Three significant digits, at most two decimals.
    """
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
    """Format a count with its noun: `1 finding`, `2 findings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def outcome(low: int, high: int, limit: int) -> Outcome:
    """Compare bytes, given by bounds, with a limit: `fits`, `does not fit`, or `uncertain` in between."""
    return "fits" if high <= limit else "does not fit" if low > limit else "uncertain"
