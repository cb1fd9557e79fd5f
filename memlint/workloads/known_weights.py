"""Names and shapes of weights by which programs build a model anew: those of OpenAI's CLIP with a transformer.

Many projects have a copy of its loader, which takes all sizes from the checkpoint. Source: `build_model` of
github.com/openai/CLIP, and the sizes of its paper (Radford et al., 2021, table 20).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

Shape = tuple[int, ...]


class _Clip(NamedTuple):
    width: int
    """Features in the vision transformer, 64 of each head."""
    num_layers: int
    patch: int
    side: int
    """Pixels of an image's sides."""
    embedding: int
    """Features of an image or a text; the text's transformer is as wide."""


_CLIPS = {
    "ViT-B-32": _Clip(768, 12, 32, 224, 512),
    "ViT-B-16": _Clip(768, 12, 16, 224, 512),
    "ViT-L-14": _Clip(1024, 24, 14, 224, 768),
    "ViT-L-14-336px": _Clip(1024, 24, 14, 336, 768),
}
"""By the name of the file, without its end."""
_TEXT_LAYERS, _TEXT_LENGTH, _WORDS = 12, 77, 49_408


def known_weights(stem: str) -> dict[str, torch.Tensor]:
    """Return zeros in the shapes of a checkpoint's weights, which take no memory; empty if it is not known."""
    known = _CLIPS.get(stem)
    return {} if known is None else {name: torch.zeros(()).expand(shape) for name, shape in _shapes(known)}


def _shapes(clip: _Clip) -> Iterator[tuple[str, Shape]]:
    width, embedding = clip.width, clip.embedding
    yield from [
        ("positional_embedding", (_TEXT_LENGTH, embedding)),
        ("text_projection", (embedding, embedding)),
        ("logit_scale", ()),
        ("visual.class_embedding", (width,)),
        ("visual.positional_embedding", ((clip.side // clip.patch) ** 2 + 1, width)),
        ("visual.proj", (width, embedding)),
        ("visual.conv1.weight", (width, 3, clip.patch, clip.patch)),
        ("token_embedding.weight", (_WORDS, embedding)),
    ]
    for name, features in (("visual.ln_pre", width), ("visual.ln_post", width), ("ln_final", embedding)):
        yield from [(f"{name}.weight", (features,)), (f"{name}.bias", (features,))]
    for number in range(clip.num_layers):
        yield from _of_block(f"visual.transformer.resblocks.{number}", width)
    for number in range(_TEXT_LAYERS):
        yield from _of_block(f"transformer.resblocks.{number}", embedding)


def _of_block(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    layers: dict[str, Shape] = {
        "attn.in_proj_": (3 * width, width),
        "attn.out_proj.": (width, width),
        "ln_1.": (width,),
        "mlp.c_fc.": (4 * width, width),
        "mlp.c_proj.": (width, 4 * width),
        "ln_2.": (width,),
    }
    for layer, shape in layers.items():
        yield from [(f"{name}.{layer}weight", shape), (f"{name}.{layer}bias", shape[:1])]
