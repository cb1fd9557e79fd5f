"""Fake tokenizers with the right number of tokens, for tokenizers that are not on this machine."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from memlint.base.after_import import after_import
from memlint.targets.known_configs import known_config
from memlint.workloads.config_parts import text_config
from memlint.workloads.hub_downloads import download_by
from memlint.workloads.missing_checkpoints import Put
from memlint.workloads.notes import note, note_fake_data
from memlint.workloads.stated_configs import stated_config

_FEW_TOKENS = 10
_OPTIONS = ("additional_special_tokens", "extra_special_tokens", "padding_side", "truncation_side")
"""Further arguments of `from_pretrained` that create a tokenizer."""
_FOLDERS = ("tokenizer", "text_encoder")
"""The folder of a pipeline's tokenizer, and that of its model; a second one has `_2` after it."""
_LIKE_BERT = (
    *("AlbertConfig", "BertConfig", "DebertaConfig", "DebertaV2Config", "DistilBertConfig", "ElectraConfig"),
    *("LayoutLMConfig", "ModernBertConfig", "SqueezeBertConfig"),
)
_MASKED = (
    *("BartConfig", "EsmConfig", "LEDConfig", "LongformerConfig", "MBartConfig", "MPNetConfig", "RobertaConfig"),
    *("XLMRobertaConfig", "XLNetConfig"),
)
"""Configs of models whose tokenizers have a token for what is masked; those like BERT's have it as well."""
_WITH_END = ("M2M100Config", "MT5Config", "MarianConfig", "PegasusConfig", "T5Config")
"""Those whose tokenizers put a token behind each text."""
_PADDED = (
    *(*_MASKED, *_WITH_END, "BloomConfig", "CLIPTextConfig", "Gemma2Config", "Gemma3TextConfig", "GemmaConfig"),
    *("OPTConfig", "OlmoConfig", "Olmo2Config", "Phi3Config", "Qwen2Config", "Qwen3Config", "WhisperConfig"),
)
"""Those whose tokenizers have a padding token."""
_LETTERS_ALONE = 1000
"""A vocabulary of fewer tokens has one for each letter, or residue of a protein."""
_TOKENS = {
    "CLIPTextConfig": ("<|startoftext|>", "<|endoftext|>"),
    "GPT2Config": ("<|endoftext|>",),
    "MistralConfig": ("[INST]", "[/INST]"),
    "Qwen2Config": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "Qwen3Config": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    "T5Config": tuple(f"<extra_id_{i}>" for i in range(100)),
    "WhisperConfig": (
        *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>"),
        *("<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"),
    ),
}
"""Special tokens that scripts name, by the class of the model's config: those of its tokenizer's own files."""
_LLAMA_TOKENS = {
    49_152: ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    128_256: (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"),
        *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
}
"""The same of models with Llama's config, by the size of their vocabulary: SmolLM's and Llama 3's."""
_AROUND = {
    **dict.fromkeys(_LIKE_BERT, ("[CLS] $A [SEP]", "$B [SEP]")),
    **dict.fromkeys(_MASKED, ("<s> $A </s>", "</s> $B </s>")),
    **dict.fromkeys(("Gemma2Config", "GemmaConfig", "MistralConfig"), ("<s> $A", "$B")),
    **dict.fromkeys(_WITH_END, ("$A </s>", "$B </s>")),
    "CLIPTextConfig": ("<s> $A </s>", "<s> $B </s>"),
    "LlamaConfig": ("<s> $A", "<s> $B"),
}
"""The tokens around a text, and around the second one of a pair, by the class of the model's config."""
_MEDIA = {"image_token_id": "<image>", "video_token_id": "<video>"}
_MEDIA_BETWEEN = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
"""Tokens that stand for an image or a video, by what a config calls their numbers; Qwen's has two around them."""
_WANTED = "wants the tokenizer"
_CHAT = """{% for message in messages %}{{ message['role'] }} : \
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'text' %}{{ part['text'] }}{% else %} MEDIA {% endif %}\
{% endfor %}{% endif %}{{ eos_token }} {% endfor %}"""
"""How a conversation is written; parts of a message that are no text are media."""


def replace_tokenizers(put: Put, *, fake: bool) -> None:
    """Make transformers and tiktoken report a tokenizer that is not here, or with `fake` replace it."""
    for module, name in (
        ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase"),
        ("transformers.models.auto.tokenization_auto", "AutoTokenizer"),
    ):
        after_import(module, lambda m, name=name: _replace_tokenizers(getattr(m, name), put, fake=fake))  # type: ignore[misc]
    after_import("tiktoken.load", lambda module: _replace_encodings(module, put, fake=fake))


def _replace_tokenizers(owner: Any, put: Put, *, fake: bool) -> None:
    """Make `owner.from_pretrained` report a missing tokenizer, or with `fake` replace it."""
    load: Callable[..., Any] = vars(owner)["from_pretrained"].__func__

    def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        name = pretrained_model_name_or_path
        try:
            loaded = load(cls, name, *args, **kwargs)
            if loaded.vocab_size >= _FEW_TOKENS or _has_vocabulary(Path(str(name))):
                return loaded
            raise OSError(f"the vocabulary of {name} is not on this machine")  # transformers continues without one
        except Exception as error:
            if not isinstance(error, OSError | ValueError) and _has_vocabulary(Path(str(name))):
                raise  # what older versions of transformers raise where a file is missing depends on the tokenizer
            if any(_WANTED in each for each in getattr(error, "__notes__", ())):
                raise  # AutoTokenizer calls another class
            tokenizer = _tokenizer(str(name), kwargs) if fake else None
            if tokenizer is None:
                able = "add --fake-data to use a fake one" if not fake else "name a well-known model"
                text = f"{_WANTED} {str(name)!r}, which is not on this machine"
                error.__dict__.pop("__notes__", None)  # that it needs the config of it
                folder = "give the path of a folder that has one"
                note(error, text, f"{download_by(cls, str(name), kwargs.get('subfolder'))}{folder}, or {able}")
                raise
        size = len(tokenizer)
        note_fake_data(f"the tokenizer of {name} is not on this machine: replaced by a fake one of {size:,} words")
        return tokenizer

    put(owner, "from_pretrained", classmethod(from_pretrained))


def _has_vocabulary(place: Path) -> bool:
    """Return True for a file, or a folder with one, that a tokenizer reads."""
    return place.is_file() or any(place.glob("*token*")) or any(place.glob("vocab*")) or any(place.glob("*.model"))


def _config(name: str, folder: str) -> Any:
    """Return the config of the model `name`: from a folder, or a known one of that name; None without any."""
    transformers: Any = importlib.import_module("transformers")
    if (Path(name) / folder / "config.json").is_file():
        return transformers.AutoConfig.from_pretrained(name, subfolder=folder)
    if stated_config(name, folder) is not None:
        return transformers.AutoConfig.from_pretrained(name, subfolder=folder)
    known = known_config(name, folder)
    return known and getattr(transformers, known[0])(**known[1])


def _named_tokens(kind: str, size: int) -> tuple[str, ...]:
    """Return the special tokens, beside those for all texts, of a model with a config of class `kind`."""
    return _LLAMA_TOKENS.get(size, ()) if kind == "LlamaConfig" else _TOKENS.get(kind, ())


def _family(kind: str) -> str:
    """Return the config that is known here of the family of one of class `kind`: of Qwen 2 for Qwen2_5_VLTextConfig."""
    known = {*_TOKENS, *_AROUND, *_PADDED}
    alike = (each for each in known if kind.startswith(each.removesuffix("Config")))
    return kind if kind in known else max(alike, key=len, default=kind)


def _tokenizer(name: str, options: Mapping[str, Any]) -> Any:
    """Return a tokenizer with as many tokens as that of the model `name`; None for an unknown model."""
    transformers: Any = importlib.import_module("transformers")
    from tokenizers import Tokenizer, models, processors  # noqa: PLC0415

    folder = options.get("subfolder") or ""
    config = _config(name, folder.replace(*_FOLDERS))
    if config is None:
        return None
    kind = _family(type(text_config(config)).__name__)
    if kind in _LIKE_BERT:
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        special["mask_token"] = "[MASK]"
    else:
        special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        if kind in _PADDED:
            special["pad_token"] = "<pad>"
        if kind in _MASKED:
            special["mask_token"] = "<mask>"
    media = _media_tokens(config)
    if media:  # its texts are padded in batches, whatever its family does
        special.setdefault("pad_token", "<pad>")
    size = text_config(config).vocab_size
    named = [*special.values(), *_named_tokens(kind, size)]
    words = [*named, *(f"w{i}" for i in range(size - len(named)))]
    media = {number: word for number, word in media.items() if len(named) <= number < size}
    for number, word in media.items():
        words[number] = word
    named += media.values()
    vocabulary = {word: i for i, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    made.add_special_tokens(named)  # which are found between other words
    made.pre_tokenizer = _apart(size)
    if kind in _AROUND:
        first, second = _AROUND[kind]
        pairs = [(word, vocabulary[word]) for word in special.values()]
        made.post_processor = processors.TemplateProcessing(first, f"{first} {second}", pairs)
    length = getattr(text_config(config), "max_position_embeddings", None) or 512
    fields = {"model_max_length": length, "chat_template": _chat(list(media.values())), **special}
    fields |= {key: options[key] for key in (*fields, *_OPTIONS) if key in options}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **fields)
    for attribute, value in _settings_of_own_classes(type(config)):
        if not hasattr(tokenizer, attribute):
            setattr(tokenizer, attribute, value)
    return tokenizer


def _media_tokens(config: Any) -> dict[int, str]:
    """Return the tokens that stand for media in the texts of a model, by their numbers."""
    names = _MEDIA_BETWEEN if hasattr(config, "vision_start_token_id") else _MEDIA
    numbers = {getattr(config, name, None): word for name, word in names.items()}
    return {number: word for number, word in numbers.items() if isinstance(number, int)}


def _chat(media: list[str]) -> str:
    """Return the template of a conversation in which the first of these tokens stands for an image."""
    start, end = (_MEDIA_BETWEEN[name] for name in ("vision_start_token_id", "vision_end_token_id"))
    around = (start, media[0], end) if start in media else media[:1]
    return _CHAT.replace("MEDIA", " ".join(around))


def _apart(size: int) -> Any:
    """Return what takes a text apart for a vocabulary of `size` tokens: into words, or letters where these are few."""
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415

    words = pre_tokenizers.WhitespaceSplit()
    if size >= _LETTERS_ALONE:
        return words
    return pre_tokenizers.Sequence([words, pre_tokenizers.Split(Regex("."), "isolated")])


def _settings_of_own_classes(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the settings that tokenizers of models with a config of class `kind` have, such as Llama's `legacy`."""
    mapping = importlib.import_module("transformers.models.auto.tokenization_auto").TOKENIZER_MAPPING
    classes = mapping.get(kind, ())
    for each in classes if isinstance(classes, tuple) else (classes,):
        if each is not None:
            parameters = inspect.signature(each.__init__).parameters.values()
            yield from ((p.name, p.default) for p in parameters if isinstance(p.default, bool | int | None))


_RANKS = {"vocab.bpe": 50_256, "r50k_base": 50_256, "p50k_base": 50_280, "cl100k_base": 100_256, "o200k_base": 199_998}
"""Number of ordinary tokens in OpenAI's encodings, by a part of their file names (tiktoken_ext/openai_public.py)."""
_LETTERS = b" abcdefghijklmnopqrstuvwxyz"
_END_OF_TEXT = 50_256
"""The end-of-text token, which is among the ordinary ones of p50k_base."""


def _replace_encodings(module: ModuleType, put: Put, *, fake: bool) -> None:
    """Make tiktoken report a missing file of an encoding, or with `fake` replace it."""

    def replaced(load: Callable[..., dict[bytes, int]]) -> Callable[..., dict[bytes, int]]:
        def load_ranks(*args: Any, **kwargs: Any) -> dict[bytes, int]:
            try:
                return load(*args, **kwargs)
            except OSError as error:
                file = str(next(iter((*args, *kwargs.values()))))
                count = next((count for name, count in _RANKS.items() if name in file), None)
                if count is None or not fake:
                    able = "" if count is None else ", or add --fake-data to use a fake one"
                    note(error, f"wants {file}, which is not on this machine", f"load the encoding once before{able}")
                    raise
            note_fake_data(f"{file} is not on this machine: replaced by a fake one with {count:,} tokens")
            skips = "p50k" in file
            return {token: i + (skips and i >= _END_OF_TEXT) for i, token in enumerate(tokens_of_bytes(count))}

        return load_ranks

    for name in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        put(module, name, replaced(getattr(module, name)))


def tokens_of_bytes(count: int) -> list[bytes]:
    """Return the first tokens of a vocabulary, of which each is made of earlier ones: a word has a few of them.

    Single bytes come first, then two and three small letters, then whatever two and three bytes.
    """
    letters, every = [[bytes([number]) for number in numbers] for numbers in (_LETTERS, range(256))]
    longer = ((chosen, length) for chosen in (letters, every) for length in (2, 3))
    texts = (b"".join(parts) for chosen, length in longer for parts in itertools.product(chosen, repeat=length))
    tokens = dict.fromkeys(every)
    while len(tokens) < count:
        tokens[next(texts)] = None
    return list(tokens)
