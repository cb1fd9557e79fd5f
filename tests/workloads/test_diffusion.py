"""Inputs of models as diffusers has them, on small modules of the same shape, without diffusers."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from memlint.targets.workload import InputSpec
from memlint.workloads.guess.inputs import infer_inputs
from memlint.workloads.guess.reasons import own_reason
from memlint.workloads.guess.trial_forward import TrialModel
from memlint.workloads.loading import prepare_imports
from memlint.workloads.receiving_layers import receiving_layer

SMALL = {"sample_height": 8, "sample_width": 8, "num_frames": 3}
"""Height, width and frames of latents."""


class Mixin(nn.Module):
    """What diffusers' models are, with a config."""

    def __init__(self, **config):
        super().__init__()
        self.config = {**SMALL, **config}


@pytest.fixture(autouse=True)
def diffusers(monkeypatch):
    prepare_imports()
    monkeypatch.setitem(sys.modules, "diffusers.models.modeling_utils", SimpleNamespace(ModelMixin=Mixin))


def inferred(model, dimensions=None):
    return {spec.name: spec for spec in infer_inputs(model, train=False, device="cpu", dimensions=dimensions).inputs}


def shapes(model):
    return {name: spec.shape for name, spec in inferred(model).items()}


class OfListedTexts(Mixin):
    """Takes one text of each layer of an encoder, as BriaFibo does."""

    def __init__(self):
        super().__init__(in_channels=4, joint_attention_dim=6)
        self.image, self.text = nn.Linear(4, 8), nn.Linear(6, 8)
        self.captions = nn.ModuleList([nn.Sequential(nn.Linear(5, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, hidden_states, encoder_hidden_states=None, text_layers: list | None = None):
        text = self.text(encoder_hidden_states)
        for place, layer in enumerate(text_layers):
            text = text + self.captions[place](layer)
        return self.image(hidden_states).mean() + text.mean()


def test_a_list_has_an_entry_for_each_layer_that_the_code_gives_them_to():
    given = shapes(OfListedTexts())
    assert [given[f"text_layers.{place}"] for place in range(3)] == [("batch", 256, 5)] * 3
    assert given["encoder_hidden_states"] == ("batch", 256, 6)


def test_like_entries_of_a_list_are_said_in_one_line():
    said = [each.text for each in infer_inputs(OfListedTexts(), train=False, device="cpu").assumptions]
    assert [text for text in said if "text_layers" in text] == [
        "input text_layers.0 to .2 [batch, 256, 5] float32 (it goes into captions.0.0, a Linear)"
    ]


class Packed(Mixin):
    """Rows of a film, of sound and of a text behind one another, as MiniMax-H3 has them."""

    def __init__(self):
        super().__init__(in_channels=4, audio_in_channels=5, text_dim=6, patch_size=(1, 2, 2))
        self.video, self.audio, self.text = nn.Linear(16, 8), nn.Linear(5, 8), nn.Linear(6, 8)
        self.times = nn.Linear(1, 24)

    def forward(
        self,
        hidden_states,
        audio_hidden_states,
        encoder_hidden_states,
        timestep,
        timestep_indices,
        token_tags,
        position_ids,
        video_indices,
        audio_indices,
        text_indices,
    ):
        """Run it.

        Args:
            hidden_states (`Tensor` of shape `(batch_size, num_video_tokens, in_channels * prod(patch_size))`): Rows.
            audio_hidden_states (`Tensor` of shape `(batch_size, num_audio_tokens, audio_in_channels)`): Rows.
            encoder_hidden_states (`Tensor` of shape `(batch_size, num_text_tokens, text_dim)`): Rows.
            timestep (`Tensor` of shape `(num_timesteps,)`): Distinct times in `[0, 1]`.
            timestep_indices (`Tensor` of shape `(seq_len,)`): Which of them is that of a row.
            token_tags (`Tensor` of shape `(seq_len,)`): `0` video, `1` text, `2` audio.
            position_ids (`Tensor` of shape `(seq_len, 3)`): `(t, h, w)` of each row.
            video_indices (`Tensor` of shape `(num_video_tokens,)`): Places of the rows.
            audio_indices (`Tensor` of shape `(num_audio_tokens,)`): Places of the rows.
            text_indices (`Tensor` of shape `(num_text_tokens,)`): Places of the rows.
        """
        assert position_ids.shape == (len(token_tags), 3)
        text = self.text(encoder_hidden_states)
        rows = text.new_zeros(len(text), len(token_tags), 8).index_copy(1, text_indices, text)
        rows = rows.index_copy(1, video_indices, self.video(hidden_states))
        rows = rows.index_copy(1, audio_indices, self.audio(audio_hidden_states))
        table = self.times(timestep[:, None]).view(-1, 8)
        return rows + table[timestep_indices * 3 + token_tags]


def test_rows_of_several_streams_are_packed_behind_one_another():
    given = inferred(Packed())
    video, audio, text = 3 * 8 * 8 // 4, 1024, 256
    assert given["hidden_states"].shape == ("batch", video, 16)
    assert given["position_ids"].shape == (video + audio + text, 3)
    assert given["timestep"].shape == (2,)
    assert given["timestep_indices"].high == 2
    assert given["token_tags"].high == 3
    places = [given[f"{stream}_indices"] for stream in ("text", "audio", "video")]
    assert [(each.low, *each.shape, each.counted) for each in places] == [
        (0, text, True),
        (text, audio, True),
        (text + audio, video, True),
    ]


class OfPatches(Mixin):
    """Patches in a row, and the grid of each item's pictures, as JoyImage's editor has them."""

    def __init__(self):
        super().__init__(in_channels=4, patch_size=[1, 2, 2], text_dim=6)
        self.image = nn.Conv3d(4, 8, (1, 2, 2))
        self.text = nn.Linear(6, 8)

    def forward(self, hidden_states, encoder_hidden_states, shape_list: list[list[tuple[int, int, int]]] | None = None):
        """Run it.

        Args:
            hidden_states: [B, max_patches, C, pt, ph, pw] - latents.
        """
        batch, patches, *patch = hidden_states.shape
        for item in range(batch):
            assert sum(t * h * w for t, h, w in shape_list[item]) == patches
        return (
            self.image(hidden_states.reshape(batch * patches, *patch)).mean() + self.text(encoder_hidden_states).mean()
        )


def test_each_item_has_the_grid_of_its_picture():
    given = inferred(OfPatches())
    assert given["hidden_states"].shape == ("batch", 16, 4, 1, 2, 2)
    assert [given[f"shape_list[].0.{axis}"].low for axis in range(3)] == [1, 4, 4]


class PerFrame(Mixin):
    def __init__(self):
        super().__init__(in_channels=4, cross_attention_dim=8)
        self.conv_in = nn.Conv2d(4, 8, 1)

    def forward(self, sample, timestep, encoder_hidden_states):
        x = self.conv_in(sample.permute(0, 2, 1, 3, 4).flatten(0, 1)).flatten(2).transpose(1, 2)
        attended = x.reshape(len(encoder_hidden_states), -1, 8) + encoder_hidden_states.mean(1, keepdim=True)
        return attended + x


def test_a_film_whose_attention_has_frames_in_the_batch_gets_its_text_for_each():
    kind = type("PerFrameMotion", (PerFrame,), {})
    given = shapes(kind())
    assert given["sample"] == ("batch", 4, 3, 8, 8)
    assert given["encoder_hidden_states"] == ("3*batch", 77, 8)


class Controlled(Mixin):
    def __init__(self, *strides):
        super().__init__(conditioning_channels=3, cross_attention_dim=6)
        self.in_channels = 4
        self.conv_in, self.text = nn.Conv2d(4, 8, 1), nn.Linear(6, 8)
        self.controlnet_cond_embedding = nn.Sequential(*(nn.Conv2d(3, 3, 3, each, 1) for each in strides))
        self.out = nn.Conv2d(3, 8, 1)

    def forward(self, sample, timestep, encoder_hidden_states, controlnet_cond=None):
        return self.conv_in(sample) + self.out(self.controlnet_cond_embedding(controlnet_cond))


@pytest.mark.parametrize(("strides", "side"), [((1,), 8), ((1, 2, 2), 32)])
def test_a_condition_is_larger_than_the_latent_by_what_its_embedding_shrinks_it(strides, side):
    assert shapes(Controlled(*strides))["controlnet_cond"] == ("batch", 3, side, side)


class WithContext(Mixin):
    """Channels in the config that are those of the latent and of its context, as AceStep's are."""

    def __init__(self):
        super().__init__(in_channels=12)
        self.proj_in, self.proj_out = nn.Conv1d(12, 8, 2, 2), nn.ConvTranspose1d(8, 4, 2, 2)

    def forward(self, hidden_states, context_latents):
        """Run it.

        Args:
            hidden_states (`Tensor` of shape `(batch_size, seq_len, channels)`): Noise.
            context_latents (`Tensor` of shape `(batch_size, seq_len, context_dim)`): What it is for.
        """
        both = torch.cat([context_latents, hidden_states], dim=-1)
        return self.proj_out(self.proj_in(both.transpose(1, 2)))


def test_a_latent_has_the_channels_that_the_model_gives_and_its_context_the_others():
    assert shapes(WithContext()) == {
        "hidden_states": ("batch", 1024, 4),
        "context_latents": ("batch", 1024, 8),
    }


class Widened(Mixin):
    """Two latents alike, to which the model adds a mask, as Cosmos's ControlNet has them."""

    def __init__(self):
        super().__init__(in_channels=9, patch_size=(1, 2, 2))
        self.control, self.base = nn.Linear(4 * 9, 8), nn.Linear(4 * 5, 8)

    def forward(self, controls_latents, latents):
        """Run it.

        Args:
            controls_latents: What is followed [B, C, T, H, W]
            latents: Noise [B, C, T, H, W]
        """
        batch, channels, *_ = controls_latents.shape
        missing = max(0, 8 - channels)
        control = torch.cat([controls_latents, latents.new_zeros(batch, missing, *latents.shape[2:])], 1)
        return self._embed(self.control, control) + self._embed(self.base, latents)

    def _embed(self, layer, latent):
        latent = torch.cat([latent, torch.ones_like(latent[:, :1])], 1)
        batch, channels, frames, height, width = latent.shape
        patches = latent.reshape(batch, channels, frames, height // 2, 2, width // 2, 2)
        return layer(patches.permute(0, 2, 3, 5, 1, 4, 6).flatten(4))


def test_latents_that_the_docstring_says_alike_have_as_many_channels():
    assert shapes(Widened()) == dict.fromkeys(("controls_latents", "latents"), ("batch", 4, 3, 8, 8))


class OfChunks(Mixin):
    """Its config says how the frames are parted, and each has a time, as AnyFlow's causal model."""

    def __init__(self):
        super().__init__(in_channels=4, chunk_partition=(1, 3))
        self.patch_embedding = nn.Conv3d(4, 8, 1)

    def forward(self, hidden_states, timestep, chunk_partition: list[int]):
        """Run it.

        Args:
            hidden_states (`Tensor`): Latents of shape ``(B, F, C, H, W)``.
        """
        assert sum(chunk_partition) == hidden_states.shape[1]
        times = timestep[:, -chunk_partition[-1] :]
        return self.patch_embedding(hidden_states.transpose(1, 2)).mean() + times.float().mean()


def test_a_parameter_that_the_config_has_a_value_for_gets_it():
    given = inferred(OfChunks())
    assert [given[f"chunk_partition.{place}"].low for place in range(2)] == [1, 3]
    assert given["hidden_states"].shape == ("batch", 4, 4, 8, 8)
    assert given["timestep"].shape == ("batch", 4)


class Turned(Mixin):
    """Takes positions of the film's axes and of the text, as Kandinsky 5 does."""

    def __init__(self):
        super().__init__(in_visual_dim=4, in_text_dim=6, in_text_dim2=5, patch_size=(1, 2, 2))
        self.image, self.text, self.pooled = nn.Linear(4, 8), nn.Linear(6, 8), nn.Linear(5, 8)

    def forward(self, hidden_states, encoder_hidden_states, pooled_projections, visual_rope_pos, text_rope_pos):
        x = hidden_states
        batch, duration, height, width, dim = x.shape  # noqa: RUF059 - names that say what is what
        frames, rows, columns = visual_rope_pos
        assert (len(frames), len(rows), len(columns)) == (duration, height // 2, width // 2)
        text = self.text(encoder_hidden_states) + text_rope_pos[None, :, None]
        return self.image(x).mean() + text.mean() + self.pooled(pooled_projections).mean()


def test_positions_count_along_each_axis_and_along_the_text():
    given = inferred(Turned())
    assert given["hidden_states"].shape == ("batch", 3, 8, 8, 4)
    positions = [given[f"visual_rope_pos.{axis}"] for axis in range(3)]
    assert [each.shape for each in positions] == [(3,), (4,), (4,)]
    assert all(each.counted for each in (*positions, given["text_rope_pos"]))
    assert given["pooled_projections"].shape == ("batch", 5)


class OfPairs(Mixin):
    def __init__(self):
        super().__init__(input_dims=4, d_model=8, targets_length=16)
        self.positions, self.project = nn.Embedding(16, 8), nn.Linear(4, 8)

    def forward(self, encodings_and_masks, decoder_input_tokens, decoder_noise_time):
        """Run it.

        Args:
            encodings_and_masks (`list`): A list of `(encoding, mask)` tuples.
            decoder_input_tokens (`Tensor` of shape `(batch_size, seq_length, input_dims)`): A spectrogram.
            decoder_noise_time (`Tensor` of shape `(batch_size,)`): Times in `[0, 1)`.
        """
        y = self.project(decoder_input_tokens) + self.positions(torch.arange(decoder_input_tokens.shape[1]))
        for encoding, mask in encodings_and_masks:
            y = y + (encoding * mask[..., None]).mean(1, keepdim=True)
        return y * decoder_noise_time[:, None, None]


def test_a_list_of_pairs_has_what_the_docstring_names_in_them():
    given = inferred(OfPairs())
    assert given["encodings_and_masks.0.0"].shape == ("batch", 256, 8)
    assert given["encodings_and_masks.0.1"].dtype == "bool"
    assert given["decoder_input_tokens"].shape == ("batch", 16, 4)
    assert given["decoder_input_tokens"].dtype == "float32"
    assert given["decoder_noise_time"].high == 1.0


class OfPictureTokens(Mixin):
    """Has a token for each patch of the picture, as GLM-Image has."""

    def __init__(self):
        super().__init__(in_channels=4, text_embed_dim=6)
        self.image, self.text, self.tokens = nn.Linear(4, 8), nn.Linear(6, 8), nn.Embedding(50, 8)

    def forward(self, hidden_states, encoder_hidden_states, prior_token_id, prior_token_drop):
        x = self.image(hidden_states)
        prior = self.tokens(prior_token_id)
        prior = prior * prior_token_drop.logical_not()[..., None]
        return x + prior, self.text(encoder_hidden_states)


def test_tokens_of_a_picture_are_as_many_as_it_has_and_no_text():
    given = inferred(OfPictureTokens(), dimensions={})
    assert given["prior_token_id"].shape == given["prior_token_drop"].shape == ("batch", 64)
    assert given["prior_token_id"].high == 50


class Conditioned(Mixin):
    def __init__(self):
        super().__init__(encoder_hidden_size=6, cond_embed_dim=5, micro_cond_encode_dim=4, micro_cond_embed_dim=12)
        self.config["vocab_size"] = 50
        self.embed, self.text, self.cond = nn.Embedding(50, 8), nn.Linear(6, 8), nn.Linear(5 + 12, 8)

    def forward(self, input_ids, encoder_hidden_states, pooled_text_emb, micro_conds):
        """Run it.

        Args:
            input_ids (`LongTensor`): Tokens of a picture, with shape `(batch_size, height, width)`.
        """
        sines = micro_conds.flatten()[:, None].expand(-1, 4).reshape(len(input_ids), -1)
        self.cond(torch.cat([pooled_text_emb, sines], 1))
        return self.embed(input_ids).mean() + self.text(encoder_hidden_states).mean()


def test_numbers_that_are_embedded_each_for_itself_are_as_many_as_their_widths_say():
    given = inferred(Conditioned())
    assert given["micro_conds"].shape == ("batch", 3)
    assert given["pooled_text_emb"].shape == ("batch", 5)
    assert given["input_ids"].shape == ("batch", 8, 8)
    assert given["input_ids"].high == 50


class Animated(Mixin):
    """Its channels are a sum in the docstring, and a film in pixels goes with the latents, as Wan-Animate's."""

    def __init__(self):
        super().__init__(in_channels=12, motion_encoder_size=16)
        self.patch, self.pose, self.face = nn.Conv3d(12, 8, 1), nn.Conv3d(4, 8, 1), nn.Conv2d(3, 8, 1)

    def forward(self, hidden_states, pose_hidden_states=None, face_pixel_values=None):
        """Run it.

        Args:
            hidden_states (`Tensor` of shape `(B, 2C + 4, T + 1, H, W)`): Latents.
            pose_hidden_states (`Tensor` of shape `(B, C, T, H, W)`): Latents of a pose.
            face_pixel_values (`Tensor` of shape `(B, C', S, H', W')`): A face.
        """
        x = self.patch(hidden_states)
        x[:, :, 1:] = x[:, :, 1:] + self.pose(pose_hidden_states)
        batch, channels, frames, height, width = face_pixel_values.shape  # noqa: RUF059
        assert (frames - 1) // 4 + 2 == x.shape[2]
        return x.mean() + self.face(face_pixel_values.transpose(1, 2).flatten(0, 1)).mean()


def test_a_documented_sum_of_channels_is_solved_for_those_of_the_latent():
    assert shapes(Animated()) == {
        "hidden_states": ("batch", 12, 4, 8, 8),
        "pose_hidden_states": ("batch", 4, 3, 8, 8),
        "face_pixel_values": ("batch", 3, 9, 16, 16),
    }


class OfSlots(Mixin):
    """A text in whose slots the picture goes, as Qwen-Image 2.1 has it."""

    def __init__(self):
        super().__init__(in_channels=4, context_in_dim=6)
        self.image, self.text = nn.Linear(4, 8), nn.Linear(6, 8)

    def forward(self, hidden_states, encoder_hidden_states, img_shapes: list, img_mask):
        """Run it.

        Args:
            img_mask (`Tensor` of shape `(batch_size, vlm_length)`): `True` where each stands for `2x2` latents.
        """
        repeats = torch.where(img_mask, 4, 1)[0]
        text = self.text(encoder_hidden_states)
        slots = text.new_zeros(len(text), hidden_states.shape[1] // 4, 8)
        joint = torch.cat([text, slots], 1).repeat_interleave(repeats, dim=1)
        joint[:, torch.repeat_interleave(img_mask[0], repeats)] = self.image(hidden_states)
        return joint


def test_slots_of_a_picture_stand_behind_the_text():
    given = inferred(OfSlots(), dimensions={})["img_mask"]
    assert given.shape == ("batch", 256 + 16)
    assert given.runs == ((0, 256),)


class WithoutPart(Mixin):
    def __init__(self, has_history: bool = False):
        super().__init__(in_channels=4)
        self.image = nn.Linear(4, 8)
        self.history = None
        if has_history:
            self.history = nn.Linear(8, 8)

    def forward(self, hidden_states):
        return self.history(self.image(hidden_states))


class Cache:
    pass


class WithCache(Mixin):
    def __init__(self):
        super().__init__(in_channels=4)
        self.image = nn.Linear(4, 8)

    def forward(self, hidden_states, cache: Cache):
        return cache.update(self.image(hidden_states))


class WithDictionary(Mixin):
    def __init__(self):
        super().__init__(in_channels=4)
        self.image = nn.Linear(4, 8)

    def forward(self, hidden_states, conditioning: dict | None = None):
        return self.image(hidden_states) * (conditioning or {})["atoms"]


class OfItems(Mixin):
    def __init__(self):
        super().__init__(in_channels=4)
        self.image = nn.Linear(4, 8)

    def forward(self, hidden_states, vision_tokens: list[torch.Tensor], masks: list[torch.Tensor] | None = None):
        return self.image(hidden_states) + sum(each.squeeze(0) for each in vision_tokens)


class Unfitting(Mixin):
    def __init__(self):
        super().__init__(in_channels=4)
        self.image, self.block = nn.Linear(4, 11), nn.Linear(13, 13)

    def forward(self, hidden_states):
        return self.block(self.image(hidden_states))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WithoutPart, "calls its history, but is built without it, because of has_history=False"),
        (WithCache, "takes cache, a Cache, which is not a tensor"),
        (OfItems, "takes lists of tensors of unknown number and size: vision_tokens"),
        (WithDictionary, "reads 'atoms' of its conditioning, a dictionary whose entries nothing describes"),
        (
            Unfitting,
            (
                "is built with sizes that contradict each other: "
                "a Linear(4, 11) gives 11 features to a layer that takes 13"
            ),
        ),
        (OfChunks, ""),
    ],
)
def test_a_reason_of_the_models_own_is_known_by_how_a_trial_failed(kind, said):
    model = kind()
    with TrialModel(model, "cpu").watched() as stage:
        trial = stage.attempt((InputSpec("hidden_states", ("batch", 5, 4)),))
    assert trial.error is not None
    assert own_reason(model, [trial]) == said


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Sequential(nn.Dropout(0.0), nn.Linear(6, 8))

    def forward(self, x, context):
        return self.query(x) + self.key(context.masked_fill(context > 3, 0.0)).mean()


class OfBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.joined, self.table = nn.ModuleList([Block(), Block()]), nn.Linear(14, 8), nn.Embedding(9, 8)

    def forward(self, x, context, ids, other):
        x = torch.cat([x, other], -1)
        x = self.joined(x) + self.table(ids.to(torch.int64))
        for _place, block in enumerate(self.blocks):
            x = block(x, context=context)
        return x


@pytest.mark.parametrize(("name", "path"), [("context", "blocks.0.key.1"), ("ids", "table"), ("x", ""), ("other", "")])
def test_the_layer_that_takes_a_parameter_as_it_is_is_seen_in_the_code(name, path):
    model = OfBlocks()
    assert receiving_layer(model, name) is (model.get_submodule(path) if path else None)


class OfLengths(Mixin):
    """Names sizes that no config has: of texts, and the width of a layer."""

    def __init__(self):
        super().__init__()
        self.source, self.ids = nn.Linear(6, 8), nn.Embedding(9, 8)

    def forward(self, source_states, target_ids, text_lens):
        """Run it.

        Args:
            source_states (`Tensor` of shape `(batch_size, source_sequence_length, source_width)`): A text.
            target_ids (`Tensor` of shape `(batch_size, target_sequence_length)`): Another.
        """
        assert text_lens.max() <= source_states.shape[1]
        return self.source(source_states) + self.ids(target_ids)


def test_sizes_that_no_config_has_are_those_of_texts_and_of_layers():
    given = inferred(OfLengths())
    assert given["source_states"].shape == ("batch", 256, 6)
    assert given["target_ids"].shape == ("batch", 256)
    assert given["target_ids"].high == 9
