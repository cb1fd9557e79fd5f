"""Replacements for image and audio processors that are not on this machine: those of well-known models."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from memlint.base.after_import import after_import
from memlint.targets.known_configs import known_config
from memlint.workloads.hub_downloads import download_by
from memlint.workloads.missing_checkpoints import Put
from memlint.workloads.notes import note, note_fake_data
from memlint.workloads.stated_configs import stated_config

_KINDS = {
    "ImageProcessingMixin": ("image_processor_type", "image_processing_auto", "IMAGE_PROCESSOR_MAPPING_NAMES"),
    **dict.fromkeys(
        ("VideoProcessorMixin", "BaseVideoProcessor"),
        ("video_processor_type", "video_processing_auto", "VIDEO_PROCESSOR_MAPPING_NAMES"),
    ),
    "FeatureExtractionMixin": (
        "feature_extractor_type",
        "feature_extraction_auto",
        "FEATURE_EXTRACTOR_MAPPING_NAMES",
    ),
}
"""By base class: the key that names the class in loaded settings, and the module and table of transformers with it."""

_READERS = (
    ("transformers.image_processing_base", "ImageProcessingMixin", "get_image_processor_dict"),
    ("transformers.image_processing_utils", "ImageProcessingMixin", "get_image_processor_dict"),  # before 4.40
    ("transformers.feature_extraction_utils", "FeatureExtractionMixin", "get_feature_extractor_dict"),
    ("transformers.video_processing_utils", "VideoProcessorMixin", "get_video_processor_dict"),
    ("transformers.video_processing_utils", "BaseVideoProcessor", "get_video_processor_dict"),  # earlier
)
"""Methods that read the settings of a processor: a module, a class of it and its method."""


def replace_processors(put: Put, *, fake: bool) -> None:
    """Make transformers report a processor that is not here, or with `fake` replace it."""
    for module, owner, method in _READERS:
        after_import(module, functools.partial(_replace_processors, put, owner, method, fake=fake))
    after_import("transformers.processing_utils", lambda module: _complete_processors(module.ProcessorMixin, put))


def _replace_processors(put: Put, owner: str, method: str, module: ModuleType, *, fake: bool) -> None:
    """Make `owner.method` of transformers, which reads a processor's settings, report or replace missing ones."""
    cls = getattr(module, owner, None)
    if cls is None or cls.__module__ != module.__name__ or method not in vars(cls):
        return  # another module or class has it in this version
    load = vars(cls)[method].__func__

    def read(cls: Any, name: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings of a processor, and the arguments that change it."""
        try:
            fields: tuple[dict[str, Any], dict[str, Any]] = load(cls, name, *args, **kwargs)
        except OSError as error:
            settings = _settings(cls, owner, str(name)) if fake else None
            if settings is None:
                able = "name a well-known model" if fake else "add --fake-data to use a fake one"
                text = f"wants the processor {str(name)!r}, which is not on this machine"
                folder = "give the path of a folder that has one"
                note(error, text, f"{download_by(cls, str(name), kwargs.get('subfolder'))}{folder}, or {able}")
                raise
            note_fake_data(f"the processor of {name} is not on this machine: it has the settings of its class")
            return settings, {key: value for key, value in kwargs.items() if not key.startswith("_")}
        return fields

    put(cls, method, classmethod(read))


def _complete_processors(owner: Any, put: Put) -> None:
    """Give processors of texts and images what only a file of theirs says: the chat's form, the size of patches."""
    load = vars(owner)["from_pretrained"].__func__

    def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        processor = load(cls, pretrained_model_name_or_path, *args, **kwargs)
        kind, fields = _config(str(pretrained_model_name_or_path))
        if not kind:
            return processor
        vision = fields.get("vision_config", {})
        tokenizer = getattr(processor, "tokenizer", None)
        known = {
            "chat_template": getattr(tokenizer, "chat_template", None),
            "patch_size": vision.get("patch_size"),
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,  # the class's token, which that strategy leaves out again
        }
        for name, value in known.items():
            if not getattr(processor, name, True):  # it has this setting, and none was read
                setattr(processor, name, value)
        return processor

    put(owner, "from_pretrained", classmethod(from_pretrained))


def _settings(cls: Any, owner: str, name: str) -> dict[str, Any] | None:
    """Return settings, with their class if the caller may load any; None if the processor is unknown."""
    key, module, table = _KINDS[owner]
    model_type, fields = _config(name)
    if cls.__name__ != owner:
        return _sizes(cls, fields)
    names: dict[str, Any] = getattr(importlib.import_module(f"transformers.models.auto.{module}"), table)
    if owner == "FeatureExtractionMixin":  # as those of images were called before transformers 5
        _, module, table = _KINDS["ImageProcessingMixin"]
        names = {**getattr(importlib.import_module(f"transformers.models.auto.{module}"), table), **names}
    processor = names.get(model_type) or next(  # a variant has that of the model: `dinov2_with_registers`
        (names[each] for each in names if model_type.startswith(f"{each}_")), None
    )
    if isinstance(processor, dict):
        processor = next(iter(processor.values()))
    if not processor:
        return None
    kind = processor if isinstance(processor, str) else processor[0]
    return {key: kind, **_sizes(getattr(importlib.import_module("transformers"), kind, None), fields)}


def _config(name: str) -> tuple[str, dict[str, Any]]:
    """Return the type of a model and its config, as the command line states it or as it is known; empty without."""
    stated, known = stated_config(name), known_config(name)
    if stated is not None:
        return str(stated.get("model_type", "")), stated
    if known is None:
        return "", {}
    return str(getattr(importlib.import_module("transformers"), known[0]).model_type), known[1]


def _sizes(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a processor that gives images the size which a config states for its vision part."""
    size = fields.get("vision_config", {}).get("image_size")
    if size and "height" in (getattr(kind, "size", None) or ()):
        return {"size": {"height": size, "width": size}}
    return {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}} if size else {}
