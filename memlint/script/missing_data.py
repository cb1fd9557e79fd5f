"""Data that a script needs and that is not on this machine: errors that name the line, or fake data in its place.

Fake data has only known properties of the real data: sizes, numbers of classes and of tokens. Each piece of fake data
is an assumption with its line.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from memlint.accelerator import state
from memlint.base.after_import import after_import
from memlint.base.ownership import is_users
from memlint.base.patching import patched
from memlint.script.asked_lines import replace_input
from memlint.script.fake_bunches import replace_fetchers
from memlint.script.fake_downloads import replace_downloads
from memlint.script.fake_graphs import replace_graphs
from memlint.script.fake_images import replace_datasets, replace_readers_of_timm
from memlint.script.fake_records import replace_record_readers
from memlint.script.fake_rows import replace_load_dataset, replace_readers_of_files
from memlint.script.missing_files import MissingFiles, replace_globs
from memlint.script.pointers import pointers
from memlint.script.recordings import replace_data_sets_of_torchaudio, replace_load_of_torchaudio
from memlint.script.replacing import Replacing
from memlint.script.saving import mapping
from memlint.script.writes import Writes
from memlint.workloads.fake_processors import replace_processors
from memlint.workloads.fake_tokenizers import replace_tokenizers
from memlint.workloads.missing_checkpoints import OF_TENSORS, suffix_of
from memlint.workloads.notes import note, note_fake_data
from memlint.workloads.pretrained import config_of_caller

_COMPILED = (
    ("cv2", "imread"),
    ("pyarrow.parquet", "read_table"),
    ("pyarrow.parquet", "ParquetFile.__init__"),
    ("sentencepiece", "SentencePieceProcessor.LoadFromFile"),
    ("soundfile", "SoundFile.__init__"),
    ("torchaudio", "load"),
    ("torchaudio", "info"),
    ("torchvision.io", "read_image"),
    ("torchvision.io", "read_file"),
    ("torchvision.io", "decode_image"),
    ("torchvision.io", "read_video"),
    ("torchvision.io", "VideoReader.__init__"),
    ("cv2", "VideoCapture"),
    ("av", "open"),
    ("decord", "VideoReader.__init__"),
    ("decord", "AudioReader.__init__"),
    ("torchcodec.decoders", "VideoDecoder.__init__"),
)
"""Readers that open a file outside Python: a module, and a function or method of a class of it."""


@contextlib.contextmanager
def missing_data(writes: Writes, *, fake: bool = False, seq: int | None = None) -> Iterator[MissingFiles | None]:
    """Make errors about missing data name the script's line and the remedy; with `fake`, replace the data.

    The texts of data sets have `seq` words, or else as many as most scripts cut them to.
    Yields what knows of the files that were looked for; None where `writes` are in place.
    """
    with Replacing() as replacing:
        missing = _replace_files(replacing, writes, fake=fake, seq=seq)
        replace_downloads(replacing, fake=fake)
        replace_input(replacing, fake=fake, seq=seq)
        after_import("torchvision.datasets", lambda module: replace_datasets(module, replacing, fake=fake))
        after_import("sklearn.datasets", lambda module: replace_fetchers(module, replacing, fake=fake))
        after_import(
            "torchaudio.datasets", lambda module: replace_data_sets_of_torchaudio(module, replacing, fake=fake)
        )
        after_import("torch_geometric.data.dataset", lambda module: replace_graphs(module, replacing, fake=fake))
        after_import("timm.data.dataset", lambda module: replace_readers_of_timm(module, replacing, fake=fake))
        after_import("datasets.load", lambda module: replace_load_dataset(module, replacing, fake=fake, seq=seq))
        after_import("datasets.arrow_dataset", lambda m: replace_readers_of_files(m, replacing, fake=fake, seq=seq))
        replace_tokenizers(replacing.put, fake=fake)
        replace_processors(replacing.put, fake=fake)
        for module, function in (
            ("huggingface_hub.file_download", "hf_hub_download"),
            ("huggingface_hub._snapshot_download", "snapshot_download"),
        ):
            after_import(module, functools.partial(_note_downloads, replacing, function))
        after_import("evaluate.loading", lambda module: _replace_metrics(module, replacing))
        if fake:
            after_import("spacy", lambda module: _replace_languages(module, replacing))
        yield missing


_COPIED = frozenset(("diffusers", "transformers"))
"""Libraries whose own functions wait for the error, also where they are a project's copy."""


def _note_downloads(replacing: Replacing, name: str, module: ModuleType) -> None:
    """Make a function of huggingface_hub that the script calls itself report missing files."""
    download = getattr(module, name)

    @functools.wraps(download)
    def downloaded(repo_id: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(repo_id, *args, **kwargs)
        except OSError as error:
            caller = sys._getframe(1)
            package = str(caller.f_globals.get("__name__")).partition(".")[0]
            if is_users(caller.f_code.co_filename) and package not in _COPIED:
                wanted = kwargs.get("filename") or next(iter(args), "")
                is_data = kwargs.get("repo_type") == "dataset"
                if name == "hf_hub_download" and not is_data and suffix_of(PurePath(wanted)) in OF_TENSORS:
                    note_fake_data(f"the weights {wanted} of {repo_id} are not on this machine: they are random")
                    return f"{repo_id}/{wanted}"  # where nothing is: whoever loads it gets absent weights
                if PurePath(wanted).suffix == ".json" and (config := config_of_caller(caller, repo_id)):
                    return config
                what = f"the file {wanted} of {repo_id!r}" if name == "hf_hub_download" else f"the files of {repo_id!r}"
                hint = f"download them once before, or give their path: {name} finds what is in the cache"
                note(error, f"wants {what}, which are not on this machine", hint)
            raise

    replacing.put(module, name, downloaded)


class Metric:
    """Placeholder for a missing metric of `evaluate`: no GPU memory depends on it."""

    def __init__(self, names: list[str]) -> None:
        """`names` are the results that it computes."""
        self.names = names

    def add(self, *_: Any, **__: Any) -> None:
        """Accept a prediction."""

    add_batch = add

    def compute(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return 0 for each of its names."""
        return dict.fromkeys(self.names, 0.0)


def _replace_metrics(module: ModuleType, replacing: Replacing) -> None:
    load = module.load

    def load_metric(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(path, *args, **kwargs)
        except OSError:
            state.assume(f"the metric {path} is not on this machine: it is 0")
            name = path.rsplit("/", 1)[-1]
            return Metric(["accuracy", "f1"] if name == "glue" else [name])

    replacing.put(module, "load", load_metric)


def _replace_languages(module: ModuleType, replacing: Replacing) -> None:
    """Let spaCy cut texts into words where the model of their language is missing: it runs on the CPU."""
    load = module.load

    @functools.wraps(load)
    def load_language(name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(name, *args, **kwargs)
        except OSError as error:
            language = str(name).partition("_")[0]
            try:
                blank = module.blank(language)
            except ImportError:
                raise error from None
            note_fake_data(f"spaCy's model {name} is not on this machine: texts are only cut into words")
            return blank

    replacing.put(module, "load", load_language)


def _replace_files(replacing: Replacing, writes: Writes, *, fake: bool, seq: int | None) -> MissingFiles | None:
    """Let files that are missing be made; with writes in place nothing stands between the script and its files."""
    files = writes.files
    if files is None:
        return None
    for pointer in list(pointers(Path.cwd())):
        files.overlay.hide(pointer)
    missing = MissingFiles(files.overlay, writes.made, fake=fake, seq=seq)
    replacing.put(files, "missing", missing)
    replace_globs(missing, replacing, files.within)
    replace_record_readers(replacing)
    after_import("torchaudio", lambda module: replace_load_of_torchaudio(module, replacing))
    for module, name in _COMPILED:
        owner, _, method = name.rpartition(".")

        def map_path(module: ModuleType, owner: str = owner, method: str = method) -> None:
            holder = getattr(module, owner) if owner else module

            def reading(path: Any, reader: str = module.__name__.partition(".")[0]) -> str:
                with patched([(missing, "reader", reader)]):
                    return files.reading(path)

            if hasattr(holder, method):  # which not all versions have
                replacing.put(holder, method, mapping(getattr(holder, method), int(bool(owner)), reading))

        after_import(module, map_path)
    return missing
