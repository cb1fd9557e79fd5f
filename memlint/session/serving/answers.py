"""Answers to the jobs about a model that is to be served."""

from pathlib import Path
from typing import Any

from memlint.base.errors import WorkloadError
from memlint.serving.model import Profile, ServedModel
from memlint.session.serving.describe import describe
from memlint.session.serving.profile_run import profile
from memlint.session.target import Target
from memlint.targets.target import is_known_model, parse_target
from memlint.targets.workload import Workload
from memlint.worker.jobs import DescribeServed, RunProfile
from memlint.workloads.construction.construct import build
from memlint.workloads.huggingface.configs import config_from_json, is_config, with_arguments
from memlint.workloads.loading import load_object

_FLOATS = ("bfloat16", "float16")
"""Dtypes that an engine takes over from a config; float32 it serves in bfloat16 (vLLM 0.19, config/model.py)."""


def answer(target: Target, job: DescribeServed | RunProfile) -> ServedModel | Profile:
    """Answer a job. Raises WorkloadError for what is no Hugging Face model."""
    workload = target.workloads[job.workload]
    config = _config_of(workload, target.root)
    if isinstance(job, RunProfile):
        return profile(config, job.order)
    dtype = str(getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None))
    dtype = dtype.removeprefix("torch.")
    name = workload.target if is_known_model(workload.target) else workload.name
    return describe(config, name, dtype if dtype in _FLOATS else _FLOATS[0])


def _config_of(workload: Workload, root: Path) -> Any:
    target = parse_target(workload.target, Path.cwd())
    if target.is_config and target.path is not None:
        return with_arguments(config_from_json(target.path), workload.arguments)
    value = load_object(target, root)
    if is_config(value):
        return with_arguments(value, workload.arguments)
    config = getattr(build(workload, root).model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise WorkloadError(
            f"{workload.name} is no Hugging Face model, so that no engine would serve it",
            "Give a config: memlint serve transformers::LlamaConfig, or the path of a config.json.",
        )
    return config
