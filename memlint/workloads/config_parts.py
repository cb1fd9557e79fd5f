"""The parts of a Hugging Face config: those for images and the one for texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def text_config(config: Any) -> Any:
    """Return the config of the part that reads texts; the whole config if none or several do."""
    if not hasattr(config, "get_text_config"):  # before transformers 4.45
        return getattr(config, "text_config", config)
    try:
        return config.get_text_config()
    except ValueError:
        return config


def parts(config: Any) -> Iterator[Any]:
    """Yield a config, then those within it, outermost first; not the text's config, whose sizes mean other things."""
    inner = [value for key, value in vars(config).items() if hasattr(value, "model_type") and "text" not in key]
    yield config
    for each in inner:
        yield from parts(each)
