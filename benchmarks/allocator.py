"""memlint's allocator against PyTorch's own: the binary of a release, run without a GPU.

    python benchmarks/allocator.py --torch 2.11.0 --torch 2.14.0
    python benchmarks/allocator.py --torch 2.14.0 --programs 5000
    python benchmarks/allocator.py --torch 2.11.0 FOLDER

Downloads the CUDA build of each release from PyPI (0.5 to 0.9 GB each), takes libc10_cuda.so out of it and links it to
a CUDA runtime that hands out addresses and counts bytes (`benchmarks/allocator/`). The same calls are answered by both:
recordings of this repository or of FOLDER, and programs that a seed makes, each under several settings and GPU sizes. A
call is equal if all figures of `Answer` are: peaks, retries, the failure, and what is left. Needs g++ and headers of a
recent CUDA. `--write` renews `fixtures/allocator/answers.json.gz`.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from memlint.base.errors import MemlintError
from tests.oracles.allocator_programs import ANSWERS, MIB, ROOT, Answer, Case, answer, calls_of, recorded_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCES = Path(__file__).with_name("allocator")
AMPLE = 200 * 2**30
SETTINGS = (
    *("", "expandable_segments:True", "max_split_size_mb:20", "max_split_size_mb:64", "max_split_size_mb:128"),
    *("roundup_power2_divisions:2", "roundup_power2_divisions:8", "roundup_power2_divisions:[1:8,16:2,>:4]"),
    *("max_split_size_mb:64,max_non_split_rounding_mb:200", "expandable_segments:True,roundup_power2_divisions:8"),
    *("large_segment_size_mb:32", "max_split_size_mb:40,roundup_power2_divisions:8"),
    *("expandable_segments:True,max_split_size_mb:40", "expandable_segments:True,large_segment_size_mb:32"),
)
LIMITED = (
    *("", "expandable_segments:True", "max_split_size_mb:64", "per_process_memory_fraction:0.9"),
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,max_split_size_mb:128",
)
"""Settings tried on GPUs that are too small."""
SHARES = (0.97, 0.9, 0.8)
"""Sizes of these, as shares of what PyTorch's defaults reserve."""
COUNTER = (2, 12)
"""From this release on, free blocks of one size are not taken by address alone."""


class Release:
    """The allocator of a release of PyTorch, built into a command."""

    def __init__(self, version: str, folder: Path, cuda: Path) -> None:
        self.version = version
        self.folder = folder / version
        self._unpack()
        lib = self.folder / "torch" / "lib" / "libc10_cuda.so"
        wanted = subprocess.run(
            ["nm", "-D", "--undefined-only", lib], capture_output=True, text=True, check=True
        ).stdout
        runtime = re.search(rb"libcudart\.so\.\d+", lib.read_bytes())
        assert runtime is not None, f"{lib} does not name its CUDA runtime"
        name = runtime[0].decode()
        driver, own = self.folder / name, self.folder / "requests"
        includes = [f"-I{self.folder / 'torch' / 'include'}", f"-I{cuda}", f"-I{self.folder}"]
        macros = self.folder / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
        macros.parent.mkdir(parents=True, exist_ok=True)
        macros.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
        versions = self.folder / "versions.map"
        versions.write_text(f"{name} {{ global: *; }};\n")
        made = set(re.findall(r"\b(cuda\w+)\(", (SOURCES / "driver.cpp").read_text()))
        others = sorted(set(re.findall(r"\b(cuda\w+)@", wanted)) - made)
        unused = [f"-Wl,--defsym={each}=unused" for each in others]
        flags = ["-O1", "-std=c++20", "-w", *includes]
        self._build(
            *flags, "-fPIC", "-shared", SOURCES / "driver.cpp", "-o", driver, f"-Wl,-soname,{name}", *unused,
            f"-Wl,--version-script={versions}",
        )  # fmt: skip
        shutil.copy(driver, self.folder / "libnvidia-ml.so.1")
        self._build(*flags, SOURCES / "calls.cpp", "-o", own, f"-L{lib.parent}", "-lc10_cuda", "-lc10", driver)
        self.command = [str(own)]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": f"{self.folder}:{lib.parent}"}

    def _unpack(self) -> None:
        if (self.folder / "torch").exists():
            return
        command = [sys.executable, "-m", "pip", "download", "--no-deps", f"torch==={self.version}", "-d", self.folder]
        subprocess.run([*map(str, command)], check=True)
        for wheel in self.folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for each in archive.namelist():
                    if each.startswith(("torch/include/c10/", "torch/include/torch/headeronly/", "torch/lib/libc10")):
                        archive.extract(each, self.folder)
            wheel.unlink()

    @staticmethod
    def _build(*arguments: str | Path) -> None:
        subprocess.run(["g++", *map(str, arguments)], check=True)

    @property
    def oldest_first(self) -> bool:
        """True if it orders free blocks by the age of their segments."""
        return tuple(map(int, self.version.split(".")[:2])) >= COUNTER

    def answer(self, case: Case) -> Answer:
        """Answer the calls of a Case."""
        run = subprocess.run(
            [*self.command, str(case.capacity), str(int(case.descending))],
            input="\n".join(map(str, calls_of(case))) + "\n",
            env={**self.environment, "PYTORCH_ALLOC_CONF": case.settings, "PYTORCH_CUDA_ALLOC_CONF": case.settings},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode:
            raise SystemExit(f"torch {self.version} on {case}: {run.stderr[:400]}")
        return Answer(*map(int, run.stdout.split()))


def random_cases(num: int) -> Iterator[Case]:
    """Make Cases of random programs, each under one of the settings."""
    settings = [*SETTINGS, *LIMITED]
    for seed in range(num):
        capacity = (AMPLE, 2000 * MIB, 1000 * MIB, 600 * MIB)[seed // len(settings) % 4]
        yield Case(f"random {seed}", settings[seed % len(settings)], capacity, descending=seed // 7 % 2 == 1)


def recorded_cases(files: Iterable[Path]) -> Iterator[Case]:
    """Make Cases of recordings: those that begin before the first allocation, under all settings.

    Where memory was there before, it is asked for anew only with expandable segments, and where it is not known how it
    lay: other Cases would not have the same calls.
    """
    for file in files:
        try:
            program = recorded_program(file)
        except MemlintError:
            continue
        if len(program.recording.events) < 2:
            continue
        name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)
        is_whole = program.start == () or program.start is None
        unlimited = [each for each in SETTINGS if is_whole or "expandable" in each]
        limited = [each for each in LIMITED if is_whole or "expandable" in each]
        falls = program.descending
        most = program.recorded.reserved
        yield from (Case(name, each, AMPLE, falls) for each in unlimited)
        if program.emptied and is_whole:
            yield Case(name, "", AMPLE, falls, empties_cache=False)
        for share in SHARES:
            capacity = int(share * most) // (2 * MIB) * (2 * MIB)
            yield from (Case(name, each, capacity, falls) for each in limited if capacity)


@click.command()
@click.option("--torch", "versions", multiple=True, required=True, help="A release, as 2.14.0.")
@click.option("--cuda", type=click.Path(path_type=Path), default=Path("/usr/local/cuda/include"), show_default=True)
@click.option("--programs", default=400, show_default=True, help="Random programs.")
@click.option("--cache", type=click.Path(path_type=Path), help="Where the releases are kept, by default nowhere.")
@click.option("--write", is_flag=True, help="Renew the fixture.")
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
def main(
    versions: tuple[str, ...], cuda: Path, programs: int, cache: Path | None, folder: Path | None, *, write: bool
) -> None:
    """Compare, and print what differs."""
    fixtures = [*(ROOT / "fixtures" / "histories").glob("*.gz"), *(ROOT / "fixtures" / "snapshots").glob("*.gz")]
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else sorted(fixtures)
    with tempfile.TemporaryDirectory() as temporary:
        releases = [Release(version, cache or Path(temporary), cuda) for version in versions]
        rows = []
        num_equal = dict.fromkeys(versions, 0)
        num = 0
        for case in (*recorded_cases(files), *random_cases(programs)):
            answers = {each.version: each.answer(case) for each in releases}
            own = {order: answer(case, oldest_first=order) for order in {each.oldest_first for each in releases}}
            num += 1
            for release in releases:
                expected = own[release.oldest_first]
                if answers[release.version] == expected:
                    num_equal[release.version] += 1
                else:
                    print(f"{case}\n  torch {release.version} {answers[release.version]}\n  memlint {expected}")
            rows.append({"case": case, "answers": answers})
    for version, equal in num_equal.items():
        print(f"torch {version}: {equal} of {num} answers are memlint's")
    if write:
        lines = ",\n".join(json.dumps(row) for row in rows)
        ANSWERS.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main()
