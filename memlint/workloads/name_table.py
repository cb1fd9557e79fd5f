"""The table of inputs by parameter name: the one table that guesses of inputs and sizes look up.

Correct a wrong guess here. A row says for which names it holds, and the input that these get:

| column | meaning |
|---|---|
| names | words; `*_mask` stands for all that end so, `max_*` for all that begin so, `*mark*` for all that have it |
| shape | sizes: numbers, `batch`, and words that the reader of the table looks up |
| dtype, low, high, counted | as in an InputSpec; `constant` is the Python value in `low` |
| when | facts of the model and the other parameters that all have to hold; `!` stands for not |

A word `a|b|32` is the first size that is known, here 32 if neither is. Words are names of a config's sizes, or with `@`
what the reader computes; `*@picture` stands for several sizes. A row with a size that is not known says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from memlint.targets.workload import BATCH, CONSTANT, SEQUENCE, InputSpec
from memlint.workloads.model_sizes import DEFAULT_LENGTH

Size = int | float | str
Lookup = Callable[[str], "Size | tuple[Size, ...] | None"]
"""Looks up the size that a word stands for in a model; None if that is not known."""


class Row(NamedTuple):
    """Names, and the input that parameters of these names get; the columns are described above."""

    names: str
    shape: tuple[Size, ...] = ()
    dtype: str = "float32"
    low: Size | None = None
    high: Size | None = None
    when: str = ""
    counted: bool = False


# --- Any module: `guess/forward_names.py`, the first row that holds

TRAINING_STEPS = 1000
"""Timesteps of a diffusion model."""
NODES, EDGES = 1024, 8192
"""Size of the graph a graph network is given unless declared."""
NUM_BOXES = 8
"""Objects of an image: COCO has 7.3 of them on average (Lin et al., 2014)."""
_OF_LABELS = "targets target labels label tgt_labels y_true"
_OF_CLASSES = "y class_labels class_label class_ids c classes"
_OF_ADJACENCIES = "adj adjacency adj_matrix adjacency_matrix a_hat"
_OF_TIMES = (
    "t time times timestep timesteps time_step time_steps step diffusion_step diffusion_steps noise_level noise_levels"
    " sigma sigmas time_cond noise_label noise_labels noise_cond"
)
LABELS = frozenset(_OF_LABELS.split())
"""Parameters that make a model return its loss."""
TIMES = frozenset(_OF_TIMES.split())
"""Parameters that only models of diffusion have."""
OF_GRAPHS = frozenset(("edge_index", *_OF_ADJACENCIES.split()))
"""Parameters that say which nodes of a graph are neighbours."""

IMAGES_AND_SERIES = (
    Row("pixel_values image images img imgs pixels picture pictures rgb", ("*@image",), when="!long"),
    Row("low_res lowres lq hint cond_image", ("*@image",), when="!long"),
    Row("x_dec dec_inp", (BATCH, "*@decoded_series")),
    Row("*mark_dec* *dec_mark* *y_mark*", (BATCH, "@decoded_length", "@marks")),
    Row("x x_enc x_dec batch_x dec_inp z past_values", (BATCH, "*@series")),
    Row("*mark*", (BATCH, "@series_length", "@marks")),
    Row("x mix mixture waveform waveforms audio wav", (BATCH, "*@stated_sound")),
    Row("x noise sample x_t xt z_t", ("*@image",), when="convolution times"),
)
"""Inputs whose sizes a model's layers or settings say, unless an annotation says a shape."""

FORWARD = (
    Row("*", ("*@text",), "int64", high="@vocabulary", when="long"),
    Row(
        "input_ids tokens token_ids token ids idx text texts input_tokens indices words decoder_input_ids src_tokens "
        "tgt_tokens prev_output_tokens caption captions prompt",
        ("*@text",), "int64", high="@vocabulary",
    ),
    Row("src tgt trg source query memory decoder_input encoder_input", ("*@text",), "int64", high="@vocabulary",
        when="embedding"),
    Row("waveform waveforms audio wav input_values speech mix mixture", (BATCH, "*@sound")),
    Row("mel mels mel_spec mel_specs spectrogram spectrograms melspec", (BATCH, "@mels|80", "@frames")),
    Row("max_* *_max", (), CONSTANT, low="@length"),
    Row("annotations annotation annots annot", (BATCH, NUM_BOXES, 5), low=0.0, high=32.0),  # a box and its class
    Row("boxes bboxes gt_boxes gt_bboxes", (BATCH, NUM_BOXES, 4), low=0.0, high=32.0),
    Row(_OF_TIMES, (BATCH,), "int64", high=TRAINING_STEPS),
    Row("guidance guidance_scale", (BATCH,)),
    Row("coors coords coord coordinates vertices verts xyz", (BATCH, "@length", 3), when="!convolution !graph"),
    Row("edge_index", (2, EDGES), "int64", high=NODES),
    Row("edge_weight", (EDGES,)),
    Row("batch", (NODES,), "int64", high=1, when="graph"),
    Row("num_graphs", (), CONSTANT, low=1),
    Row("num_nodes", (), CONSTANT, low=NODES),
    Row("edge_attr", (EDGES, 1)),
    Row(_OF_ADJACENCIES, (NODES, NODES), low=0.0, high=1.0),
    Row("*", (NODES, "@node_features"), when="graph"),
    Row("token_type_ids segment_ids type_ids segments segment_info", (BATCH, "@length"), "int64", high=2),
    Row("*_ids", (BATCH, "@length", 3), when="places"),  # time, height and width of each patch, as in FLUX
    Row("position_ids positions pos pos_ids input_pos", (BATCH, "@length"), "int64", high="@length"),
    Row("lengths length seq_lens seq_lengths input_lengths src_lengths *_lengths *_lens", (BATCH,), "int64",
        low="@length", high="@after_length"),
    Row("mask attention_mask attn_mask src_mask tgt_mask padding_mask key_padding_mask *_mask", (BATCH, "@length"),
        "bool", 1, 2),
    Row(_OF_LABELS, (BATCH, "@length"), "int64", high="@vocabulary", when="others embedding"),  # one a position
    Row(f"{_OF_LABELS} {_OF_CLASSES} *_label", (BATCH,), "int64", high="@classes|10", when="others !predicted"),
    Row("hidden_states encoder_hidden_states context inputs_embeds memory cond embeddings",
        (BATCH, "@length", "@width"), when="no_other_entry"),
)  # fmt: skip
"""Everything else; a parameter without a row gets what the first layer takes."""

# --- Hugging Face's transformers: `huggingface/by_name.py`

_WIDTH = "hidden_size|d_model|n_embd|embed_dim|encoder_hidden_dim|dim|1"
_OTHER_WIDTH = f"encoder_hidden_size|cross_attention_hidden_size|cross_hidden_size|kv_dim|vision_dim|{_WIDTH}"
_PATCHES = 256
"""Hidden states of an image, where one comes from another tower."""
_QUESTION = 32
"""Tokens of a question to a Q-Former."""
_STEPS = 20
"""Steps of a trajectory: the context of the Decision Transformer's paper."""
FRAMES = 1000
"""Frames of a spectrogram: ten seconds at the usual hundred a second."""
_CODES = 100
"""Steps of a codec's code."""
_SOUND = 500
"""Features of a recording: ten seconds at fifty a second."""
_OPTIONS = 2
"""Questions, and answers to each."""
_CLASSES = 2
"""Names of classes, of each image in which they are to be found."""
_REGIONS = 36
"""Regions of an image for LXMERT, as in its paper."""

TRANSFORMERS = (
    Row("hidden_states inputs_embeds", (BATCH, DEFAULT_LENGTH, f"mel_dim|{_WIDTH}")),
    Row("qformer_input_ids", (BATCH, _QUESTION), "int64", high="@qformer_vocabulary"),
    Row("prompt_pixel_values prompt_masks", (BATCH, "*@half")),
    Row("state", (BATCH, "max_state_dim|32")),
    Row("spectrogram", (BATCH, DEFAULT_LENGTH, "model_in_dim|num_mel_bins|80")),
    Row("audio_mel", (BATCH, FRAMES, "input_feat_size|128")),
    Row("audio_mel_mask", (BATCH, FRAMES), "bool", high=1),
    Row("merge_sizes", (BATCH,), "int64", 1, 2),
    Row("query_embeds", (BATCH, "num_query_tokens|32", _WIDTH)),
    Row("encoder_hidden_states", (BATCH, _PATCHES, _OTHER_WIDTH)),
    Row("attention_mask", (BATCH, DEFAULT_LENGTH), "int64", 1, 2),
    Row("past_values", (BATCH, "*@past")),
    Row("past_values_padding", (BATCH, "*@past"), "int64", high=1),
    Row("past_observed_mask", (BATCH, "*@past"), "int64", 1, 2),
    Row("past_time_features", (BATCH, "@past_length", "num_time_features|1")),
    Row("future_values", (BATCH, "prediction_length|24")),
    Row("future_time_features", (BATCH, "prediction_length|24", "num_time_features|1")),
    Row("freq", (BATCH, 1), "int64", high=3),
    Row("audio_codes", (BATCH, "num_quantizers|num_codebooks|n_codebooks|8", _CODES), "int64",
        high="codebook_size|1024"),
    Row("bbox", (BATCH, DEFAULT_LENGTH, 4), "int64", high=1),
    Row("states", (BATCH, _STEPS, "state_dim|1")),
    Row("actions", (BATCH, _STEPS, "act_dim|1")),
    Row("rewards returns_to_go", (BATCH, _STEPS, 1)),
    Row("timesteps", (BATCH, _STEPS), "int64", high="max_ep_len|1000"),
    Row("condition_vector reference_mel", (BATCH, FRAMES, "mel_dim|80")),
    Row("speaker_embedding", (BATCH, DEFAULT_LENGTH, "enc_emb_dim|192")),
    Row("conditioning", (BATCH, "enc_emb_dim|192")),
    Row("quantized_code", (BATCH, "@length_without_repeats"), "int64", high="num_embeds|1000"),
    Row("code", (BATCH, _CODES), "int64", high="num_embeds|1000"),
    Row("time_step", (BATCH,), low=0.0, high=1.0),
    Row("feature_lens", (BATCH,), "int64", FRAMES, FRAMES + 1),
    Row("marks", (BATCH, _OPTIONS), "int64", 1, DEFAULT_LENGTH),
    Row("num_options", (BATCH, _OPTIONS), "int64", _OPTIONS, _OPTIONS + 1),
    Row("question_type_ids", (BATCH, _OPTIONS), "int64", high=1),
    Row("image_attention_mask", (BATCH, SEQUENCE, 1), "int64", 1, 2),
    Row("input_features", (BATCH, _SOUND, "feature_projection_input_dim|80")),
    Row("pixel_attention_mask", (BATCH, 1), "int64", 1, 2),
    Row("pixel_values_videos", (BATCH, "num_frames|8", "*@picture")),
    Row("classes_input_ids", (f"{_CLASSES}*{BATCH}", _QUESTION), "int64", high="vocab_size|1000"),
    Row("classes_attention_mask", (f"{_CLASSES}*{BATCH}", _QUESTION), "int64", 1, 2),
    Row("tasks_input_ids", (BATCH, _QUESTION), "int64", high="vocab_size|1000"),
    Row("tasks_attention_mask", (BATCH, _QUESTION), "int64", 1, 2),
    Row("classes_structure", (BATCH,), "int64", _CLASSES, _CLASSES + 1),
    Row("visual_feats", (BATCH, _REGIONS, "visual_feat_dim|2048")),
    Row("visual_pos", (BATCH, _REGIONS, 4), low=0.0, high=1.0),
)  # fmt: skip

COMPANIONS = {
    "past_values": ("past_time_features", "future_values", "future_time_features"),
    "states": ("actions", "rewards", "returns_to_go", "timesteps"),
}
"""Inputs that a model of transformers needs beside its main input although it does not say so."""

# --- What the heads of transformers are trained with: `huggingface/labels.py`, the likeliest first

_OBJECTS = 8
"""Objects per image in detection."""

HEADS = (
    (Row("return_loss", (), CONSTANT, low=True, when="return_loss"),),
    (Row("start_positions end_positions", (BATCH,), "int64", high="@length", when="positions tokens"),),
    (
        Row("labels[].class_labels", (_OBJECTS,), "int64", high="@num_labels", when="labels detection"),
        Row("labels[].boxes", (_OBJECTS, 4), low=0.1, high=0.4),
    ),
    (Row("labels", (BATCH, "*@sides"), "int64", high="@num_labels", when="labels semantic_segmentation"),),
    (Row("labels", (BATCH,), "int64", high="@num_choices", when="labels classification !masked_image"),),
    (
        Row("labels", ("*@tokens",), "int64", high="@num_words", when="labels next_sentence tokens !masked_image"),
        Row("next_sentence_label", (BATCH,), "int64", high=2),
    ),
    (Row("labels", ("*@tokens",), "int64", high="@num_words", when="labels tokens !masked_image"),),
    (Row("labels", (BATCH, "@transcript"), "int64", 1, "@vocabulary", when="labels !tokens !masked_image"),),
    (Row("labels", (BATCH,), "int64", high="@num_labels", when="labels !masked_image"),),
)
"""Rows that go together; the facts of the first are those of all."""

# --- diffusers: `huggingface/diffusion_inputs.py`

DIFFUSION_STEPS = 1000
"""Steps of the noise schedule."""
_CLIP_WIDTH, _CLIP_TOKENS = 1280, 257
"""Features of an image from CLIP's largest encoders where the config does not say their width: ViT-H has 1,280."""
POOLED = "pooled_projection_dim|in_text_dim2|cond_embed_dim"
DIFFUSION_TIMES = ("timestep", "timesteps", "t", "timestep_r", "r_timestep", "timestep_ratio", "fps")

BESIDE_LATENT = (
    Row(" ".join(DIFFUSION_TIMES), (BATCH,), "int64", high=DIFFUSION_STEPS),
    Row("control_hidden_states", (BATCH, "vace_in_channels", "*@behind_channels")),
    Row("image_latents", (BATCH, "*@latent")),
    Row("encoder_hidden_states cap_feats", (BATCH, "@text", "@text_width")),
    Row("encoder_attention_mask mask", (BATCH, "@text"), "int64", 1, 2, when="text"),
    Row("encoder_hidden_states_mask", (BATCH, "@text"), "bool", 1, 2, when="text"),
    Row("pooled_projections", (BATCH, POOLED)),
    Row("class_labels", (BATCH,), "int64", high="num_embeds_ada_norm|num_class_embeds"),
    Row("guidance", (BATCH,), when="guidance"),
    Row("img_ids", ("@rows", "@axes"), when="rows"),
    Row("txt_ids", ("@text", "@axes")),
    Row("num_frames", (), CONSTANT, low="@frames", when="rows"),
    Row("height", (), CONSTANT, low="@height", when="rows"),
    Row("width", (), CONSTANT, low="@width", when="rows"),
    Row("image_embeds encoder_hidden_states_image",
        (BATCH, _CLIP_TOKENS, f"image_embed_dim|image_proj_dim|image_dim|{_CLIP_WIDTH}")),
    Row("encoder_hidden_states_2", (BATCH, "@text", "text_embed_2_dim")),
    Row("encoder_attention_mask_2", (BATCH, "@text"), "int64", 1, 2, when="second_text"),
    Row("image_embeddings", (BATCH, 1, "@text_width")),
    Row("original_size target_size crop_coords", (BATCH, 2)),
    Row("added_time_ids", (BATCH, "@num_time_ids")),
    Row("controlnet_cond", (BATCH, "*@condition")),
    Row("conditioning_mask", (BATCH, 1, "*@behind_channels")),
    Row("padding_mask", (1, 1, "*@grid")),
    Row("global_hidden_states", (BATCH, 1, "global_states_input_dim|global_cond_dim")),
)  # fmt: skip
"""Inputs that go with a latent."""

WITH_VIDEO = (
    Row("*pixel_values", (BATCH, "@colours", "@frames_in_pixels", "@side", "@side")),
    Row("indices_*", ("@frames",), "int64", counted=True),
)
"""Inputs that go with a video, looked up before the docstring."""

DIFFUSERS = (
    Row("*_order_mask", (BATCH,), "int64", counted=True),  # which item of the batch it belongs to
    Row("*_mask", (BATCH, "@text_length"), "bool", 1, 2),
    Row("*_lens *_lengths", (BATCH,), "int64", "@text_length", "@after_text_length"),
    Row("*_drop", (BATCH, "@text_length"), "bool"),
)
"""Inputs of which nothing else says anything."""

# --- Constructors: `constructor_values.py`, the first pattern that fits

SOME_SIZE = r".*(dim|dims|width|hidden|hid|features?|feats?|embed|emb|embd|d_model|d_ff|size|units|planes|filters)"
CONSTRUCTORS: tuple[tuple[str, object], ...] = (
    (r"(in|input|n|num|image|img)?_?(channels?|chans?|ch)|c_in|(n|num)_?inputs", 3),
    (r"(out|num|n)?_?(classes|class|labels|outputs?)|out_(channels|dim|ch)|output_(dim|size)", 10),
    (r"(n|num)?_?(vocab|tokens?|ntoken|words)(_size)?|.*vocab(ulary)?(_size)?|n_symbols", 50257),
    (r"(image|img|input)_?(size|resolution|h|w)|resolution|height|width_px|(img|image)_?[hw]", 224),
    (r"(\w+_)?patch_?(size|dim)?", 16),
    (r"(\w+_)?(layers?|blocks?|depth|stages)|depths?|nlayers", 6),
    (r"(n|num)?_?heads?|nhead|.*_heads", 8),
    (r"kernel(_size)?", 3),
    (r"stride|dilation|groups|expansion|factor|scale", 1),
    (r"padding|pad|.*_(idx|index|id)", 0),
    (r".*drop(out)?.*|p|.*_(rate|prob)", 0.1),
    (r"(dim|d|head)_(head|k|v)|(head|dim_head)_dim|head_size", 64),
    (r"block_size|context(_len|_length|_size)?|(max_)?(seq|sequence)(_len|_length)?|max_len(gth)?|n_ctx", 512),
    (SOME_SIZE, 512),
)
"""Patterns of names (regular expressions), with a value as it is common."""


# --- Looking up


def rows_for(table: Iterable[Row], name: str, facts: Collection[str] = ()) -> Iterator[Row]:
    """Rows of a table that hold for a parameter, in their order; `facts` are the words of `when` that are true."""
    return (row for row in table if _pattern(row.names).fullmatch(name) and holds(row, facts))


def holds(row: Row, facts: Collection[str]) -> bool:
    """Return True if every condition of a row's `when` holds."""
    return all((fact in facts) if not fact.startswith("!") else (fact[1:] not in facts) for fact in row.when.split())


def as_input(row: Row, name: str, lookup: Lookup) -> InputSpec | None:
    """The input that a row gives a parameter; None where a size of it is not known."""
    sizes: list[int | str] = []
    for term in row.shape:
        value = _value(term, lookup)
        if value is None:
            return None
        sizes += value if isinstance(value, tuple) else (value,)  # type: ignore[arg-type]
    low, high = (None if each is None else _value(each, lookup) for each in (row.low, row.high))
    if (low is None and row.low is not None) or (high is None and row.high is not None):
        return None
    return InputSpec(name, tuple(sizes), row.dtype, low, high, counted=row.counted)  # type: ignore[arg-type]


def first_input(table: Iterable[Row], name: str, lookup: Lookup, facts: Collection[str] = ()) -> InputSpec | None:
    """The input that the first row gives which says something of a parameter; None where none does."""
    specs = (as_input(row, name, lookup) for row in rows_for(table, name, facts))
    return next((spec for spec in specs if spec is not None), None)


def _value(term: Size, lookup: Lookup) -> Size | tuple[Size, ...] | None:
    if not isinstance(term, str) or term in (BATCH, SEQUENCE) or term.endswith(f"*{BATCH}"):
        return term
    for word in term.removeprefix("*").split("|"):
        value = int(word) if word.isdigit() else lookup(word)
        if value is not None:
            return value
    return None


@cache
def _pattern(names: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names.split()))
