"""`memlint serve`."""

from pathlib import Path
from typing import Any

import click

from memlint.cli import completion
from memlint.cli.options import COLOR, FILE, SECONDS, format_option
from memlint.cli.printing import progress, text_style_of, write

_POSITIVE = click.IntRange(min=1)


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completion.targets)
@click.option("--engine", type=click.Choice(("vllm", "sglang")), default="vllm", show_default=True)
@click.option("--engine-version", metavar="VERSION", help="By default the newest whose rules were read.")
@click.option(
    "--gpu",
    metavar="NAME",
    shell_complete=completion.gpus,
    help="The GPU; by default an A100 of 80 GB, and any with --users.",
)
@click.option("--tp", metavar="NUMBERS", help="GPUs that share the model; one number, or 1,2,4,8 for a table.")
@click.option("--pp", type=_POSITIVE, default=1, metavar="NUMBER", help="Stages of a pipeline.")
@click.option("--dp", type=_POSITIVE, default=1, metavar="NUMBER", help="Copies of the model.")
@click.option("--max-model-len", type=_POSITIVE, metavar="TOKENS", help="Longest request; by default the model's.")
@click.option(
    "--gpu-memory-utilization",
    "--mem-fraction-static",
    "utilization",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Share of the GPU, as the engine's option.",
)
@click.option(
    "--kv-cache-dtype",
    default="auto",
    metavar="NAME",
    shell_complete=completion.cache_dtypes,
    help="auto, fp8, bfloat16, float16.",
)
@click.option(
    "--dtype", metavar="NAME", shell_complete=completion.engine_dtypes, help="Of the model; by default its config's."
)
@click.option("--quantization", metavar="NAME", help="fp8, w8a8, w4a16, gptq, awq, mxfp4, nvfp4, bitsandbytes.")
@click.option("--max-num-seqs", type=_POSITIVE, metavar="NUMBER", help="Requests in one batch.")
@click.option(
    "--max-num-batched-tokens",
    "--chunked-prefill-size",
    type=_POSITIVE,
    metavar="NUMBER",
    help="Tokens in one batch.",
)
@click.option("--enforce-eager", is_flag=True, help="No compiled pieces and no CUDA graphs.")
@click.option("--users", type=_POSITIVE, metavar="NUMBER", help="Name the cheapest GPUs for so many requests at once.")
@click.option("--length", type=_POSITIVE, metavar="TOKENS", help="With --users: tokens of each; short for the above.")
@format_option("text", "json", "markdown")
@click.option("-o", "--output-file", type=FILE, help="Write the result there.")
@click.option("--timeout", **SECONDS, help="For all of it.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory the model's code may take.")
@COLOR
def serve(
    target: str,
    engine: str,
    engine_version: str | None,
    gpu: str | None,
    tp: str | None,
    pp: int,
    dp: int,
    users: int | None,
    length: int | None,
    max_model_len: int | None,
    output_format: str,
    output_file: Path | None,
    timeout: float | None,
    memory_limit: str | None,
    color: str,
    **engine_options: Any,
) -> None:
    """Say what a serving engine will do with a GPU's memory, and whether it starts.

    TARGET is a Hugging Face config: transformers::LlamaConfig, the path of a config.json, or the folder of one. Weights
    and the profile run's activations are those of the model's own code; pages and blocks of the cache follow the rules
    of the engine's version.

    Exit status: 0 it starts, 1 it does not, or may not, 2 the model could not be analysed.
    """
    from memlint.commands.serve import serve as command  # noqa: PLC0415
    from memlint.commands.serve import text  # noqa: PLC0415

    order = command.order_of(
        engine,
        engine_version,
        tp,
        gpu,
        users,
        pipeline_parallel=pp,
        data_parallel=dp,
        max_model_len=length or max_model_len,
        **engine_options,
    )
    with progress("planning") as show:
        serving = command.serve(target, order, {"timeout": timeout, "memory_limit": memory_limit}, on_wait=show)
    style = text_style_of(color, output_file, verbosity=0)
    result = text.render(serving, output_format, style)
    write(style.fitted(result) if output_format == "text" else result, output_file, color=style.color)
    click.get_current_context().exit(serving.status)
