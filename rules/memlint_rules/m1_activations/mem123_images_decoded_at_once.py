from statistics import mode

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Trace
from memlint.memory.timeline import resize
from memlint.whatif.changes import DecodeInParts
from memlint.whatif.changes.switches import has_autoencoder
from memlint_rules.support.flow import made, peak_change

_HELP = {
    "slicing": "Call `enable_slicing()` of the autoencoder, `pipe.vae` of a pipeline: one image at a time, the same "
    "values.",
    "tiling": "Call `enable_tiling()` of the autoencoder, `pipe.vae` of a pipeline: tiles that overlap, whose "
    "borders are blended, so that images differ a little.",
}
_HOW = {"slicing": "one after the other", "tiling": "in tiles"}
_AUTOENCODERS = "/diffusers/models/autoencoders/"
"""The folder of diffusers whose code decodes: a script calls methods of it, which are no modules."""


class ImagesDecodedAtOnce(TraceRule):
    """An autoencoder of diffusers works on all images at once, or on whole ones, and holds the peak.

    Looks at inference with a module whose class is named as those of diffusers are, such as `AutoencoderKL`.

    ## Why it costs memory

    The last blocks of a decoder compute many channels for every pixel: 128 in float16 for four images of 512 x 512
    are 256 MiB, several times. In many pipelines this is the peak, above all denoising.

    ## How the saving is computed

    The program runs again with `enable_slicing()`, and if that lowers the peak by little, with `enable_tiling()`. A
    script that only generates is not run again: what the autoencoder's modules make for several images is reduced to
    one image's share, and the peak is computed again; tiles are not looked at.

    ## Known limits

    Tiles are of the size that the autoencoder's config states. Images that are smaller stay whole.

    - https://huggingface.co/docs/diffusers/optimization/memory
    """

    code, name, severity = "MEM123", "images-decoded-at-once", Severity.INFO
    example = """\
import torch
from torch import nn

import memlint


class AutoencoderOfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.use_slicing = False
        self.layer = nn.Conv2d(4, 64, 3, padding=1)

    def enable_slicing(self):
        self.use_slicing = True

    def forward(self, z):
        if not self.use_slicing:
            return self.layer(z).mean(1)
        return torch.cat([self.layer(each).mean(1) for each in z.split(1)])


@memlint.workload(mode="inference")
def decode():
    return AutoencoderOfTwo(), {"z": torch.randn(8, 4, 256, 256)}
"""
    bad = (Case(example, line=1),)
    good = (
        bad[0].but({"use_slicing = False": "use_slicing = True"}, title="It works on one at a time"),
        bad[0].but({"def enable_slicing": "def slice"}, title="It cannot"),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode == "train":
            return
        peak = context.estimate.requested.estimate
        for parts in ("slicing", "tiling") if has_autoencoder(context.trace) else ():
            after = context.retrace(DecodeInParts(parts))
            change = 0 if after is None else after.requested.estimate - peak
            if is_notable(change, peak):
                yield self._found(context, parts, change, Confidence.EXACT_RETRACE)
                return
        if context.workload.origin == "script":
            change = peak_change(context.timeline, resize(context.timeline, _one_by_one(context.trace)))
            if is_notable(change, peak):
                yield self._found(context, "slicing", change, Confidence.MODELLED)

    def _found(self, context: Context, parts: str, change: int, confidence: Confidence) -> Finding:
        return self.finding(
            context,
            None,
            f"The autoencoder works on everything at once; {_HOW[parts]} the peak is {format_nbytes(-change)} lower.",
            nbytes=-change,
            peak_change=change,
            confidence=confidence,
            fix=_HELP[parts],
        )


def _one_by_one(trace: Trace) -> dict[int, int]:
    """Return the size of one image's share of each Buffer that an autoencoder of diffusers makes for several."""
    inside = [node for node in trace.nodes if node.frame is not None and _AUTOENCODERS in node.frame.path]
    models = tuple({node.module.partition(".")[0] + "." for node in inside if node.module})
    of_models = (node for node in trace.nodes if f"{node.module}.".startswith(models))
    made_there = {buffer for node in (*inside, *of_models) for buffer in made(node)}
    images = [trace.buffers[each] for each in sorted(made_there) if len(trace.buffers[each].shape) == 4]
    together = mode(image.shape[0] for image in images) if images else 1
    return {each.id: each.nbytes // together for each in images if each.shape[0] == together}
