"""Contents of images, recordings, videos, volumes and archives that are not on this machine: black, silent, zero."""

from __future__ import annotations

import functools
import gzip
import io
import json
import math
import random
import re
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from memlint.script.fake_images import black_image, photo
from memlint.script.fake_rows import silence, text_of_words
from memlint.script.file_kinds import kind_by_name
from memlint.script.forms import forms

_VOXELS = (240, 240, 155)
"""Sides of the scans of BraTS."""
_OF_SMALL = re.compile(r"(?i)(?<![a-z])(?:lr|lq).*?x([2-8])(?!\d)")
_OF_LARGE = re.compile(r"(?i)(?<![a-z])hr(?![a-z])|(?<![a-z])gtmod")
"""Folders of the images of super-resolution: `DIV2K_train_LR_bicubic/X4`, `DIV2K_train_HR`."""
_LARGE = (480, 360)
"""A size that every usual scale divides."""
_NUM_NOTES = 4096
"""Notes of a piece: ten minutes of music with seven in a second."""
_PACKED_SIDE, _NUM_CLASSES = 256, 10
"""Side and classes of the images in an archive whose name does not say the side."""
_VIDEO = Path(__file__).with_name("black.mp4")
"""300 black frames of 640 x 360 pixels in ten seconds, as H.264 (made by PyAV)."""
_MASKS = frozenset(
    ("mask", "masks", "label", "labels", "annotation", "annotations", "seg", "segmentation", "gt", "target", "targets")
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def image(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write a black image, with one channel if its folders say that it is a mask; return its description."""
    suffix = place.suffix.lower() if kind_by_name(str(place)) == "image" else ".png"
    of_mask = _MASKS & {word.lower() for word in _WORD.findall("/".join(place.parts[-3:]))}
    mode = "L" if of_mask else "RGBA" if suffix == ".png" and _is_of_scene(place) else "RGB"
    file = io.BytesIO()
    from PIL import Image  # noqa: PLC0415 -- whoever loads images has it

    width, height = _sides("/".join(place.parts[-4:-1]))
    black_image((width, height), mode).save(file, Image.registered_extensions()[suffix])
    path.write_bytes(file.getvalue())
    return f"a black image of {width} x {height} pixels"


def _is_of_scene(place: PurePath) -> bool:
    """Return True for a view of an object without a background, of the cameras beside it (Mildenhall et al., 2020)."""
    cameras = (PurePath(each) for each in forms.made if PurePath(each).name.startswith("transforms"))
    return any(place.is_relative_to(each.parent) for each in cameras)


def _sides(folder: str) -> tuple[int, int]:
    """Return width and height of a photograph, in folders of the large and the small images of super-resolution too."""
    small = _OF_SMALL.search(folder)
    if small is None and _OF_LARGE.search(folder) is None:
        return photo()
    scale = 1 if small is None else int(small[1])
    return _LARGE[0] // scale, _LARGE[1] // scale


def map_of_pixels(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write zeros for the pixels of an image: its depths or disparities, or the two components of an optical flow.

    Sources: the page of PFM (Debevec) and `flowIO.h` of the Middlebury flow code.
    """
    width, height = _sides("/".join(place.parts[-4:-1]))
    is_flow = place.suffix.lower() == ".flo"
    head = struct.pack("<fii", 202021.25, width, height) if is_flow else f"Pf\n{width} {height}\n-1.0\n".encode()
    path.write_bytes(head + bytes(4 * (1 + is_flow) * width * height))
    return f"zeros for {width} x {height} pixels"


def audio(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write silence; return its description."""
    path.write_bytes(silence(forms.sampling_rate))
    return f"silence, sampled {forms.sampling_rate:,} times a second"


def video(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write a black video; return its description."""
    path.write_bytes(_VIDEO.read_bytes())
    return "a black video of 300 frames of 640 x 360 pixels"


def zip_of_images(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write images, and a class for each in `dataset.json`, as data sets of image generators are packed."""
    from PIL import Image  # noqa: PLC0415 -- as above

    named = re.search(r"(?<!\d)(?!20\d\d)(\d{2,4})(?:x(\d{2,4}))?(?!\d)", place.stem.rpartition("-")[2])  # no year
    side = int(named[1]) if named is not None else _PACKED_SIDE
    file = io.BytesIO()
    Image.new("RGB", (side, int(named[2]) if named is not None and named[2] else side)).save(file, "png")
    names = [f"00000/img{number:08}.png" for number in range(forms.num_rows)]
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, file.getvalue())
        labels = [[name, number % _NUM_CLASSES] for number, name in enumerate(names)]
        archive.writestr("dataset.json", json.dumps({"labels": labels}))
    return f"{len(names)} black images of {side} pixels in {_NUM_CLASSES} classes"


def nifti(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write a scan without anything in it; return its description."""
    path.write_bytes(_volume(is_compressed=place.suffix == ".gz"))
    return f"a volume of {' x '.join(map(str, _VOXELS))} zeros"


@functools.cache
def _volume(*, is_compressed: bool) -> bytes:
    """Return a volume as NIfTI-1 has it: a header of 348 bytes with the sides, and 16 bits for each voxel."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, len(_VOXELS), *_VOXELS, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 4, 16)
    struct.pack_into("<8f", header, 76, *(1.0,) * 8)
    struct.pack_into("<3f", header, 108, 352.0, 1.0, 0.0)
    struct.pack_into("<h", header, 254, 1)
    struct.pack_into("<12f", header, 280, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)
    struct.pack_into("4s", header, 344, b"n+1")
    content = bytes(header) + bytes(2 * math.prod(_VOXELS))
    return gzip.compress(content, 1) if is_compressed else content


def music(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write a track of MIDI with one note after the other; return its description.

    Source: Standard MIDI Files 1.0: a head with its format, tracks and ticks of a quarter, and events behind times.
    """
    notes = b"".join(
        bytes((0, 0x90, 36 + i % 48, 64, 60, 0x80, 36 + i % 48, 0)) for i in range(_NUM_NOTES)
    )  # each of 60 ticks: an eighth
    track = b"\x00\xff\x51\x03\x07\xa1\x20" + notes + b"\x00\xff\x2f\x00"
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, 120)
    path.write_bytes(head + b"MTrk" + struct.pack(">I", len(track)) + track)
    return f"{_NUM_NOTES:,} notes"


def shard(_place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    """Write samples as webdataset has them: files whose names differ by their ends alone."""
    image = io.BytesIO()
    width, height = photo()
    black_image((width, height)).save(image, "jpeg")
    chance = random.Random(options["number"])
    with tarfile.open(path, "w") as archive:
        for number in range(forms.num_rows):
            text, label = text_of_words(chance, options.get("seq")), number % _NUM_CLASSES
            row = {"caption": text, "text": text, "label": label, "width": width, "height": height}
            parts = {"jpg": image.getvalue(), "txt": text.encode(), "cls": str(label).encode()}
            for end, content in (parts | {"json": json.dumps(row).encode()}).items():
                member = tarfile.TarInfo(f"{number:06}.{end}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return f"{forms.num_rows} black images of {width} x {height} pixels with a text and a class each"
