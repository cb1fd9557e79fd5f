"""Sentences that nltk tells apart: without its data, which nobody has downloaded, it knows no abbreviations."""

import functools
from types import ModuleType
from typing import Any

from memlint.accelerator import state
from memlint.base.after_import import after_import


def tell_sentences_apart() -> None:
    """Let nltk's tokenizer do without the data of a language, from its import on."""
    after_import("nltk.tokenize.punkt", _do_without_data)


def _do_without_data(module: ModuleType) -> None:
    load = module.PunktTokenizer.load_lang

    @functools.wraps(load)
    def load_lang(self: Any, lang: str = "english") -> None:
        try:
            load(self, lang)
        except LookupError:
            self._lang = lang
            state.assume_once(f"nltk's data on sentences in {lang} are not there: it takes every full stop for an end")

    module.PunktTokenizer.load_lang = load_lang
