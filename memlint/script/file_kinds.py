"""The kind of data that a file holds, by its name."""

import re
from pathlib import PurePath

SHEETS = (".xlsx", ".xls")
_KINDS = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".gif"), "image"),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".m4a", ".opus"), "audio"),
    **dict.fromkeys((".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg"), "video"),
    **dict.fromkeys((".npz", ".pkl", ".pickle", ".h5", ".hdf5", ".mat", ".pt", ".pth"), "record"),
    **dict.fromkeys((".jsonl", ".ndjson"), "lines"),
    **dict.fromkeys((".bin", ".dat", ".raw"), "zeros"),
    **dict.fromkeys((".mid", ".midi"), "music"),
    **dict.fromkeys((".obj", ".off", ".ply", ".stl"), "mesh"),
    **dict.fromkeys((".pfm", ".flo"), "map"),
    ".npy": "array",
    ".json": "json",
    ".parquet": "parquet",
    ".zip": "zip",
    ".tar": "tar",
    ".xml": "xml",
    ".csv": "table",
    ".tsv": "table",
    **dict.fromkeys(SHEETS, "table"),
    ".txt": "text",
    ".model": "pieces",
}
"""Contents of files by the ends of their names."""
_OF_TOKENS = re.compile(r"token|sentencepiece|spiece|spm|bpe")
"""Part of the name of a `.model` that is a vocabulary."""
PLAIN = frozenset(("record", "lines", "json", "table", "parquet", "text", "xml"))
"""Kinds of files that need not be data: settings and lists have such names, too."""


def kind_by_name(place: str) -> str:
    """Return what a file at `place` holds, by its name: a kind; empty if that says nothing."""
    path = PurePath(place)
    suffix = path.suffix.lower()
    if path.name.lower().endswith((".nii", ".nii.gz")):
        return "nifti"
    if suffix == ".gz":
        inner = path.with_suffix("")
        return kind_by_name(str(inner)) if inner.suffix else "text"
    return "" if suffix == ".model" and not _OF_TOKENS.search(path.stem.lower()) else _KINDS.get(suffix, "")
