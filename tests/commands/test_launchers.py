"""Command lines that start a script, taken apart: what the script is, its arguments, variables and processes."""

from __future__ import annotations

import shlex
import textwrap

import pytest

from memlint.base.errors import MemlintError
from memlint.commands.run.run import started_by
from memlint.targets.launchers import is_launch, launch_of
from memlint.targets.shell_scripts import launch_in


def launched(line):
    launch = launch_of(shlex.split(line))
    return (launch.path or f"-m {launch.module}", " ".join(launch.arguments), launch.ranks, dict(launch.variables))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py --lr 1", ("train.py", "--lr 1", None, {})),
        ("/usr/bin/python3.11 -u -W ignore train.py", ("train.py", "", None, {})),
        ("python -m package.train --lr 1", ("-m package.train", "--lr 1", None, {})),
        ("torchrun --nproc-per-node 8 train.py -m x", ("train.py", "-m x", 8, {})),
        ("torchrun --standalone --nnodes=2 --nproc_per_node=4 -m package.train a", ("-m package.train", "a", 8, {})),
        ("torchrun --nproc_per_node=8 -m scripts.train -- --depth=12", ("-m scripts.train", "--depth=12", 8, {})),
        ("torchrun --nnodes 1:4 --nproc_per_node gpu train.py", ("train.py", "", 4, {})),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py", ("train.py", "", 2, {})),
        ("python -m torch.distributed.launch --nproc_per_node 2 t.py -a", ("t.py", "--local-rank=0 -a", 2, {})),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 2 t.py -a", ("t.py", "-a", 2, {})),
        ("deepspeed --num_gpus 4 train.py --deepspeed z.json", ("train.py", "--local_rank=0 --deepspeed z.json", 4, {})),
        ("deepspeed --include localhost:0,3 --no_local_rank train.py", ("train.py", "", 2, {})),
        ("accelerate launch --config_file a.yaml train.py --lr 1", ("train.py", "--lr 1", None, {})),
        ("fabric run train.py --devices 4 --num-nodes=2 --main-port 1 lr=1", ("train.py", "lr=1", 8, {"LT_CLI_USED": "1", "LT_DEVICES": "4", "LT_NUM_NODES": "2"})),
        ("lightning run model --precision=bf16-mixed --devices=[0,1] train.py -a", ("train.py", "-a", 2, {"LT_CLI_USED": "1", "LT_DEVICES": "[0,1]", "LT_NUM_NODES": "1", "LT_PRECISION": "bf16-mixed"})),
        ("fabric run --devices auto train.py", ("train.py", "", 1, {"LT_CLI_USED": "1", "LT_DEVICES": "auto", "LT_NUM_NODES": "1"})),
        ("uv run --extra gpu train.py --lr 1", ("train.py", "--lr 1", None, {})),
        ("uv run -m package.train", ("-m package.train", "", None, {})),
        ("poetry run torchrun --nproc_per_node=2 train.py", ("train.py", "", 2, {})),
        ("conda run -n env --no-capture-output python train.py", ("train.py", "", None, {})),
        ("WANDB_MODE=offline PYTHONPATH=. python train.py x=1", ("train.py", "x=1", None, {"WANDB_MODE": "offline", "PYTHONPATH": "."})),
        ("env A=b nohup python train.py", ("train.py", "", None, {"A": "b"})),
    ],
)  # fmt: skip
def test_a_command_line_is_taken_apart(line, expected):
    assert launched(line) == expected


def test_the_options_of_accelerate_are_kept_for_it():
    launch = launch_of(shlex.split("accelerate launch --config_file a.yaml --num_processes 2 -m package.train --lr 1"))
    assert launch.accelerate == ("--config_file", "a.yaml", "--num_processes", "2")
    assert (launch.module, launch.arguments) == ("package.train", ("--lr", "1"))


def test_an_old_script_is_given_its_rank_as_it_takes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text('parser.add_argument("--local_rank", type=int)\n')
    assert launched("python -m torch.distributed.launch train.py") == ("train.py", "--local_rank=0", 1, {})


def test_a_module_beside_the_script_may_take_the_rank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("from options import parser\nparser.parse_args()\n")
    (tmp_path / "options.py").write_text('parser.add_argument("--local_rank", type=int)\n')
    assert launched("python -m torch.distributed.launch train.py") == ("train.py", "--local_rank=0", 1, {})


def test_a_script_is_no_launcher(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_launch(["train.py", "--lr", "1"])
    assert not is_launch(["examples/train.py"])
    fields = started_by(("train.py", "--lr", "1"), is_module=False)
    assert fields == {"name": "train", "path": "train.py", "module": "", "arguments": ("--lr", "1")}


@pytest.mark.parametrize("line", ["accelerate config", "python -c pass", "uv sync", "torchrun --help"])
def test_a_command_that_starts_no_script_says_so(line):
    with pytest.raises(MemlintError, match="starts no Python script"):
        launch_of(line.split())


def test_a_module_that_is_a_launcher_is_taken_apart():
    fields = started_by(("accelerate.commands.launch", "--num_processes", "8", "train.py"), is_module=True)
    assert (fields["path"], fields["accelerate"]) == ("train.py", ("--num_processes", "8"))
    assert fields["typed"] == ("-m", "accelerate.commands.launch", "--num_processes", "8", "train.py")
    assert started_by(("package.train",), is_module=True)["module"] == "package.train"


SHELL = r"""
#!/bin/bash
set -e
# torchrun old.py
export NCCL_DEBUG=INFO WRONG
export OMP_NUM_THREADS=4
CONFIG="configs/fsdp.yaml"   # of the cluster
RATE=${2:-0.1}
MODEL=${1}
ARGS=(
    --lr "$RATE"     # warm
    --name "two words"
)
ARGS+=(--bf16)
python prepare.py
if [ -z "$MODEL" ]; then echo none; fi
cd /tmp && nohup accelerate launch --config_file "$CONFIG" \
    train.py "${ARGS[@]}" \
    --model ${MODEL} > log.txt 2>&1 &
python eval.py | tee log.txt
"""


def test_a_shell_script_is_read(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(SHELL)
    launch = launch_in(file, ("gpt2",))
    assert launch.path == "train.py"
    assert launch.arguments == ("--lr", "0.1", "--name", "two words", "--bf16", "--model", "gpt2")
    assert launch.accelerate == ("--config_file", "configs/fsdp.yaml")
    assert launch.variables["OMP_NUM_THREADS"] == "4"
    assert started_by((str(file), "gpt2"), is_module=False)["path"] == "train.py"
    assert started_by(("bash", str(file), "gpt2"), is_module=False)["path"] == "train.py"


def test_what_a_shell_script_sends_to_other_programs_is_no_argument(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text("""python train.py \\
        --seed 42 \\
        > >(tee ${log_dir}/train.log) \\
        2> >(tee ${log_dir}/train.err >&2)
""")
    assert launch_in(file).arguments == ("--seed", "42")


LOOP = """
lengths=(96 192)
names=(a b)
for length in 24 48; do
  for i in "${!lengths[@]}"
  do
    python -u run.py --length $length --context ${lengths[$i]} --id x_${names[0]} "${@:2}"
  done
done
"""


def test_of_a_loop_the_first_iteration_counts(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(LOOP)
    launch = launch_in(file, ("1", "--batch", "two words"))
    assert launch.arguments == ("--length", "24", "--context", "96", "--id", "x_a", "--batch", "two words")


BRANCHES = """
DEVICES=${DEVICES:-8}
MODE=${MODE:-""}
CONFIG=${CONFIG:-large}
if [ -n "$MODE" ]; then
    python train.py --mode $MODE
elif [[ "$CONFIG" == small ]]; then python train.py --small
else
    if [ -d /data ] && [ -n "$MODE" ]; then ARGS=(--data); fi
    torchrun --nproc_per_node=$DEVICES train.py --config $CONFIG "${ARGS[@]}"
fi
"""


@pytest.mark.parametrize(
    ("typed", "arguments", "ranks"),
    [
        ("", ("--config", "large", "--data"), 8),
        ("DEVICES=2 CONFIG=tall ", ("--config", "tall", "--data"), 2),
        ("MODE=fake ", ("--mode", "fake"), None),
        ("CONFIG=small bash ", ("--small",), None),
    ],
)
def test_variables_before_a_shell_script_choose_its_branch(tmp_path, typed, arguments, ranks):
    file = tmp_path / "run.sh"
    file.write_text(BRANCHES)
    fields = started_by((*typed.split(), str(file)), is_module=False)
    assert (fields["arguments"], fields["ranks"]) == (arguments, ranks)
    assert set(typed.replace("bash", "").split()) <= {f"{name}={value}" for name, value in fields["variables"]}


def test_variables_of_the_environment_choose_its_branch_unless_others_are_typed(tmp_path, monkeypatch):
    file = tmp_path / "run.sh"
    file.write_text(BRANCHES)
    monkeypatch.setenv("CONFIG", "tall")
    monkeypatch.setenv("DEVICES", "4")
    fields = started_by(("DEVICES=2", str(file)), is_module=False)
    assert (fields["arguments"], fields["ranks"]) == (("--config", "tall", "--data"), 2)


def test_what_a_shell_script_computes_is_computed(tmp_path):
    file = tmp_path / "train.sh"
    file.write_text(
        "WHOLE=128\nEACH=4\nDEVICES=8\nSTEPS=$((WHOLE / (EACH * DEVICES)))\nLONG=$[$EACH*96]\n"
        "python train.py --steps $STEPS --long $LONG --rest $(( ${WHOLE} % 5 - 7 )) --ports $((29500 + RANDOM_PORT))\n"
    )
    with pytest.raises(MemlintError, match=r"only a shell knows what \$\(\(29500"):
        launch_in(file)
    file.write_text(file.read_text().replace(" --ports $((29500 + RANDOM_PORT))", ""))
    assert launch_in(file).arguments == ("--steps", "4", "--long", "384", "--rest", "-4")


def test_a_shell_script_starts_its_script_in_the_folder_that_it_changes_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "scripts" / "train.sh"
    for each in (file.parent, tmp_path / "inner" / "package"):
        each.mkdir(parents=True)
    (tmp_path / "inner" / "train.py").touch()
    for place, words in (("inner", "train.py"), ('"$(dirname "$0")/../inner"', "-m package.main")):
        file.write_text(f"cd {place}\npython {words} --lr 0.1\n")
        fields = started_by((str(file),), is_module=False)
        assert fields["folder"] == str(tmp_path / "inner")
        assert fields["path"] == ("inner/train.py" if words == "train.py" else "")


def test_what_is_typed_as_a_document_has_it_is_taken_as_it_stands(tmp_path):
    file = tmp_path / "train.sh"
    file.write_text("DATA=${1}\npython train.py --data=${DATA}/train\n")
    assert launch_in(file, ["${DATAPATH}"]).arguments == ("--data=${DATAPATH}/train",)


def test_what_only_a_shell_knows_is_said(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(textwrap.dedent("python train.py --name $(date)\n"))
    with pytest.raises(MemlintError, match="only a shell knows"):
        launch_in(file)
    file.write_text("echo done\n")
    with pytest.raises(MemlintError, match="starts no Python script"):
        launch_in(file)


def test_a_shell_script_shifts_its_arguments(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(
        'NUM=$1\nshift\npython -m torch.distributed.launch --nproc_per_node=$NUM train.py "$@" --first $1\n'
    )
    launch = launch_in(file, ("4", "data", "--lr", "1"))
    assert launch.arguments[-5:] == ("data", "--lr", "1", "--first", "data")
    assert launch.ranks == 4


def test_a_shell_script_that_starts_others_gives_them_its_arguments_and_exports(tmp_path):
    (tmp_path / "steps").mkdir()
    outer, inner = tmp_path / "train.sh", tmp_path / "steps" / "pretrain.sh"
    outer.write_text(
        'DATA=words.json\nexport SEED=3\nbash ./train.sh\nbash steps/pretrain.sh "$DATA" $1\nbash absent.sh\n'
    )
    inner.write_text("torchrun --nproc_per_node 2 train.py --data $1 --lr $2\n")
    launch = launch_in(outer, ("0.1",))
    assert (launch.path, launch.arguments) == ("train.py", ("--data", "words.json", "--lr", "0.1"))
    assert (launch.ranks, launch.variables) == (2, {"SEED": "3"})


@pytest.mark.parametrize("start", ["eval $CMD", 'eval "$CMD"', "$CMD"])
def test_a_variable_that_is_added_to_may_hold_the_whole_command(tmp_path, start):
    file = tmp_path / "run.sh"
    file.write_text(f'ARGS="--width 64"\nARGS+=" --batch 16"\nCMD="python train.py $ARGS"\necho $CMD\n{start}\n')
    assert launch_in(file).arguments == ("--width", "64", "--batch", "16")


def test_a_shell_script_may_start_a_command_that_its_project_declares(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nnet = "nets.cli:main"\npip = "nets.cli:no"\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run/sft.sh").write_text("python prepare.py\npytest --x\nA=1 net train \\\n  --lr 1\n")
    (tmp_path / "run/other.sh").write_text("pytest --x\nnet sft --lr 1\n")
    monkeypatch.chdir(tmp_path / "run")
    launch = launch_in(tmp_path / "run/sft.sh")
    assert (launch.command, launch.module, launch.arguments) == ("net", "nets.cli:main", ("train", "--lr", "1"))
    assert launch_in(tmp_path / "run/other.sh").arguments == ("sft", "--lr", "1")
    typed = started_by(["CUDA_VISIBLE_DEVICES=0", "net", "sft"], is_module=False)
    assert (typed["name"], typed["module"], typed["arguments"]) == ("net", "nets.cli:main", ("sft",))
