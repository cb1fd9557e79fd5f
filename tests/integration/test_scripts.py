"""Training scripts of real libraries, unmodified, under `memlint run`."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memlint.commands.check.check import check
from tests.script.running import OPTIONS, run_script, run_text, write

if TYPE_CHECKING:
    from memlint.report.model import Workload

pytestmark = pytest.mark.usefixtures("copied_pythons")

SCRIPTS = Path(__file__).parent / "scripts"
SHIPPED = Path(__file__).parents[2] / "fixtures" / "scripts"
MODELS = Path(__file__).parents[2] / "fixtures" / "models"


def run(tmp_path: Path, name: str, *arguments: str, **fields: Any) -> Workload:
    """What a run of a script of `scripts/` says, which leaves nothing in its folder."""
    shutil.copytree(SCRIPTS / "conf", tmp_path / "conf")  # makes the folder, too
    file = shutil.copy(
        next(path for path in (SCRIPTS / f"{name}.py", SHIPPED / f"{name}.py") if path.exists()), tmp_path
    )
    (tmp_path / "memlint.toml").touch()
    before = sorted(tmp_path.rglob("*"))
    (workload,) = run_script(Path(file), *arguments, settings={"timeout": 500.0}, **fields).report.workloads
    assert sorted(tmp_path.rglob("*")) == before
    assert workload.error is None, workload.error
    assert workload.estimate is not None
    assert workload.script is not None
    return workload


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "dtype", "optimizer"),
    [
        ("finetune_gpt2", "accelerate", "bf16-amp", "AdamW"),
        ("accelerate_loop", "accelerate", "bf16-amp", "AdamW"),
        ("lightning_module", "lightning", "fp16-amp", "AdamW"),
        ("timm_train", "timm", "fp16-amp", "Lamb"),
        ("memmap_loop", "torch", "bf16-amp", "AdamW"),
        ("sft_lora", "trl", "bf16-amp", "AdamW"),
        ("hydra_app", "hydra", "float32", "AdamW"),
        ("mnist --save-model", "torchvision", "float32", "Adadelta"),
        ("dcgan --accel", "torchvision", "float32", "Adam"),
        ("vae", "torchvision", "float32", "Adam"),
        ("siamese", "torchvision", "float32", "Adadelta"),
        ("word_language_model --accel", "torch", "float32", None),
        ("imagenet", "torchvision", "float32", "SGD"),
    ],
)
def test_a_script_declares_itself_and_reaches_evaluation_and_saving(
    tmp_path: Path, name: str, package: str, dtype: str, optimizer: str | None
) -> None:
    if find_spec(package) is None:  # importing it here may fail where it does not in a run
        pytest.skip(f"{package} is not installed")
    short = run(tmp_path / "short", *name.split(), fake_data=True)
    assert short.script is not None
    assert (short.script.steps, short.dtype, short.optimizer) == (2, dtype, optimizer)
    whole = run(tmp_path / "whole", *name.split(), whole=True, fake_data=True)
    assert whole.script is not None
    assert whole.estimate is not None
    assert whole.script.ending == "the script ran to its end"
    assert whole.script.writes
    assert short.estimate is not None
    assert whole.estimate.peak.requested.estimate >= short.estimate.peak.requested.estimate


@pytest.mark.slow
def test_a_checkpoint_of_the_same_run_can_be_resumed_from(tmp_path: Path) -> None:
    if find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    text = (SHIPPED / "finetune_gpt2.py").read_text()
    resuming = text.replace(
        "    print(trainer.evaluate())", "    trainer.args.max_steps = 6\n    print(trainer.train(True))"
    )
    (workload,) = run_text(tmp_path, resuming, whole=True, batches=2, settings={"timeout": 500.0}).report.workloads
    assert workload.error is None, workload.error
    assert workload.script is not None
    assert workload.script.steps == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inputs", "accumulation"),
    [
        ("gpt2.GPT2", "tokens = torch.randint(50257, (8, 1024)), torch.randint(50257, (8, 1024))", 1),
        ("resnet50.ResNet50", "tokens = torch.randn(8, 3, 224, 224),", 1),
        ("llama.Llama", "tokens = torch.randint(32000, (2, 1024)), torch.randint(32000, (2, 1024))", 4),
    ],
)
def test_a_script_takes_what_the_same_step_takes_where_it_is_declared(
    tmp_path: Path, model: str, inputs: str, accumulation: int
) -> None:
    module, name = model.split(".")
    shutil.copy(MODELS / f"{module}.py", tmp_path)
    step = f"""
        import torch
        from {module} import {name}

        {inputs}

        def step(model, inputs, optimizer):
            for _ in range({accumulation}):
                with torch.autocast("cuda", torch.bfloat16):
                    output = model(*inputs)
                    loss = output[1] if isinstance(output, tuple) else output.float().mean()
                (loss / {accumulation}).backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    script = """
        if __name__ == "__main__":
            model = NAME().cuda()
            inputs = [t.cuda() for t in tokens]
            optimizer = torch.optim.AdamW(model.parameters())
            while True:
                step(model, inputs, optimizer)
    """
    declared = """
        import memlint

        def memlint_workload():
            return memlint.Declaration(
                NAME(), list(tokens), step=lambda model, inputs, optimizer: step(model, list(inputs.values()), optimizer)
            )
    """
    (run,) = run_text(tmp_path, step + script.replace("NAME", name)).report.workloads
    file = write(tmp_path, step + declared.replace("NAME", name), "declared.py")
    (checked,) = check([str(file)], {"dtype": "bf16-amp", "select": ("MEM010",)}, OPTIONS).report.workloads
    assert run.estimate is not None, run.error
    assert checked.estimate is not None, checked.error
    assert run.estimate.peak == checked.estimate.peak
    assert run.estimate.categories == checked.estimate.categories
