from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from memlint.accelerator.private import let_lazy_parameters_be_asked
from memlint.base.errors import WorkloadError
from memlint.memory.devices import device_named
from memlint.targets.workload import InputSpec
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.construct import build_program, complete
from memlint.workloads.constructor_values import plain_value
from memlint.workloads.discover import find_workloads
from memlint.workloads.guess.dimension_names import of_one_size
from memlint.workloads.guess.inferred import Inferred
from memlint.workloads.guess.inputs import in_dtype, infer_inputs
from memlint.workloads.guess.search import is_credible
from memlint.workloads.guess.unstated import unstated_input, unstated_size

FIXTURES = Path(__file__).parents[2] / "fixtures" / "models"


def described(workload):
    return [spec.described(workload.dimensions) for spec in workload.inputs]


def inputs(path, **overrides):
    workload = find_workloads(str(path), path.parent, overrides=overrides).workloads[0]
    return described(complete(workload)[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert", ["input_ids [batch, seq=512] int64 below 30522", "labels [batch, seq=512] int64 below 30522"]),
        ("clip", ["images [batch, 3, 224, 224] float32", "tokens [batch, seq=77] int64 below 49408"]),
        ("gcn", ["features [1024, 512] float32", "edge_index [2, 8192] int64 below 1024"]),
        ("gpt2", ["tokens [batch, seq=1024] int64 below 50257", "targets [batch, seq=1024] int64 below 50257"]),
        ("llama", ["tokens [batch, seq=1024] int64 below 32000", "targets [batch, seq=1024] int64 below 32000"]),
        ("lstm_lm", ["tokens [batch, seq=512] int64 below 10000"]),
        ("mlp", ["x [batch, 784] float32"]),
        ("moe", ["tokens [batch, seq=1024] int64 below 32000", "targets [batch, seq=1024] int64 below 32000"]),
        ("resnet50", ["images [batch, 3, 224, 224] float32"]),
        ("swin", ["images [batch, 3, 224, 224] float32"]),
        ("unet", ["x [batch, 3, 64, 64] float32", "timesteps [batch] int64 below 1000"]),
        ("vit", ["images [batch, 3, 224, 224] float32"]),
    ],
)
def test_fixture_models_get_the_inputs_they_document(name, expected):
    assert inputs(FIXTURES / f"{name}.py") == expected


def test_labels_are_left_out_of_inference():
    assert inputs(FIXTURES / "gpt2.py", mode="inference") == ["tokens [batch, seq=1024] int64 below 50257"]


def module(body, signature="self, x"):
    setup, _, forward = body.partition("|")
    return f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {setup.strip()}
    def forward({signature}):
        {forward.strip()}
"""


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        # Groups are of what the model's convolutions take.
        (
            "self.n = nn.GroupNorm(1, 1); self.c = nn.Conv3d(1, 8, 3) | return self.c(self.n(x))",
            "self, x",
            ["x [batch, 1, 16, 112, 112] float32"],
        ),
        # The size of an image follows from a Linear after flattening.
        (
            "self.c = nn.Conv2d(3, 6, 5); self.l = nn.Linear(6 * 28 * 28, 10) | return self.l(self.c(x).flatten(1))",
            "self, x",
            ["x [batch, 3, 32, 32] float32"],
        ),
        (
            "self.c = nn.Conv2d(1, 6, 5); self.l = nn.Linear(6 * 24 * 24, 10) | return self.l(self.c(x).flatten(1))",
            "self, x",
            ["x [batch, 1, 28, 28] float32"],
        ),
        (
            "self.c = nn.Conv2d(3, 6, 5); self.l = nn.Linear(6 * 46 * 46, 10) | return self.l(self.c(x).flatten(1))",
            "self, x",
            ["x [batch, 3, 50, 50] float32"],
        ),
        # What is permuted has as many dimensions.
        (
            "self.l = nn.Linear(64, 4) | return self.l(spectrogram.permute(2, 0, 1, 3))",
            "self, spectrogram",
            ["spectrogram [batch, 32, 32, 64] float32"],
        ),
        # The layer that gets the input is not the one defined first.
        (
            "self.head = nn.Linear(8, 2); self.e = nn.Embedding(50, 8) | return self.head(self.e(x))",
            "self, x",
            ["x [batch, seq=512] int64 below 50"],
        ),
        (
            "self.head = nn.Linear(8, 2); self.c = nn.Conv1d(4, 8, 3) | return self.head(self.c(x).mean(-1))",
            "self, x",
            ["x [batch, 4, 1024] float32"],
        ),
        # As many dimensions as forward unpacks.
        ("self.l = nn.Linear(8, 2) | b, t, c = x.shape; return self.l(x)", "self, x", ["x [batch, 512, 8] float32"]),
        # Recurrent layers.
        ("self.r = nn.LSTM(6, 4, batch_first=True) | return self.r(x)[0]", "self, x", ["x [batch, 512, 6] float32"]),
        ("self.r = nn.GRU(6, 4) | return self.r(x)[0]", "self, x", ["x [512, batch, 6] float32"]),
        # Two inputs that reach different layers.
        (
            "self.a = nn.Linear(3, 2); self.b = nn.Linear(5, 2) | return self.a(left) + self.b(right)",
            "self, left, right",
            ["left [batch, 3] float32", "right [batch, 5] float32"],
        ),
        # Labels the model needs, and the loss they give.
        (
            "self.l = nn.Linear(3, 7) | return F.cross_entropy(self.l(x), labels)",
            "self, x, labels",
            ["x [batch, 3] float32", "labels [batch] int64 below 10"],
        ),
        (
            "self.l = nn.Linear(3, 7) | y = self.l(x); return y if labels is None else (y, F.cross_entropy(y, labels))",
            "self, x, labels=None",
            ["x [batch, 3] float32", "labels [batch] int64 below 7"],
        ),
        (
            "self.l = nn.Linear(3, 7) | y = self.l(x); self.loss = label is not None and F.cross_entropy(y, label); return y",
            "self, x, label=None",
            ["x [batch, 3] float32", "label [batch] int64 below 7"],
        ),
        (
            "self.l = nn.Linear(3, 7) | y = self.l(x); return y if targets is None else (y, F.mse_loss(y, targets))",
            "self, x, targets=None",
            ["x [batch, 3] float32", "targets [batch, 7] float32"],
        ),
        # Options stay out, plain numbers are given.
        (
            "self.l = nn.Linear(3, 3) | return [x := self.l(x) for _ in range(steps)][-1]",
            "self, x, steps: int, mask=None",
            ["x [batch, 3] float32", "steps = 1"],
        ),
        # The table of positions bounds the sequence.
        (
            "self.e = nn.Embedding(50, 8); self.pos = nn.Parameter(torch.zeros(1, 48, 8)) | return self.e(x) + self.pos[:, : x.shape[1]]",
            "self, x",
            ["x [batch, seq=48] int64 below 50"],
        ),
        (
            "self.e = nn.Embedding(50, 8); self.table = nn.Parameter(torch.zeros(1, 48, 8)) | return self.e(x) + self.table[:, : x.shape[1]]",
            "self, x",
            ["x [batch, seq=48] int64 below 50"],
        ),
        ("self.l = nn.Linear(4, 2) | return self.l(xs[0])", "self, *xs", ["0 [batch, 4] float32"]),
        # What the model adds to the channels is none of the input's.
        (
            "self.c = nn.Conv1d(9, 4, 1) | return self.c(torch.cat([x[:, :3], x], 1))",
            "self, x",
            ["x [batch, 6, 1024] float32"],
        ),
        # A number beside what is turned round.
        (
            "self.c = nn.Conv1d(4, 8, 3) | return self.c(x.transpose(1, 2)) * steps",
            "self, steps: int, x",
            ["steps = 1", "x [batch, 1024, 4] float32"],
        ),
    ],
)
def test_inputs_follow_from_layers_names_and_failures(write, body, signature, expected):
    assert inputs(write(module(body, signature))) == expected


def test_assumptions_name_the_layer_an_input_goes_into():
    path = FIXTURES / "gpt2.py"
    workload = find_workloads(str(path), path.parent).workloads[0]
    texts = [assumption.text for assumption in complete(workload)[1]]
    assert texts[0] == "input tokens [batch, seq=1024] int64 below 50257 (it goes into token_embedding, an Embedding)"


def test_a_model_that_takes_one_item_alone_gets_one_and_says_so(write):
    body = "self.l = nn.Linear(3, 7) | return self.l(x).view(1, x.shape[1] + 4)"
    path = write(module(body))
    workload, assumptions = complete(replace(find_workloads(str(path), path.parent).workloads[0], batch=4))
    assert (workload.batch, [spec.shape for spec in workload.inputs]) == (1, [(1, 3)])
    assert assumptions[0].text.startswith("Net only accepts a batch of 1; with more it raises RuntimeError: shape ")


@pytest.mark.parametrize(("stated", "pictures"), [("", 16), ("self.context_length = 4; ", 4)])
def test_the_channels_of_a_video_that_is_cut_into_patches_are_those_of_its_pictures(write, stated, pictures):
    body = f"""{stated}self.size = 64; self.proj = nn.Conv2d(3 * 4 * 4, 8, 1)|
        B, T, C, H, W = frames.shape
        patches = frames.reshape(B * T, C, H // 4, 4, W // 4, 4).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        return self.proj(patches)"""
    assert inputs(write(module(body, "self, frames"))) == [f"frames [batch, {pictures}, 3, 64, 64] float32"]


def test_dimensions_that_the_code_names_have_the_sizes_that_the_models_tables_have(write):
    body = """self.proj, self.joints = nn.Linear(3, 8), nn.Parameter(torch.zeros(1, 17, 8))
        self.times = nn.Parameter(torch.zeros(1, 27, 1, 8))|
        return self.features(x)

    def features(self, y):
        B, F, J, C = y.shape
        y = self.proj(y.reshape(B * F, J, C)) + self.joints
        return y.view(B, F, J, 8) + self.times"""
    assert inputs(write(module(body))) == ["x [batch, 27, 17, 3] float32"]


@pytest.mark.parametrize(("stated", "frames"), [("self.n_frames = 81; ", 81), ("", 512)])
def test_frames_that_the_model_states_are_those_of_its_input_and_others_are_in_the_headline(write, stated, frames):
    body = f"""{stated}self.proj, self.joints = nn.Linear(2, 8), nn.Parameter(torch.zeros(1, 1, 17, 8))|
        b, t, j, c = x.shape
        return self.proj(x) + self.joints"""
    path = write(module(body))
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0])
    shown = f"x [batch, {frames}, 17, 2] float32"
    assert described(workload) == [shown]
    assert workload.built_by == ("" if stated else f"{shown}: nothing states their size")


def test_dimensions_of_one_name_in_the_code_are_as_large_in_every_input(write):
    body = """self.proj = nn.Conv2d(3, 4, 1)|
        B, T, C, H, W = x.shape
        B, T = t.size()
        return self.proj(x.flatten(0, 1)).view(B, T, 4, H, W) * t.view(B, T, 1, 1, 1)"""
    assert inputs(write(module(body, "self, x, t"))) == [
        "x [batch, 16, 3, 224, 224] float32",
        "t [batch, 16] int64 below 1000",
    ]


def test_a_number_in_a_dictionary_of_inputs_has_no_dimensions():
    number = InputSpec(name="feats.count", shape=(), dtype="int64")
    assert of_one_size(torch.nn.Linear(8, 4), [number]) == [number]


def test_a_comment_of_forward_says_the_dimensions_of_an_input(write):
    body = """self.proj = nn.Linear(6, 4)|
        # x: [B, T, N, C]
        assert x.dim() == 4
        return self.proj(x)"""
    path = write(module(body))
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0])
    (shown,) = described(workload)
    assert shown.endswith(", 6] float32")
    assert len(workload.inputs[0].shape) == 4
    assert workload.built_by == f"{shown}: nothing states their size"


@pytest.mark.parametrize(
    ("steps", "series", "longest", "said"),
    [
        (2, None, 9, "sequences of 2 steps"),
        (2, 2, 9, ""),
        (2, None, 2, ""),
        (5, None, 9, ""),
    ],
    ids=["made up", "stated", "the only number that it takes", "read from the model"],
)
def test_a_few_steps_of_a_series_are_said_to_be_stated_by_nothing(steps, series, longest, said):
    specs = InputSpec("states", ("batch", steps, 6)), InputSpec("actions", ("batch", steps, 2))

    def attempt(tried):
        lengths = {spec.shape[1] for spec in tried}
        fits = len(lengths) == 1 and max(lengths) <= longest
        return SimpleNamespace(error=None if fits else ValueError("the lengths differ, or are too long"))

    stated = dict.fromkeys(("length", "samples", "sound", "image_size"))
    stage = SimpleNamespace(model=torch.nn.Linear(6, 5), attempt=attempt)
    assert unstated_size(stage, specs, {}, SimpleNamespace(series=series, **stated)) == said


@pytest.mark.parametrize(("names", "said"), [((), "y [batch, 1, 28, 28] float32"), (("y",), "")])
def test_an_input_that_goes_into_no_layer_is_said_to_be_stated_by_nothing(names, said):
    specs = InputSpec("x", ("batch", 1, 28, 28)), InputSpec("y", ("batch", 1, 28, 28))

    def attempt(tried, _dimensions):
        return SimpleNamespace(error=None if tried[0] == specs[0] else ValueError("x goes into a layer"))

    entries = dict.fromkeys(("x", *names), torch.nn.Linear(28, 4))
    assert unstated_input(SimpleNamespace(attempt=attempt), specs, {}, entries) == said


@pytest.mark.parametrize(("layer", "is_open"), [("nn.Conv1d(1, 4, 16)", True), ("nn.Linear(256, 4)", False)])
def test_the_length_of_numbers_that_go_into_a_convolution_is_in_the_headline(write, layer, is_open):
    body = f"""self.width = 256; self.layer = {layer}|
        return self.layer(x.unsqueeze(1))"""
    path = write(module(body))
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0])
    (shown,) = described(workload)
    assert ("nothing states their size" in workload.built_by) is is_open, shown


@pytest.mark.parametrize(
    ("stated", "samples"), [("self.segment_length = 48000; ", 48000), ("", 16000)], ids=["stated", "a second"]
)
def test_samples_of_sound_that_a_comment_names_are_those_of_a_recording(write, stated, samples):
    body = f"""{stated}self.layer = nn.Conv1d(1, 4, 251, 10)|
        # x: (bs, samp)
        return self.layer(self.emphasis(x))"""
    emphasis = "    def emphasis(self, x): return x[:, None] - x[:, None].mean()\n"
    path = write(module(body) + emphasis)
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0])
    assert described(workload) == [f"x [batch, {samples}] float32"]
    assert workload.built_by == ("" if stated else f"sequences of {samples} steps: nothing states their size")


def test_a_count_of_what_the_model_makes_of_an_input_makes_the_input_no_list(write):
    layers = "self.conv, self.more = nn.Conv2d(3, 4, 4, 4), nn.ModuleList([nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)])"
    body = f"""{layers}|
        x = self.conv(x)
        kept = torch.ones(len(x), 1, 1, 1, device=x.device)
        return self.more[1](self.more[0](x)) * kept"""
    assert inputs(write(module(body))) == ["x [batch, 3, 224, 224] float32"]


def test_times_of_a_model_of_16_bits_without_weights_stay_as_they_are():
    class Net(torch.nn.Module):
        def forward(self, x, t):
            return x * t.view(-1, 1)

    inferred = Inferred((InputSpec("x", ("batch", 4)), InputSpec("t", ("batch",), "int64", high=9)), ())
    assert in_dtype(Net(), "cpu", inferred, torch.bfloat16) == inferred


FLOW = """
def embedded(t): return torch.cat([torch.cos(t[:, None].float())] * 8, -1).to(t) if t.is_floating_point() else t[:, None].float().repeat(1, 8)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.img_in, self.txt_in, self.time_in, self.y_in = nn.Linear(6, 8), nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(7, 8)
    def forward(self, img, img_ids, txt, txt_ids, timesteps, y, guidance=None):
        if img.ndim != 3 or txt.ndim != 3:
            raise ValueError("Input img and txt tensors must have 3 dimensions.")
        if guidance is None:
            raise ValueError("Didn't get guidance strength for guidance distilled model.")
        places = torch.cat((txt_ids, img_ids), dim=1)
        assert places.shape[-1] == 3
        tokens = torch.cat([self.txt_in(txt), self.img_in(img)], 1) + places.mean(-1, keepdim=True)
        return tokens + (self.time_in(embedded(timesteps)) + self.y_in(y) + guidance[:, None])[:, None]
"""


@pytest.mark.parametrize(("dtype", "times"), [("float32", "int64 below 1000"), ("bfloat16", "float32 below 1.0")])
def test_each_input_has_the_form_of_the_layer_that_gets_it_and_the_dimensions_that_the_model_asks_for(
    write, dtype, times
):
    assert inputs(write(FLOW), dtype=dtype) == [
        "img [batch, 512, 6] float32",
        "img_ids [batch, 512, 3] float32",
        "txt [batch, 512, 5] float32",
        "txt_ids [batch, 512, 3] float32",
        f"timesteps [batch] {times}",
        "y [batch, 7] float32",
        "guidance [batch] float32",
    ]


def test_the_channels_of_a_video_are_those_that_its_pictures_go_in_with(write):
    body = """self.last, self.net = nn.Conv2d(64, 2, 1), nn.Sequential(nn.Conv2d(3, 4, 1))|
        B, T, C, H, W = video.shape
        return self.net(video.reshape(-1, C, H, W)).mean()"""
    path = write(module(body, "self, video"))
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0])
    assert described(workload) == ["video [batch, 16, 3, 224, 224] float32"]
    assert workload.built_by == "images of 224 x 224 pixels: nothing states their size"


def test_a_forward_that_always_raises_is_reported_with_what_was_tried_and_its_line(write):
    path = write(module("self.l = nn.Linear(3, 7) | raise KeyError('never')"))
    with pytest.raises(WorkloadError, match=r"x \[batch, 3\] float32 it raises KeyError: 'never'") as caught:
        inputs(path)
    assert f"{path}:11" in caught.value.message
    assert "memlint_workload" in caught.value.hint


def test_declared_inputs_are_not_guessed_again(write):
    path = write("def memlint_workload(batch):\n    return nn.Linear(3, 2), torch.zeros(batch, 5, 3)\n")
    workload = find_workloads(str(path), path.parent).workloads[0]
    assert complete(workload) == (workload, ())


def test_layers_that_take_the_batch_second_get_it_there(write):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1)
    def forward(self, src): return self.layers(self.words(src))
"""
    assert inputs(write(body)) == ["src [512, batch] int64 below 40"]
    turned = body.replace("self.words(src))", "self.words(src).transpose(0, 1))")
    assert inputs(write(turned, "turned.py")) == ["src [batch, seq=512] int64 below 40"]


@pytest.mark.parametrize(
    ("arguments", "lines", "expected"),
    [
        ("x, low=None", "self.c(x + low)", ["x", "low"]),
        ("x, **more", "self.c(x) if self.need(**more) else 0", ["x", "timesteps"]),
    ],
)
def test_what_an_error_says_is_missing_is_tried(write, arguments, lines, expected):
    code = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(6, 4, 3)
    def need(self, timesteps): return timesteps is not None
    def forward(self, {arguments}): return {lines}
"""
    given = inputs(write(code))
    assert [text.split()[0] for text in given] == expected


def test_a_series_has_the_steps_and_variables_it_was_built_for(write):
    code = """
class Net(nn.Module):
    def __init__(self, seq_len=96, enc_in=7):
        super().__init__()
        self.value = nn.Conv1d(enc_in, 8, 3, padding=1)
        self.mark = nn.Linear(4, 8)
    def forward(self, x_enc, x_mark_enc): return self.value(x_enc.permute(0, 2, 1)).transpose(1, 2) + self.mark(x_mark_enc)
def memlint_workload(): return Net()
"""
    assert inputs(write(code)) == ["x_enc [batch, 96, 7] float32", "x_mark_enc [batch, 96, 4] float32"]


def test_a_model_whose_kernels_take_no_float32_is_tried_in_autocast(write):
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(32, 4)
    def forward(self, x):
        x = self.l(x)
        if x.dtype == torch.float32:
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        return x
"""
    assert inputs(write(code)) == ["x [batch, 32] float32"]


def test_a_length_that_an_assertion_names_is_taken(write):
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(32, 4, 3)
    def forward(self, img):
        assert img.shape[-1] == 128, "seq length must be 128"
        return self.c(img)
"""
    assert inputs(write(code)) == ["img [batch, 32, 128] float32"]


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        (  # points with one-hot classes that are put behind the features
            """self.layer = nn.Conv1d(3, 8, 1)|
        x = self.layer(point_cloud).amax(2)
        return torch.cat([x, label.squeeze(1)], 1).view(-1, 8 + 5, 1)""",
            "self, point_cloud, label",
            ["point_cloud [batch, 3, 1024] float32", "label [batch, 5] float32"],
        ),
        (  # points, although the first layer is two-dimensional, and classes as many as the view says
            """self.layer = nn.Conv2d(6, 8, 1)|
        n, c, p = xyz.shape
        x = self.layer(xyz.view(n, 3, p).repeat(1, 2, 1).unsqueeze(3))
        return x.mean() + cls_label.view(n, 5, 1)""",
            "self, xyz, cls_label",
            ["xyz [batch, 3, 1024] float32", "cls_label [batch, 5] float32"],
        ),
        (  # an optional image that is put beside the other
            """self.layer = nn.Conv2d(6, 8, 1)|
        return self.layer(torch.cat([x, nn.functional.interpolate(low_res, x.shape[2:])], 1))""",
            "self, x, low_res=None",
            ["x [batch, 3, 224, 224] float32", "low_res [batch, 3, 224, 224] float32"],
        ),
        (  # a tuple that training takes apart
            """self.layer = nn.Conv2d(3, 8, 1)|
        if self.training:
            images, annotations = inputs
        else:
            images = inputs
        return self.layer(images).mean() + annotations[:, :, 4].mean()""",
            "self, inputs",
            ["inputs.0 [batch, 3, 224, 224] float32", "inputs.1 [batch, 8, 5] float32 below 32.0"],
        ),
        (  # four images in one, and boxes that training cannot do without
            """self.layer = nn.Conv2d(12, 8, 1)|
        parts = [x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]
        maps = self.layer(torch.cat(parts, 1))
        if not self.training: return maps
        assert targets is not None
        return maps.mean() + (targets.sum(dim=2) > 0).sum(dim=1) + targets[:, :, 1:5].mean()""",
            "self, x, targets=None",
            ["x [batch, 3, 224, 224] float32", "targets [batch, 8, 5] float32 below 32.0"],
        ),
        (  # columns of a table, each with ids of its own in one embedding
            "self.layer = nn.Embedding(30, 4)|return self.layer(x + torch.tensor([0, 10, 20], device=x.device))",
            "self, x",
            ["x [batch, 3] int64 below 10"],
        ),
        (  # an image that goes through what was defined last
            """self.last, self.first = nn.Linear(16, 2), nn.Conv2d(3, 16, 1)|
        if samples.dim() != 4: raise ValueError('not supported')
        return self.last(self.first(samples).flatten(2).mT)""",
            "self, samples",
            ["samples [batch, 3, 224, 224] float32"],
        ),
    ],
    ids=["one-hot", "points", "beside", "tuple", "boxes", "fields", "image"],
)
def test_an_error_says_what_the_next_trial_is_given(write, body, signature, expected):
    assert inputs(write(module(body, signature))) == expected


def test_an_input_gets_the_shape_that_the_module_which_holds_it_asks_for(write):
    path = write("""
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(513, 8, 1)
    def forward(self, spectra): return self.layer(spectra) * (torch.arange(spectra.size(2), device=spectra.device) > 1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(100, 8), Encoder()
    def forward(self, x, y): return self.words(x).mean() + self.encoder(y).mean()
""")
    assert inputs(path)[1] == "y [batch, 513, 1024] float32"


def test_a_size_of_the_model_itself_is_that_of_its_images(write):
    body = "self.size = 300; self.norm = nn.LocalResponseNorm(32); self.layer = nn.Conv2d(3, 4, 1)|return self.layer(x)"
    assert inputs(write(module(body))) == ["x [batch, 3, 300, 300] float32"]


def test_what_forward_counts_and_goes_over_is_a_list(write):
    body = """self.layer = nn.Linear(16, 4)|
        assert len(styles) < 3
        return sum(self.layer(style) for style in styles)"""
    assert inputs(write(module(body, "self, styles"))) == ["styles.0 [batch, 16] float32"]


def test_pieces_of_sound_are_as_long_as_the_settings_of_a_vocoder_say(write):
    path = write("""
from types import SimpleNamespace
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(segment_size=8192, hop_size=256)
        self.layer = nn.Conv1d(80, 8, 7, padding=3)
    def forward(self, x): return self.layer(x)
""")
    assert inputs(path) == ["x [batch, 80, 32] float32"]


def test_height_and_width_among_the_models_settings_are_those_of_its_images(write):
    body = "self.hyperparams = {'height': 416, 'width': 320}; self.layer = nn.Conv2d(3, 4, 1)|return self.layer(x)"
    assert inputs(write(module(body))) == ["x [batch, 3, 416, 320] float32"]


def test_a_functional_convolution_says_that_it_takes_images(write):
    body = "self.size = 64; self.weight = nn.Parameter(torch.zeros(4, 3, 1, 1))|return nn.functional.conv2d(x, self.weight)"
    assert inputs(write(module(body))) == ["x [batch, 3, 64, 64] float32"]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Float[Tensor, 'batch 12 time']", "x [batch, 12, 1024] float32"),
        ("Int64[torch.Tensor, 'b n']", "x [batch, seq=512] int64 below 30"),
        ("Float[Tensor, '#batch *rest']", "x [batch, 16, 1024] float32"),
        ("float['b 12 time']", "x [batch, 12, 1024] float32"),
        ("int['b nt']", "x [batch, seq=512] int64 below 30"),
    ],
)
def test_an_annotation_with_a_shape_says_it(write, annotation, expected):
    body = "self.words = nn.Embedding(30, 16) if {0} else nn.Conv1d(16, 8, 3)|return x.float().mean() * self.words.weight.sum()"
    body = body.format("Int" in annotation.capitalize())
    assert inputs(write(module(body, f'self, x: "{annotation}"')))[0] == expected


@pytest.mark.parametrize(
    ("signature", "forward"),
    [
        ("self, batch", "return self.first(batch['image']).mean((2, 3)) + self.last(batch.get('words')).mean(1)"),
        (
            "self, td: 'TensorDict'",
            "td = td.to(td['image'].device); return self.first(td.image).mean() + self.last(td['words']).mean()",
        ),
    ],
    ids=["dictionary", "TensorDict"],
)
def test_the_fields_of_a_batch_are_those_that_the_code_reads(write, signature, forward):
    name = signature.split()[1].rstrip(":,")
    body = f"self.first, self.last = nn.Conv2d(3, 8, 3), nn.Embedding(50, 8)|{forward}"
    assert sorted(inputs(write(module(body, signature)))) == [
        f"{name}.image [batch, 3, 224, 224] float32",
        f"{name}.words [batch, seq=512] int64 below 50",
    ]


def test_a_graph_in_one_object_has_the_attributes_of_pygs_data(write):
    body = """self.layer = nn.Linear(7, 4)|
        x, edge_index, batch = data.x, data.edge_index, data.batch
        sent = self.layer(x)[edge_index[0]]
        out = torch.zeros(data.x.size(0), 4, device=x.device).index_add(0, edge_index[1], sent)
        return torch.zeros(1, 4, device=x.device).index_add(0, batch, out)"""
    assert inputs(write(module(body, "self, data"))) == [
        "data.x [1024, 7] float32",
        "data.edge_index [2, 8192] int64 below 1024",
        "data.batch [1024] int64 below 1",
    ]


def test_a_number_that_the_message_lists_is_taken(write):
    path = write("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"2": nn.Linear(24, 24), "4": nn.Linear(24, 24)})

    def forward(self, x, scale: int):
        if str(scale) not in self.layers:
            raise ValueError(f"no layer for scale {scale}: {[int(each) for each in self.layers]}")
        return self.layers[str(scale)](x)
""")
    (workload,) = find_workloads(str(path), path.parent).workloads
    workload, _ = complete(workload)
    assert {spec.name: spec.low for spec in workload.inputs}["scale"] == 2


def test_a_part_that_a_model_is_built_without_is_named_in_the_place_of_trials(write):
    path = write("""
    class Net(nn.Module):
        def __init__(self, with_head=False):
            super().__init__()
            self.body = nn.Linear(4, 8)
            self.head = nn.Linear(8, 2) if with_head else None
        def forward(self, x):
            return self.head(self.body(x))
    """)
    with pytest.raises(WorkloadError, match="Net calls its head, but is built without it, because of with_head=False"):
        inputs(path)


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        # A class for each item, beside a table of classes or where the model takes no more.
        (
            (
                "self.class_emb = nn.Embedding(10, 8); self.c = nn.Conv2d(3, 8, 4, 4)"
                " | return self.c(imgs).mean((2, 3)) + self.class_emb(labels)"
            ),
            "self, imgs, labels",
            ["imgs [batch, 3, 224, 224] float32", "labels [batch] int64 below 10"],
        ),
        (
            (
                "self.e = nn.Embedding(50, 8); self.l = nn.Linear(8, 5)"
                " | return F.cross_entropy(self.l(self.e(input_ids).mean(1)), labels)"
            ),
            "self, input_ids, labels",
            ["input_ids [batch, seq=512] int64 below 50", "labels [batch] int64 below 50"],
        ),
        # Sound of several channels, also where a convolution gets twice as many.
        ("self.c = nn.Conv1d(2, 8, 8) | return self.c(audio)", "self, audio", ["audio [batch, 2, 16000] float32"]),
        (
            "self.c = nn.Conv1d(1, 8, 8) | return self.c(audio[:, None])",
            "self, audio",
            ["audio [batch, 16000] float32"],
        ),
        (
            (
                "self.audio_channels = 2; self.samplerate = 44100; self.segment = 10; self.c = nn.Conv2d(4, 8, 1)"
                " | b, c, t = mix.shape; return self.c(torch.cat([mix, mix], 1)[..., None])"
            ),
            "self, mix",
            ["mix [batch, 2, 441000] float32"],
        ),
        # Rows of patches with one channel, and one of several numbers of dimensions that an assertion takes.
        (
            (
                "self.n, self.l = nn.LayerNorm(32 * 32), nn.Linear(32 * 32, 8) | assert scan.ndim in {3, 4}; "
                "b, c, h, w = scan.shape; "
                "rows = scan.reshape(b, c, h // 32, 32, w // 32, 32).permute(0, 2, 4, 1, 3, 5); "
                "return self.l(self.n(rows.flatten(3)))"
            ),
            "self, scan",
            ["scan [batch, 1, 32, 32] float32"],
        ),
        # A file that changes the default of PyTorch.
        ("self.l = nn.Linear(4, 2, dtype=torch.float64) | return self.l(x)", "self, x", ["x [batch, 4] float64"]),
        # What a docstring says; a part of a word is no separator.
        (
            "self.l = nn.Linear(6, 2) | 'x: points of shape (B, max_points, D)'; return self.l(x)",
            "self, x",
            ["x [batch, 512, 6] float32"],
        ),
        (
            (
                "self.words, self.mel_channels = nn.Embedding(30, 16), 80 | "
                "'y (torch.Tensor): batch of spectrograms, before they are cut.\\n shape: (batch_size, n_feats, max_mel_length)'; "
                "return self.words(x).mean() * y.transpose(1, 2).log().mean()"
            ),
            "self, x, y",
            ["x [batch, 512] int64 below 30", "y [batch, 80, 512] float32"],
        ),
        # A model that adds one to words: nought stands for none.
        (
            "self.words = nn.Embedding(30, 4) | return self.words(tokens + 1)",
            "self, tokens",
            ["tokens [batch, seq=512] int64 below 29"],
        ),
        # Features that come together with others, each of two inputs with its own.
        (
            (
                "self.time, self.words, self.together = nn.Linear(256, 8), nn.Embedding(30, 12), nn.Linear(32, 8) | "
                "text = self.words(text)[:, :1].expand(-1, x.shape[1], -1); "
                "return self.together(torch.cat([x, cond, text], -1)).mean()"
            ),
            "self, x: \"float['b n d']\", cond: \"float['b n d']\", text: \"int['b nt']\"",
            ["x [batch, 512, 10] float32", "cond [batch, 512, 10] float32", "text [batch, 512] int64 below 30"],
        ),
        (
            (
                "self.time, self.together = nn.Linear(256, 8), nn.Linear(32, 8) | "
                "return self.together(torch.cat([x, torch.zeros_like(x), x.new_zeros(*x.shape[:2], 12)], -1)).mean()"
            ),
            "self, x: \"float['b n d']\"",
            ["x [batch, 512, 10] float32"],
        ),
        # The shape of a whole input, which a model states.
        (
            "self.in_shape, self.l = (5, 16, 16, 3), nn.Linear(3, 8) | b, t, h, w, c = x.shape; return self.l(x)",
            "self, x",
            ["x [batch, 5, 16, 16, 3] float32"],
        ),
        # What is asked for its truth is no tensor.
        (
            "self.l = nn.Linear(4, 2) | return self.l(x).softmax(1) if soft else self.l(x)",
            "self, x, soft",
            ["x [batch, 4] float32", "soft = True"],
        ),
        # Sound, of whose spectrum the layers take the pictures.
        (
            "self.c = nn.Conv2d(1, 8, 3) | x = torch.stft(y.squeeze(1), 512, return_complex=True); return self.c(x.abs()[:, None])",
            "self, y",
            ["y [batch, 1, 16000] float32"],
        ),
        # As many patches, with a class beside them, as there are positions.
        (
            (
                "self.c, self.places = nn.Conv2d(3, 8, 16, 16), nn.Parameter(torch.zeros(401, 8)) | "
                "x = self.c(image).flatten(2).transpose(1, 2); "
                "return torch.cat([x.new_zeros(len(x), 1, 8), x], 1) + self.places"
            ),
            "self, image",
            ["image [batch, 3, 320, 320] float32"],
        ),
        # Lengths by their first letter, and the batch first where a docstring has it.
        (
            (
                "self.queries, self.l = nn.Embedding(3, 8), nn.Linear(8, 8) | "
                "'src_txt: [batch_size, L_txt, D_txt]\\n src_mask: [batch_size, L_txt]'; "
                "return self.l(src_txt) * src_mask[..., None]"
            ),
            "self, src_txt, src_mask",
            ["src_txt [batch, 512, 8] float32", "src_mask [batch, 512] bool below 2"],
        ),
        # A pyramid of feature maps, one for each of the layers.
        (
            (
                "self.layers = nn.ModuleList(nn.Conv2d(c, 4, 1) for c in (8, 16))"
                " | return sum(layer(feats[i]).mean() for i, layer in enumerate(self.layers))"
            ),
            "self, feats",
            ["feats.0 [batch, 8, 56, 56] float32", "feats.1 [batch, 16, 28, 28] float32"],
        ),
        (
            (
                "self.layers = nn.ModuleList(nn.Conv2d(c, 4, 1) for c in (8, 16))"
                " | assert len(feats) == 2; return sum(layer(f).mean() for layer, f in zip(self.layers, feats))"
            ),
            "self, feats",
            ["feats.0 [batch, 8, 56, 56] float32", "feats.1 [batch, 16, 28, 28] float32"],
        ),
    ],
)
def test_inputs_follow_from_what_a_model_is_for(write, body, signature, expected):
    assert inputs(write(module(body, signature))) == expected


ENCODED = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 4)
    def forward(self, given):
        return {encode}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.last = nn.{last}
    def forward(self, batch):
        return {forward}
"""


@pytest.mark.parametrize(
    ("encode", "last", "forward", "expected"),
    [
        (
            "self.layer(given['state'])",
            "Conv2d(3, 4, 3)",
            "self.last(batch['rgb']).mean((2, 3)) + self.encoder(batch)",
            ["batch.rgb [batch, 3, 224, 224] float32", "batch.state [batch, 7] float32"],
        ),
        (
            "self.layer(given['state']) if 'state' in given else None",
            "Linear(4, 2)",
            "self.last(self.encoder(batch))",
            ["batch.state [batch, 7] float32"],
        ),
        (
            "torch.zeros(1024, 4).to(given.x.device).index_add(0, given.edge_index[1], self.layer(given.x)[given.edge_index[0]])",
            "Linear(4, 2)",
            "self.last(torch.zeros(batch.num_graphs, 4).to(batch.batch.device).index_add(0, batch.batch, self.encoder(batch)))",
            [
                "batch.batch [1024] int64 below 1",
                "batch.x [1024, 7] float32",
                "batch.edge_index [2, 8192] int64 below 1024",
                "batch.num_graphs = 1",
            ],
        ),
    ],
    ids=["dictionary", "asked for", "graph"],
)
def test_entries_that_other_code_than_forward_reads_are_learnt_from_trials(write, encode, last, forward, expected):
    path = write(ENCODED.format(encode=encode, last=last, forward=forward))
    assert sorted(inputs(path)) == sorted(expected)


DETECTOR = """
class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes, self.boxes = nn.Embedding(11, 8), nn.Linear(4, 8)
    def forward(self, targets):
        num = max(len(t["labels"]) for t in targets)
        return torch.stack([self.classes(t["labels"][:num]) + self.boxes(t["boxes"][:num]) for t in targets])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.queries = nn.Conv2d(3, 8, 16, 16), Queries()
    def forward(self, x, targets=None):
        features = self.stem(x).flatten(2).transpose(1, 2)
        return torch.cat([self.queries(targets), features], 1) if self.training else features
"""


def test_a_list_of_images_with_their_objects_is_learnt_from_trials(write):
    of_training = ["targets[].boxes [8, 4] float32 below 32.0", "targets[].labels [8] int64 below 11"]
    path = write(DETECTOR)
    assert inputs(path) == ["x [batch, 3, 224, 224] float32", *reversed(of_training)]
    assert inputs(path, mode="inference") == ["x [batch, 3, 224, 224] float32"]


def test_what_forward_makes_itself_is_no_input_although_the_line_that_makes_it_fails(write):
    path = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem, self.head = nn.Linear(20, 8), nn.Linear(8, 8)
            def forward(self, a, b, s=None):
                if s is None:
                    s = self.stem(torch.cat([a, b, a], 1))
                return self.head(s)
    """)
    with pytest.raises(WorkloadError, match="no inputs were found"):
        inputs(path)


OF_LISTS = """
from typing import Dict, List, Optional
from torch import Tensor
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 16, 16)
    def forward(self, images{}, targets{}=None):
        {}
        if self.training and targets is None: raise ValueError("targets should not be None")
        if not all("masks" in each for each in targets or ()): raise ValueError("each should have a masks key")
        for each in targets or ():
            x1, y1, x2, y2 = each["boxes"].unbind(1)
            assert (x2 > x1).all() and (y2 > y1).all() and len(each["masks"]) == len(each["labels"])
        return self.stem(torch.stack([image / 255 for image in images]))
"""


@pytest.mark.parametrize(
    "words",
    [
        (": list[Tensor]", ": Optional[list[dict[str, Tensor]]]", ""),
        ("", "", "# type: (List[Tensor], Optional[List[Dict[str, Tensor]]]) -> Tensor"),
    ],
    ids=["annotated", "commented"],
)
def test_lists_that_a_signature_speaks_of_are_the_images_and_their_objects(write, words):
    path = write(OF_LISTS.format(*words))
    assert inputs(path) == [
        "images[] [3, 224, 224] float32",
        "targets[].boxes [8, 4] float32 counting from 0",
        "targets[].labels [8] int64 below 2",
        "targets[].masks [8, 224, 224] float32",
    ]
    assert inputs(path, mode="inference") == ["images[] [3, 224, 224] float32"]


def test_a_size_that_numpy_computed_is_a_plain_number() -> None:
    (size,) = InputSpec("x", (np.int64(513),)).shape
    assert (size, type(size)) == (513, int)


class Enlarging(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 3 * factor**2, 3, padding=1)
        self.last = torch.nn.PixelShuffle(factor)

    def forward(self, image):
        return self.last(self.first(image))


@pytest.mark.parametrize(("factor", "side"), [(4, 22), (1, 88), (2, 88)])
def test_a_model_that_makes_the_larger_images_of_a_data_set_takes_the_smaller_ones(factor, side):
    inferred = infer_inputs(
        Enlarging(factor), train=True, device="cpu", stated={"image_size": 88, "low_image_size": 22}
    )
    assert [each.described({}) for each in inferred.inputs] == [f"image [batch, 3, {side}, {side}] float32"]


def test_a_picture_for_a_model_of_videos_becomes_several(write):
    path = write(
        module(
            "self.conv = nn.Conv2d(4, 8, 3) | b, f, c, h, w = x.shape; return self.conv(x.reshape(b * f, c, h, w))",
        )
    )
    assert inputs(path) == ["x [batch, 16, 4, 224, 224] float32"]


def test_a_video_has_as_many_pictures_and_as_large_ones_as_the_model_states():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.img_height = self.img_width = 64
            self.num_frames = 8
            self.patches = torch.nn.Conv3d(3, 4, (2, 16, 16), (2, 16, 16))
            self.head = torch.nn.Linear(4 * 4 * 16, 2)

        def forward(self, x):
            return self.head(self.patches(x).flatten(1))

    (video,) = infer_inputs(Net(), train=True, device="cpu").inputs
    assert video.shape[1:] == (3, 8, 64, 64)


def test_an_assertion_that_compares_shapes_says_the_sizes_of_an_input(write):
    path = write(
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 8, 3, padding=1)
                self.grid = nn.Parameter(torch.zeros(48, 80))

            def forward(self, x):
                assert x.shape[2:] == self.grid.shape
                return self.conv(x + self.grid)
        """
    )
    assert inputs(path) == ["x [batch, 3, 48, 80] float32"]


def test_latents_have_the_size_that_the_config_of_their_model_says(write):
    path = write("""
class Latents(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = {"sample_size": 64, "in_channels": 4}
        self.conv_in = nn.Conv2d(4, 8, 3)
    def forward(self, sample):
        return self.conv_in(sample)
""")
    (workload,) = find_workloads(str(path), path.parent, overrides={}).workloads
    assert described(complete(workload)[0]) == ["sample [batch, 4, 64, 64] float32"]


def test_the_first_call_of_a_lazy_model_makes_its_parameters(write, monkeypatch):
    for lazy in (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer):
        monkeypatch.setattr(lazy, "_allowed_methods", lazy._allowed_methods)  # restored after the test
    let_lazy_parameters_be_asked()
    path = write("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.LazyConv2d(8, 3), nn.LazyLinear(10)
    def forward(self, images):
        return self.out(self.conv(images).flatten(1))
""")
    (workload,) = find_workloads(str(path), path.parent, overrides={"batch": 2}).workloads
    program = build_program(complete(workload)[0])
    trace_program(program, device_named("a100-80gb"))
    assert [tuple(parameter.shape) for parameter in program.model.parameters()] == [
        (8, 3, 3, 3),
        (8,),
        (10, 8 * 222 * 222),
        (10,),
    ]
    assert len(program.optimizer.state) == 4


def test_an_assertion_on_one_size_says_the_lengths_of_several_inputs_of_the_same_kind(write):
    path = write(
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self._frames, self._words = 61, 77
                self.first = nn.Linear(20, 32)
                self.second = nn.Linear(24, 32)
                self.position = nn.Parameter(torch.zeros(1, self._frames, 32))

            def forward(self, film, motion):
                assert film.shape[1] == self._frames, f"{film.shape=}"
                assert motion.shape[1] == self._words, f"{motion.shape=}"
                film = self.first(film) + self.position
                return film.mean(1) + self.second(motion).mean(1)
        """
    )
    assert inputs(path) == ["film [batch, 61, 20] float32", "motion [batch, 77, 24] float32"]


def test_ids_of_which_the_model_wants_the_range_of_a_float_are_numbers(write):
    path = write(
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(1, 32)

            def forward(self, input_ids: torch.FloatTensor):
                smallest = torch.finfo(input_ids.dtype).min
                return self.embed(input_ids.unsqueeze(-1)).clamp(min=smallest)
        """
    )
    (given,) = inputs(path)
    assert given.endswith("float32")


def test_nothing_is_made_up_for_a_function_that_a_constructor_wants():
    wanted = inspect.Parameter("encode", inspect.Parameter.KEYWORD_ONLY, annotation=Callable[[torch.Tensor], object])
    assert plain_value(wanted) is None


def test_height_and_width_of_a_docstring_are_those_of_an_image():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.queries = torch.nn.Linear(256, 4)
            self.patches = torch.nn.Conv2d(3, 256, 16, 16)

        def forward(self, samples):
            """The batch of images, `samples` of shape [batch_size x 3 x H x W]."""
            return self.queries(self.patches(samples).flatten(2).transpose(1, 2))

    (image,) = infer_inputs(Net(), train=True, device="cpu", stated={"image_height": 320, "image_width": 480}).inputs
    assert image.shape == ("batch", 3, 320, 480)


def test_tokens_of_an_image_are_in_rows_and_what_chooses_is_a_mask():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.input_size, self.max_seq_len = 24, 576
            self.table, self.classes = torch.nn.Embedding(64, 8), torch.nn.Embedding(11, 8)

        def forward(self, x, y, drop_label):
            b, h, w = x.size()
            y = torch.where(drop_label, torch.full_like(y, 10), y)
            return self.table(x.reshape(b, h * w)) + self.classes(y)[:, None]

    tokens, labels, chosen = infer_inputs(Net(), train=True, device="cpu").inputs
    assert (len(tokens.shape), tokens.shape[1], tokens.dtype) == (3, tokens.shape[2], "int64")
    assert (labels.shape, labels.dtype, chosen.shape, chosen.dtype) == (("batch",), "int64", ("batch",), "bool")


def test_layers_of_torchscript_are_called_without_being_watched():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(torch.nn.Linear(8, 8))
            self.conv = torch.nn.Conv2d(3, 8, 3)

        def forward(self, x):
            return self.scripted(self.conv(x).mean((2, 3)))

    (image,) = infer_inputs(Net(), train=False, device="cpu").inputs
    assert image.shape[:2] == ("batch", 3)


def test_a_model_whose_train_returns_nothing_is_built(tmp_path):
    text = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def train(self, mode=True):
        super().train(mode)

    def forward(self, x):
        return self.layer(x)
"""
    file = tmp_path / "net.py"
    file.write_text(text)
    (workload,) = find_workloads(str(file), tmp_path).workloads
    assert complete(workload, tmp_path)[0].inputs == (InputSpec("x", ("batch", 8)),)
    trace_program(build_program(workload, tmp_path), device_named("a100-80gb"), num_steps=1)


@pytest.mark.parametrize(("features", "sides"), [(3, (224, 224)), (96, (56, 56)), (1024, (14, 14)), (2048, (7, 7))])
def test_a_map_of_many_features_is_as_small_as_those_of_usual_models(tmp_path, features, sides):
    path = tmp_path / "model.py"
    path.write_text(
        "from torch import nn\nclass Decoder(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.attention = nn.Linear({features}, 4)\n    def forward(self, encoded):\n"
        '        """:param encoded: images, a tensor of dimension (batch_size, enc_image_size, enc_image_size, dim)"""\n'
        "        return self.attention(encoded.view(encoded.size(0), -1, encoded.size(-1))).mean(1)\n"
    )
    assert inputs(path) == [f"encoded [batch, {sides[0]}, {sides[1]}, {features}] float32"]


@pytest.mark.parametrize(
    ("shape", "credible"),
    [
        (("batch", 3, 224, 224), True),
        ((6, 3, 224, 224), True),
        (("batch", 3, 1024, 128), True),
        (("batch", 1, 80, 3000), True),
        (("batch", 3, 10752, 256), False),
        (("batch", 3, 8192, 8192), False),
        (("batch", 0), False),
    ],
)
def test_pictures_that_no_model_is_trained_with_are_no_guess(shape, credible):
    assert is_credible(InputSpec("x", shape)) is credible
