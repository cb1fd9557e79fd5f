"""The names that packages had before, and what they are now.

Sources: the packages' own pages of changes and migration, as of November 2026: PyTorch's release notes, the migration
guide of transformers 5, Lightning's upgrade guide to 2.0, NumPy's of 2.0, pandas' of 3.0, gymnasium's to 1.0, and
"What's New in Python".
"""

from collections.abc import Mapping
from typing import NamedTuple

from memlint.workloads.known_packages import STOOD_FOR

NAMES: Mapping[str, str] = {
    "collections.Callable": "collections.abc.Callable",
    "fractions.gcd": "math.gcd",
    "gymnasium.wrappers.FrameStack": "gymnasium.wrappers.FrameStackObservation",
    "gymnasium.wrappers.GrayScaleObservation": "gymnasium.wrappers.GrayscaleObservation",
    "inspect.getargspec": "inspect.getfullargspec",
    "matplotlib.cm.get_cmap": "matplotlib.pyplot.get_cmap",
    **{
        f"monai.transforms.{name}": f"memlint.workloads.older_versions.former_monai.{name}"
        for name in ["AddChannel", "AddChanneld", "AsChannelFirst", "AsChannelFirstd"]
    },
    "networkx.from_numpy_matrix": "networkx.from_numpy_array",
    "networkx.from_scipy_sparse_matrix": "networkx.from_scipy_sparse_array",
    "networkx.to_numpy_matrix": "networkx.to_numpy_array",
    "networkx.to_scipy_sparse_matrix": "networkx.to_scipy_sparse_array",
    "numpy.bool8": "numpy.bool",
    "numpy.cumproduct": "numpy.cumprod",
    "numpy.in1d": "numpy.isin",
    "numpy.product": "numpy.prod",
    "numpy.row_stack": "numpy.vstack",
    "numpy.trapz": "numpy.trapezoid",
    "numpy.typeDict": "numpy.sctypeDict",
    "peft.prepare_model_for_int8_training": "peft.prepare_model_for_kbit_training",
    "pytorch_lightning.metrics": "torchmetrics",
    **STOOD_FOR,
    "scipy.integrate.cumtrapz": "scipy.integrate.cumulative_trapezoid",
    "scipy.integrate.simps": "scipy.integrate.simpson",
    "sklearn.externals.joblib": "joblib",
    "time.clock": "time.perf_counter",
    "timm.data.Dataset": "timm.data.ImageDataset",
    **{f"timm.models.{name}": f"timm.models._{name}" for name in ("factory", "features", "helpers", "hub", "registry")},
    "timm.models.layers": "timm.layers",
    "torch._overrides.handle_torch_function": "torch.overrides.handle_torch_function",
    "torch._overrides.has_torch_function": "torch.overrides.has_torch_function",
    "torch._six.PY3": "builtins.True",
    "torch._six.container_abcs": "collections.abc",
    "torch._six.inf": "math.inf",
    "torch._six.int_classes": "builtins.int",
    "torch._six.nan": "math.nan",
    "torch._six.string_classes": "builtins.str",
    "torch.nn.modules.linear._LinearWithBias": "torch.nn.modules.linear.NonDynamicallyQuantizableLinear",
    "torch._utils._accumulate": "itertools.accumulate",
    "torchdata.datapipes.iter": "torch.utils.data.datapipes.iter",
    "torchaudio.set_audio_backend": "memlint.workloads.older_versions.former_audio.set_audio_backend",
    "torchvision.transforms.functional_tensor": "torchvision.transforms._functional_tensor",
    "torchmetrics.F1": "torchmetrics.F1Score",
    "torchmetrics.FBeta": "torchmetrics.FBetaScore",
    "torchmetrics.IoU": "torchmetrics.JaccardIndex",
    "torchmetrics.PSNR": "torchmetrics.image.PeakSignalNoiseRatio",
    "torchmetrics.SSIM": "torchmetrics.image.StructuralSimilarityIndexMeasure",
    "torchmetrics.WER": "torchmetrics.text.WordErrorRate",
    "timm.optim.nadam.Nadam": "torch.optim.NAdam",
    "transformers.AutoModelForVision2Seq": "transformers.AutoModelForImageTextToText",
    "transformers.CLIPFeatureExtractor": "transformers.CLIPImageProcessor",
    "transformers.file_utils": "transformers.utils",
    "transformers.modeling_attn_mask_utils": "memlint.workloads.older_versions.former_masks",
    "trl.DataCollatorForCompletionOnlyLM": (
        "memlint.workloads.older_versions.former_trl.DataCollatorForCompletionOnlyLM"
    ),
    **{
        f"torchvision.models.{module}.model_urls": "memlint.workloads.older_versions.model_urls.MODEL_URLS"
        for module in ["alexnet", "densenet", "googlenet", "inception", "mobilenet", "resnet", "squeezenet", "vgg"]
    },
    **{
        f"mmcv.{before}{name}": f"mmengine.{now}{name}"
        for before, now, names in [
            ("", "", "Config ConfigDict DictAction ProgressBar mkdir_or_exist track_iter_progress load dump"),
            ("utils.", "", "Config ConfigDict DictAction Registry build_from_cfg mkdir_or_exist"),
            ("runner.", "model.", "BaseModule ModuleDict ModuleList Sequential"),
            ("runner.", "runner.", "load_checkpoint load_state_dict save_checkpoint"),
            ("runner.", "dist.", "get_dist_info init_dist master_only"),
            (
                "cnn.",
                "model.",
                "bias_init_with_prob constant_init kaiming_init normal_init trunc_normal_init xavier_init",
            ),
        ]
        for name in names.split()
    },
    **{
        f"numpy.{name}": f"numpy.exceptions.{name}"
        for name in ["AxisError", "ComplexWarning", "RankWarning", "TooHardError", "VisibleDeprecationWarning"]
    },
}
"""Names and modules by their dotted name: where what they stood for is now."""


ATTRIBUTES: Mapping[str, str] = {
    **{f"{kind}.append": "_append" for kind in ("DataFrame", "Series")},
    **{f"{kind}.iteritems": "items" for kind in ("DataFrame", "Series")},
    "EfficientNet.act1": "bn1.drop",
    "EfficientNetFeatures.act1": "bn1.drop",
    "GPT2Config.n_ctx": "n_positions",
    "OpenAIGPTConfig.n_ctx": "n_positions",
    "TrainingArguments.evaluation_strategy": "eval_strategy",
    "TrainingArguments.no_cuda": "use_cpu",
    "TrainingArguments.overwrite_output_dir": "do_train",
    **{
        f"TrainingArguments.{name}": ""
        for name in [
            "group_by_length",
            "jit_mode_eval",
            "logging_dir",
            "sharded_ddp",
            "tpu_num_cores",
        ]
    },
    "_BaseDataLoaderIter.next": "__next__",
    "VisionTransformer.num_tokens": "num_prefix_tokens",
    "VisionTransformer.pre_logits": "fc_norm",
}
"""Attributes of objects by class and name: those that have their meaning now, or empty for None. timm's `fc_norm` and
the `pre_logits` of before are both an identity where nothing else was asked for; its `bn1` has the activation in it
that stood behind it, and an identity before that. The iterator of a loader had `next` until PyTorch 1.13. The configs
of GPT had `n_ctx`, the positions of a mask, until transformers 4.6. pandas had `append` and `iteritems` until version
2.
"""


class Argument(NamedTuple):
    """The present form of an argument that is no longer taken."""

    name: str = ""
    """The argument that stands for it; empty if none does, and it is left out."""
    value: str = "{}"
    """The value of that; `{}` is the one that was given."""


_OF_TRAINING: Mapping[str, Argument] = {
    "adafactor": Argument("optim", "adafactor"),
    "dispatch_batches": Argument(),
    "evaluation_strategy": Argument("eval_strategy"),
    "fsdp_transformer_layer_cls_to_wrap": Argument("fsdp_config", '{{"transformer_layer_cls_to_wrap": ["{}"]}}'),
    "group_by_length": Argument("train_sampling_strategy", "group_by_length"),
    "include_inputs_for_metrics": Argument(),
    "include_tokens_per_second": Argument(),
    "jit_mode_eval": Argument(),
    "logging_dir": Argument(),
    "mp_parameters": Argument(),
    "no_cuda": Argument("use_cpu"),
    "overwrite_output_dir": Argument(),
    "past_index": Argument(),
    "per_gpu_eval_batch_size": Argument("per_device_eval_batch_size"),
    "per_gpu_train_batch_size": Argument("per_device_train_batch_size"),
    "push_to_hub_model_id": Argument(),
    "push_to_hub_organization": Argument(),
    "push_to_hub_token": Argument(),
    "ray_scope": Argument(),
    "save_safetensors": Argument(),
    "split_batches": Argument(),
    "tpu_metrics_debug": Argument(),
    "tpu_num_cores": Argument(),
    "use_mps_device": Argument(),
    "warmup_ratio": Argument("warmup_steps"),
    "xpu_backend": Argument(),
}
"""Settings of training that no longer exist, or are called otherwise."""
ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "TrainingArguments": _OF_TRAINING,
    "SFTConfig": {**_OF_TRAINING, "max_seq_length": Argument("max_length")},
    "Trainer": {
        "amp_backend": Argument(),
        "amp_level": Argument(),
        "distributed_backend": Argument("strategy"),
        "auto_select_gpus": Argument(),
        "checkpoint_callback": Argument("enable_checkpointing"),
        "flush_logs_every_n_steps": Argument(),
        "gpus": Argument("devices"),
        "log_gpu_memory": Argument(),
        "move_metrics_to_cpu": Argument(),
        "multiple_trainloader_mode": Argument(),
        "process_position": Argument(),
        "progress_bar_refresh_rate": Argument(),
        "replace_sampler_ddp": Argument("use_distributed_sampler"),
        "resume_from_checkpoint": Argument(),
        "stochastic_weight_avg": Argument(),
        "terminate_on_nan": Argument(),
        "tokenizer": Argument("processing_class"),
        "track_grad_norm": Argument(),
        "truncated_bptt_steps": Argument(),
        "weights_save_path": Argument(),
        "weights_summary": Argument(),
    },
    "Accelerator": {"logging_dir": Argument("project_dir")},
    "build_model_with_cfg": {"default_cfg": Argument("pretrained_cfg")},
}
"""By class or function: arguments of `TrainingArguments`, of the Trainers of transformers and Lightning, of accelerate,
and of timm that no longer exist.
"""
DEFAULTS: Mapping[str, tuple[str, str, bool]] = {
    "BatchEncoding": (
        "transformers.tokenization_utils_base",
        "PreTrainedTokenizerBase.apply_chat_template.return_dict",
        False,
    ),
}
"""By the class of a result that was another one before: the argument of which that follows, in a method of a class of a
module, and what it was where none is given.
"""
POSITIONAL: Mapping[str, str] = {"Series.apply": "convert_dtype"}
"""By method: the argument that its second one was, a number, where an argument of another meaning is now."""
NOT_NONE = ("transformers.training_args", "TrainingArguments.report_to")
"""A module, and the setting of a class in it that had a meaning without a value before: all loggers that there are."""
TOUCHES_MEMORY = frozenset(
    (
        *("batch", "accumulate", "max", "num", "size", "length", "dim", "width", "depth", "hidden", "layers", "heads"),
        *("bit", "4bit", "8bit", "bits", "quant", "quantization", "quantize", "quantized"),
        *("dtype", "half", "precision", "fp16", "bf16", "amp", "level", "backend"),
        *("checkpoint", "checkpointing", "offload", "zero", "strategy", "device", "devices"),
    )
)
"""Words in the names of arguments that may decide on bytes: only where they ask for nothing are they left out."""
