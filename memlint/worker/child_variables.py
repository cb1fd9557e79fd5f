"""The environment variables of a child."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "Agg",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def child_environment(environment: Mapping[str, str | None]) -> dict[str, str]:
    """The variables of a child; those in `environment` go before the usual ones, None leaves one as it is here."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MEMLINT_")}
    ordered: dict[str, str | None] = {**_ENVIRONMENT, **environment}
    return inherited | {key: value for key, value in ordered.items() if value is not None}
