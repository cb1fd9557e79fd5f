"""Configs of well-known models on the Hugging Face Hub, which does not have to be asked for them.

Each is what the model's own config.json says where that differs from the defaults of the class in transformers, as far
as sizes depend on it. tests/script/test_pretrained.py holds each against the number of parameters that its page states.
"""

from typing import Any

_HALF, _BRAIN = {"dtype": "float16"}, {"dtype": "bfloat16"}
_LLAMA3 = {
    **_BRAIN,
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
}
_LLAMA3_SMALL = {**_LLAMA3, "max_position_embeddings": 131072, "tie_word_embeddings": True}
_LARGE_BERT = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
_QWEN = {**_BRAIN, "vocab_size": 151936, "num_hidden_layers": 28, "num_key_value_heads": 2}
_QWEN3 = {**_BRAIN, "vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960}


def _sizes(
    hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int | None = None
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads or heads,
    }


def _gpt2(embedding: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    return "GPT2Config", {"n_embd": embedding, "n_layer": layers, "n_head": heads}


def _smollm(*sizes: int) -> tuple[str, dict[str, Any]]:
    return "LlamaConfig", {**_BRAIN, **_sizes(*sizes), "vocab_size": 49152, "tie_word_embeddings": True}


def _t5(model: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    return "T5Config", {"d_model": model, "d_ff": 4 * model, "num_layers": layers, "num_heads": heads}


def _whisper(model: int, layers: int, heads: int) -> tuple[str, dict[str, Any]]:
    each = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", 4 * model))
    }
    return "WhisperConfig", {"d_model": model, **each}


_IMAGE_LAYERS = {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4}
STABLE_DIFFUSION: dict[str, tuple[str, dict[str, Any]]] = {
    "scheduler": ("PNDMScheduler", {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}),
    "text_encoder": (
        "CLIPTextConfig",
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    ),
    "unet": ("UNet2DConditionModel", {"cross_attention_dim": 768, "sample_size": 64}),
    "vae": (
        "AutoencoderKL",
        {
            **_IMAGE_LAYERS,
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "sample_size": 512,
        },
    ),
}
"""Of versions 1.4 and 1.5 by folder of the repository. With diffusers the class is that of the model."""


KNOWN_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base-cased": ("BertConfig", {"vocab_size": 28996}),
    "bert-base-uncased": ("BertConfig", {}),
    "bert-large-uncased": ("BertConfig", _LARGE_BERT),
    "distilbert-base-uncased": ("DistilBertConfig", {}),
    "distilgpt2": _gpt2(768, 6, 12),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "llama-2-13b-hf": ("LlamaConfig", {**_HALF, **_sizes(5120, 13824, 40, 40)}),
    "llama-2-7b-hf": ("LlamaConfig", _HALF),
    "llama-3.1-8b": ("LlamaConfig", {**_LLAMA3, "max_position_embeddings": 131072}),
    "llama-3.2-1b": ("LlamaConfig", {**_LLAMA3_SMALL, **_sizes(2048, 8192, 16, 32, 8), "head_dim": 64}),
    "llama-3.2-3b": ("LlamaConfig", {**_LLAMA3_SMALL, **_sizes(3072, 8192, 28, 24, 8), "head_dim": 128}),
    "meta-llama-3-8b": ("LlamaConfig", {**_LLAMA3, "max_position_embeddings": 8192}),
    "mistral-7b-v0.1": ("MistralConfig", _BRAIN),
    "mistral-7b-v0.3": ("MistralConfig", {**_BRAIN, "vocab_size": 32768}),
    "opt-125m": ("OPTConfig", _HALF),
    "qwen2-0.5b": ("Qwen2Config", {**_QWEN, **_sizes(896, 4864, 24, 14, 2), "tie_word_embeddings": True}),
    "qwen2-1.5b": ("Qwen2Config", {**_QWEN, **_sizes(1536, 8960, 28, 12, 2), "tie_word_embeddings": True}),
    "qwen2.5-0.5b": ("Qwen2Config", {**_QWEN, **_sizes(896, 4864, 24, 14, 2), "tie_word_embeddings": True}),
    "qwen2.5-1.5b": ("Qwen2Config", {**_QWEN, **_sizes(1536, 8960, 28, 12, 2), "tie_word_embeddings": True}),
    "qwen2.5-7b": ("Qwen2Config", {**_QWEN, **_sizes(3584, 18944, 28, 28, 4), "vocab_size": 152064}),
    "qwen3-0.6b": ("Qwen3Config", {**_QWEN3, **_sizes(1024, 3072, 28, 16, 8), "tie_word_embeddings": True}),
    "qwen3-1.7b": ("Qwen3Config", {**_QWEN3, **_sizes(2048, 6144, 28, 16, 8), "tie_word_embeddings": True}),
    "qwen3-4b": ("Qwen3Config", {**_QWEN3, **_sizes(2560, 9728, 36, 32, 8), "tie_word_embeddings": True}),
    "qwen3-8b": ("Qwen3Config", {**_QWEN3, **_sizes(4096, 12288, 36, 32, 8)}),
    "roberta-base": ("RobertaConfig", _ROBERTA),
    "roberta-large": ("RobertaConfig", {**_ROBERTA, **_LARGE_BERT}),
    "smollm-135m": _smollm(576, 1536, 30, 9, 3),
    "smollm-360m": _smollm(960, 2560, 32, 15, 5),
    "smollm2-1.7b": _smollm(2048, 8192, 24, 32),
    "smollm2-135m": _smollm(576, 1536, 30, 9, 3),
    "smollm2-360m": _smollm(960, 2560, 32, 15, 5),
    "t5-base": _t5(768, 12, 12),
    "t5-large": _t5(1024, 24, 16),
    "t5-small": ("T5Config", {}),
    "tinyllama-1.1b-chat-v1.0": ("LlamaConfig", {**_BRAIN, **_sizes(2048, 5632, 22, 32, 4)}),
    "vit-base-patch16-224": ("ViTConfig", {"num_labels": 1000}),
    "vit-base-patch16-224-in21k": ("ViTConfig", {}),
    "whisper-small": _whisper(768, 12, 12),
    "whisper-tiny": _whisper(384, 4, 6),
}
"""By the last part of the name, in lower case: class of the config, and what differs from its defaults."""


ARCHITECTURES = {
    **{f"{kind}Config": f"{kind}ForCausalLM" for kind in ("Llama", "Mistral", "OPT", "Qwen2", "Qwen3")},
    **{f"{kind}Config": f"{kind}ForMaskedLM" for kind in ("Bert", "DistilBert", "Roberta")},
    **{f"{kind}Config": f"{kind}ForConditionalGeneration" for kind in ("T5", "Whisper")},
    "GPT2Config": "GPT2LMHeadModel",
    "ViTConfig": "ViTForImageClassification",
}
"""What their config.json names as the class of the model, by class of the config."""


def known_config(name: str, folder: str = "") -> tuple[str, dict[str, Any]] | None:
    """Class and arguments of the config of the model `name`, with or without its owner, in `folder` of its repository.

    None if it is not known.
    """
    last = name.rsplit("/", 1)[-1].lower()
    if last in ("stable-diffusion-v1-4", "stable-diffusion-v1-5"):
        return STABLE_DIFFUSION.get(folder)
    return KNOWN_CONFIGS.get(last) or KNOWN_CONFIGS.get(last.removesuffix("-instruct").replace("-chat-hf", "-hf"))
