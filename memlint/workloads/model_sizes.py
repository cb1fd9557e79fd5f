"""Sizes that a model states outside its layers: in configs, attributes and defaults of its constructor."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace

from torch import nn

from memlint.base.signatures import signature_of

CONFIG_NAMES = ("config", "cfg", "conf", "args", "hparams", "params", "opt", "options", "settings")
"""Names of the configuration in constructors and in models."""

_LENGTHS = (
    *("block_size", "max_seq_len", "max_seq_length", "max_sequence_length", "max_seq", "seq_len", "seq_length"),
    *("sequence_length", "context_length", "context_len", "context_size", "ctx_len", "n_ctx", "n_positions"),
    *("max_position_embeddings", "max_len", "max_length", "window_len", "sequence_len", "length"),
)
IMAGE_SIZES = (
    *("sample_size", "image_size", "img_size", "input_size", "resolution", "image_resolution", "img_resolution"),
    *(
        "input_resolution",
        "imgsz",
        "imsize",
        "im_size",
        "crop_size",
        "train_size",
        "input_shape",
        "image_shape",
        "img_shape",
    ),
)
"""Names of the side of images, or of their sides; diffusers' models call that of latents `sample_size`."""
_SIDES = range(32, 2049)
_NUM_SIDES, _CHANNELS_OF_IMAGES = 2, (1, 3, 4)
_POINTS = ("num_points", "npoints")
"""Other meanings of `size` than the size of an image."""
_WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "emb_dim", "dim", "hidden_dim", "width")
_CHANNELS = (
    "enc_in",
    "c_in",
    "n_vars",
    "num_features",
    "in_channels",
    "input_dim",
    "input_size",
    "in_features",
    "nfeat",
)
_CLASSES = ("num_classes", "n_classes", "num_labels", "n_class", "num_class", "class_num", "out_dim")

_OF_VIDEOS = (
    *("num_frames", "n_frames", "frames_per_clip", "clip_len", "clip_length", "video_length"),
    *("context_length", "sequence_length", "seq_len"),
)
"""Names of the number of pictures in a video; the last ones are those of texts, too."""
_LOWEST_RATE = 8000
"""Samples of a second of sound at the lowest usual rate."""
DEFAULT_LENGTH = 512
LONGEST = 1024
"""Sequences are no longer than this unless declared: attention over a config's 128k positions is rarely meant."""
DEFAULT_IMAGE_SIZE = 224
_FEATURES, _LEAST_SIDE = 64, 7
"""Features of the first maps of images, and sides of the last ones."""
_OF_LOOP = frozenset(("image_size", "image_height", "length", "num_points", "segment_size"))


def sides_of_map(sides: tuple[int, int], features: int) -> tuple[int, int]:
    """Return the sides of a map with so many features in place of colours: as ResNet's have (He et al., 2015)."""
    if features < _FEATURES:
        return sides
    times = min(max(features // _FEATURES, 4), 32)
    height, width = (max(side // times, _LEAST_SIDE) for side in sides)
    return height, width


class ModelSizes:
    """Named values of `model`, nearest first: its own, its arguments, those of its submodules."""

    def __init__(self, model: nn.Module, stated: Mapping[str, object] | None = None) -> None:
        """`stated` are its arguments, and sizes from other sources for those that the model does not state."""
        self.model, self._stated = model, stated or {}
        parts = (size for module in list(model.modules())[1:] for size in _sizes_in(module))
        self._own = list(_sizes_in(model))
        self._sources = [*self._own, stated or {}, *parts, *_defaults(model)]

    @property
    def length(self) -> int | None:
        """Length in the training loop, or else the model's maximum, capped at `LONGEST`, or its number of points.

        None if nothing states one.
        """
        if self.points is not None:
            return self.points
        if (stated := self.trained_length) is not None:
            return stated
        length = self._first_int(_LENGTHS, 2)
        return _table_length(self.model) if length is None else min(length, LONGEST)

    @property
    def trained_length(self) -> int | None:
        """Length in the training loop or its settings, at most the model's own maximum; None if they state none."""
        stated = self._stated.get("length")
        if type(stated) is not int or stated <= 1:
            return None
        own = (source.get(name) for source in self._own for name in _LENGTHS)
        return min([stated, *(each for each in own if type(each) is int and each > 1)])

    @property
    def are_trained(self) -> bool:
        """True if the training loop states how large its images, texts or pieces of sound are."""
        return not _OF_LOOP.isdisjoint(self._stated)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of images; None if nothing states them."""
        for source in self._sources:
            for name in IMAGE_SIZES:
                value = source.get(name)
                if type(value) is int and value > 1:
                    return value, value
                if (sides := sides_of(value)) is not None:
                    return sides
            for of in ("", "image_", "img_"):
                height, width = source.get(f"{of}height"), source.get(f"{of}width")
                if type(height) is int and type(width) is int and height in _SIDES and width in _SIDES:
                    return height, width
        own = getattr(self.model, "size", self._stated.get("size"))
        return (own, own) if type(own) is int and own in _SIDES else None

    @property
    def pictures(self) -> int | None:
        """Number of pictures of a video."""
        return self._first_int(_OF_VIDEOS, 2)

    @property
    def low_image_size(self) -> int | None:
        """Side of the smaller images of a data set that has each image in two sizes."""
        return self._first_int(("low_image_size",))

    @property
    def width(self) -> int | None:
        """Number of features of hidden states."""
        return self._first_int(_WIDTHS)

    @property
    def channels(self) -> int | None:
        """Number of features or channels of the input."""
        return self._first_int(_CHANNELS)

    @property
    def mels(self) -> int | None:
        """Number of bands of a spectrogram."""
        return self._first_int(
            ("n_mel_channels", "mel_channels", "n_mels", "num_mels", "n_mel", "mel_dim", "num_mel_bins")
        )

    @property
    def points(self) -> int | None:
        """Number of points of a cloud."""
        return self._first_int(_POINTS, 2)

    @property
    def samples(self) -> int | None:
        """Samples of the audio pieces that a vocoder is trained with."""
        return self._first_int(("segment_size", "segment_length"))

    @property
    def sound(self) -> tuple[int, int] | None:
        """Channels and samples of sound, for a model that states its `audio_channels`; one second unless it says."""
        channels = self._first_int(("audio_channels",))
        rate = self._first_int(("sample_rate", "samplerate", "sampling_rate"), _LOWEST_RATE)
        stated = (each.get("segment") for each in self._sources)
        seconds = next((each for each in stated if isinstance(each, int | float)), 1)
        samples = self._first_int(("sample_size", "segment_size", "segment_length"), _LOWEST_RATE)
        return None if channels is None else (channels, samples or int((rate or _LOWEST_RATE) * max(seconds, 1)))

    @property
    def frames(self) -> int | None:
        """Frames of the spectrograms of those pieces, or as settings say them."""
        hop = self._first_int(("hop_size", "hop_length"))
        if self.samples is not None and hop is not None and self.samples > hop:
            return self.samples // hop
        return self._first_int(("num_frames", "n_frames", "num_frms", "max_frames"), 2)

    @property
    def series(self) -> tuple[int, int] | None:
        """Steps and variables of a time series, if both have the usual names of such models."""
        steps, variables = self._first_int(("seq_len",), 2), self._first_int(("enc_in", "c_in", "n_vars"))
        return (steps, variables) if steps is not None and variables is not None else None

    @property
    def decoded_series(self) -> tuple[int, int] | None:
        """Steps and variables of a decoder's series: known steps, and those to be forecast."""
        known, forecast = self._first_int(("label_len",), 0), self._first_int(("pred_len",))
        variables = self._first_int(("dec_in", "enc_in", "c_in", "n_vars"))
        return None if known is None or forecast is None or variables is None else (known + forecast, variables)

    @property
    def num_classes(self) -> int | None:
        """Number of classes of a classifier."""
        return self._first_int(_CLASSES)

    def _first_int(self, names: Iterable[str], least: int = 1) -> int | None:
        """Return the first of these values that is a whole number of at least `least`."""
        values = (source.get(name) for source in self._sources for name in names)
        return next((each for each in values if type(each) is int and each >= least), None)


def sides_of(value: object) -> tuple[int, int] | None:
    """Return height and width that a list or tuple states, whose channels may come first or last."""
    if not isinstance(value, tuple | list) or len(value) < _NUM_SIDES or not all(type(each) is int for each in value):
        return None
    last = len(value) > _NUM_SIDES and value[-1] in _CHANNELS_OF_IMAGES and value[0] not in _CHANNELS_OF_IMAGES
    height, width = value[-3:-1] if last else value[-2:]
    return height, width


def values_of(config: object) -> Mapping[str, object]:
    """Return the named values of a config: a mapping, a dataclass, a namespace, a class used as one."""
    if isinstance(config, Mapping):
        return config
    own = {name: value for name, value in vars(type(config)).items() if not name.startswith("_")}
    if isinstance(config, type):
        own = {}
    return own | dict(getattr(config, "__dict__", {}))


def _sizes_in(module: nn.Module) -> Iterator[Mapping[str, object]]:
    attributes = vars(module)
    yield {name: value for name, value in attributes.items() if isinstance(value, int | float | tuple | list)}
    for name, value in attributes.items():
        if name.lstrip("_").endswith(CONFIG_NAMES) and _is_config(value):
            yield values_of(value)


def _defaults(model: nn.Module) -> Iterator[Mapping[str, object]]:
    signature = signature_of(type(model).__init__)
    yield {name: parameter.default for name, parameter in signature.parameters.items()}
    for name in signature.parameters:
        annotation = annotation_class(type(model), name)
        if annotation is not None and dataclasses.is_dataclass(annotation):
            yield {
                field.name: field.default
                for field in dataclasses.fields(annotation)
                if field.default is not dataclasses.MISSING
            }


def annotation_class(owner: type, parameter: str) -> type | None:
    """Return the class that annotates a constructor's parameter, without `| None`; None if it does not resolve."""
    try:
        annotation = typing.get_type_hints(owner.__init__).get(parameter)  # type: ignore[misc]
    except (NameError, TypeError, AttributeError, SyntaxError):
        # An annotation under `if TYPE_CHECKING:` does not resolve; nothing can be learnt from it.
        return None
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)] or [annotation]
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], type) else None


def _is_config(value: object) -> bool:
    return (
        isinstance(value, Mapping | SimpleNamespace)
        or dataclasses.is_dataclass(value)
        or (hasattr(value, "__dict__") and not isinstance(value, nn.Module) and not callable(value))
        or isinstance(value, type)
    )


def _table_length(model: nn.Module) -> int | None:
    """Return the rows of a table of positions: an Embedding, parameter or buffer for which `is_position_name` holds."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and is_position_name(name):
            return min(module.num_embeddings, LONGEST)
    has_tokens = any(isinstance(module, nn.Embedding) for module in model.modules())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()) if has_tokens else ():
        rows = [size for size in tensor.shape[:-1] if size > 1]
        if rows and is_position_name(name.removesuffix(".weight")):
            return min(rows[0], LONGEST)
    return None


def is_position_name(path: str) -> bool:
    """Return True if the last part of a module's or parameter's path names positions."""
    last = path.rpartition(".")[2].lower()
    return last in {"pe", "wpe"} or last.startswith("pos") or "position" in last
