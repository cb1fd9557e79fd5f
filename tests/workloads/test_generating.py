"""Generation by a library, with what a Workload says of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from memlint.targets.workload import Workload
from memlint.workloads.construction.generating import generate


class OfTransformers:
    """Returns what its `generate` is called with."""

    __module__ = "transformers.generation.utils"

    def generate(self, **options: Any) -> dict[str, Any]:
        return options


def test_a_workload_without_a_number_of_beams_generates_with_one() -> None:
    sizes = {"prompt": 4, "new_tokens": 3}
    own = Workload("gpt2", "gpt2", "", "", batch=1, dtype="float32", gpu="cpu", mode="generate", dimensions=sizes)
    options: Any = generate(OfTransformers(), {}, own)
    assert (options["num_beams"], options["max_new_tokens"]) == (1, 3)
