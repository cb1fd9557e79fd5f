"""Which commands of a project lead to a file, and in which order a person would try them."""

import shlex
from pathlib import Path
from textwrap import dedent

import pytest

from memlint.source.leading_scripts import LeadingScripts, likeliest_command, training_command
from memlint.source.option_texts import model_option
from memlint.source.project_files import ProjectFiles
from memlint.source.typed_commands import concrete, is_placeholder, typed_commands

MODEL = "import torch\n\nclass Net(torch.nn.Module):\n    pass\n"
MAIN = "\nif __name__ == '__main__':\n    main()\n"
TRAIN = f"from model import Net\n\ndef main():\n    Net().loss().backward()\n{MAIN}"


def project(folder: Path, **files: str) -> Path:
    """Write files; `__` in a name stands for a slash, and what has no ending is Python."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_suffix(".py") if not path.suffix else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))
    return folder


def commands_in(folder: Path) -> list[tuple[str, ...]]:
    files = ProjectFiles(folder, folder / "x.py")
    return [
        (each.module or each.script.relative_to(each.folder).as_posix(), *each.arguments)
        for each in typed_commands(files)
    ]


def leading(folder: Path, name: str = "model.py") -> list[str]:
    found = LeadingScripts(folder / name, folder, keep=False).commands
    return [" ".join((each.command.script.name, *each.command.arguments)) for each in found]


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        ("python train.py --lr 3e-4", ("--lr", "3e-4")),
        ("$ CUDA_VISIBLE_DEVICES=0,1 python3 -u train.py --lr 1", ("--lr", "1")),
        ("torchrun --standalone --nproc_per_node=8 train.py a.yaml", ("a.yaml",)),
        ("python -m torch.distributed.launch --nproc_per_node=8 train.py --x", ("--x",)),
        ("accelerate launch --config_file fsdp.yaml train.py --x", ("--x",)),
        ("uv run python train.py --x &> log.txt 2>&1 &", ("--x",)),
        ("python train.py \\\n  --x 1 \\   # why\n  --y 2", ("--x", "1", "--y", "2")),
        (
            "python train.py --data </path/to data> --out [path] [--amp] ...",
            ("--data", "</path/to data>", "--out", "[path]"),
        ),
        ("cd sub && python train.py --x | tee log", ("--x",)),
        ("./train.py --x; echo done", ("--x",)),
        ("uv run train.py --x", ("--x",)),
        ("python train.py --x 1\n  --y 2 3\n--z", ("--x", "1", "--y", "2", "3", "--z")),
        ("python train.py \\\n  --x \\ # why\nyolo fit=now", ("--x",)),
    ],
)
def test_a_command_of_a_document_is_taken_without_its_launcher(tmp_path, typed, arguments):
    project(tmp_path, train=TRAIN)
    (tmp_path / "README.md").write_text(
        f"# Train\n\nSee `train.py`, or python train.py for short.\n\n```sh\n{typed}\n```\n"
    )
    assert commands_in(tmp_path) == [("train.py", *arguments)]


@pytest.mark.parametrize(
    ("typed", "variables", "ranks"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 OMP=4 WANDB=off python train.py", (("OMP", "4"), ("WANDB", "off")), 0),
        ("env A=1 torchrun --nnodes 2 --nproc-per-node=4 train.py", (("A", "1"),), 8),
        ("DATA=<your data> KEY= python -m torch.distributed.launch --nproc_per_node $N train.py", (), 1),
    ],
)
def test_what_stands_before_a_command_is_set_for_it(tmp_path, typed, variables, ranks):
    project(tmp_path, train=TRAIN)
    (tmp_path / "README.md").write_text(f"```sh\n{typed}\n```\n")
    (command,) = typed_commands(ProjectFiles(tmp_path, tmp_path / "x.py"))
    assert (command.variables, command.ranks) == (variables, ranks)


def test_the_line_to_type_sets_variables_and_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project(
        tmp_path,
        model=MODEL,
        train=TRAIN,
        **{"README.md": "```sh\nA='b c' torchrun --nproc_per_node=4 train.py\n```\n"},
    )
    for keep in (False, True, True):  # which also comes back as it was kept
        line = likeliest_command(tmp_path / "model.py", tmp_path, keep=keep)
        assert line == "A='b c' memlint run --ranks 4 train.py"


def test_a_command_whose_arguments_are_all_left_out_is_none(tmp_path):
    text = "```sh\ntorchrun --nproc_per_node=8 train.py \\\n  ...\n```\n```sh\npython train.py --bs 32\n```\n"
    project(tmp_path, train=TRAIN, **{"README.md": text})
    assert commands_in(tmp_path) == [("train.py", "--bs", "32")]


def test_a_module_is_one_command_and_a_file_named_in_prose_is_none(tmp_path):
    project(tmp_path, pkg__train=TRAIN, pkg____init__="")
    (tmp_path / "README.md").write_text("Edit `pkg/train.py`. Then `python -m pkg.train --x 1` trains.\n")
    assert commands_in(tmp_path) == [("pkg.train", "--x", "1")]


def test_variables_of_a_shell_script_have_the_values_that_it_gives_them(tmp_path):
    project(tmp_path, train=TRAIN)
    script = """
        if [ $bs ]; then
            BS=$bs
        else
            BS=24
        fi
        export OUT="runs/a"
        for len in 96 192; do
          python -u train.py --bs $BS --out $OUT --len $len --lr ${LR:-0.1} --data $DATA "$@"
        done
    """
    (tmp_path / "run.sh").write_text(dedent(script))
    assert commands_in(tmp_path) == [
        ("train.py", "--bs", "24", "--out", "runs/a", "--len", length, "--lr", "0.1", "--data", "$DATA")
        for length in ("96", "192")
    ]


def test_a_command_that_a_variable_of_several_lines_holds_is_read(tmp_path):
    project(tmp_path, train=TRAIN)
    script = """
        gpus=0      # one
        rows=8
        cmd="train.py --rows ${rows} \\
            --gpus ${gpus} --name `date`
            --root data"
        if [ ! -z "$rows" ]; then
            cmd="${cmd} --more 1"
        fi
        if [ ${#gpus} -gt 1 ]; then
            cmd="-m torch.distributed.launch ${cmd}"
        fi
        CUDA_VISIBLE_DEVICES=${gpus} python ${cmd}
    """
    (tmp_path / "run.sh").write_text(dedent(script))
    (words,) = commands_in(tmp_path)
    assert words == ("train.py", "--rows", "8", "--gpus", "0", "--name", "`date`", "--root", "data", "--more", "1")


def test_a_script_is_found_in_the_folder_that_the_text_goes_to_or_where_there_is_only_one(tmp_path):
    project(tmp_path, a__tools__train=TRAIN, b__fit=TRAIN)
    (tmp_path / "README.md").write_text("```\ncd a\npython tools/train.py\n```\n```\npython fit.py\n```\n")
    found = list(typed_commands(ProjectFiles(tmp_path, tmp_path / "x.py")))
    assert [(each.script.name, each.folder.name) for each in found] == [("train.py", "a"), ("fit.py", "b")]


def test_training_comes_before_evaluation_and_what_documents_type_before_other_scripts(tmp_path):
    project(tmp_path, model=MODEL, train_new=TRAIN, finetune=TRAIN, sample=TRAIN, other=MAIN)
    (tmp_path / "README.md").write_text(
        "```\npython sample.py --n 4\npython finetune.py --eval\npython finetune.py --lr 1\npython other.py\n```\n"
    )
    assert leading(tmp_path) == ["finetune.py --lr 1", "train_new.py", "finetune.py --eval", "sample.py --n 4"]


def test_only_scripts_that_import_the_file_or_may_find_it_when_they_run_are_given(tmp_path):
    table = f"import importlib\n\ndef main(name):\n    importlib.import_module(name).Net().loss().backward()\n{MAIN}"
    project(tmp_path, model=MODEL, train=TRAIN, train_table=table, train_other=f"import torch.optim\n{MAIN}")
    found = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert [(each.command.script.name, each.is_certain) for each in found] == [
        ("train.py", True),
        ("train_table.py", False),
    ]


def test_the_command_whose_arguments_name_the_model_comes_first(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "README.md").write_text("```\npython train.py --arch Other\npython train.py --arch Net\n```\n")
    assert leading(tmp_path)[0] == "train.py --arch Net"


def test_an_example_that_only_shows_the_model_comes_after_the_training_that_is_typed(tmp_path):
    table = f"import importlib\n\ndef main():\n    importlib.import_module('model').build().loss().backward()\n{MAIN}"
    project(tmp_path, model=MODEL, main=f"import model\n{table}")
    shows = "```python\nimport torch\nfrom model import Net\nnet = Net()\nnet.eval()\nnet(torch.rand(1, 3))\n```\n"
    (tmp_path / "README.md").write_text(f"{shows}\n```\npython main.py\n```\n")
    assert leading(tmp_path)[0] == "main.py"
    (tmp_path / "README.md").write_text(shows)
    assert leading(tmp_path)[0].startswith("README.md")


def test_an_example_that_only_shows_the_model_comes_after_a_typed_training_that_may_lead_to_it(tmp_path):
    table = (
        f"import importlib\n\ndef main():\n    importlib.import_module(args.model).build().loss().backward()\n{MAIN}"
    )
    project(tmp_path, model=MODEL, main=table)
    shows = "```python\nimport torch\nfrom model import Net\nnet = Net()\nnet.eval()\nnet(torch.rand(1, 3))\n```\n"
    (tmp_path / "README.md").write_text(f"{shows}\n```\npython main.py --model model\n```\n")
    assert leading(tmp_path)[:2] == ["main.py --model model", "README.md"]


def test_of_many_shell_scripts_the_one_nearest_to_the_defaults_comes_first(tmp_path):
    options = "parser.add_argument('--task', default='long')\nparser.add_argument('--mask', default=0.25)\n"
    project(tmp_path, model=MODEL, train=TRAIN + options)
    project(tmp_path, **{"a.sh": "python train.py --task short --mask 0.5\n", "b.sh": "python train.py --task long\n"})
    assert leading(tmp_path)[0] == "train.py --task long"


@pytest.mark.parametrize(("options", "first"), [("'--layers'", "a"), ("'--layers', '--layering'", "b")])
def test_an_option_is_known_by_its_beginning_if_no_other_one_begins_so(tmp_path, options, first):
    added = "".join(f"parser.add_argument({each})\n" for each in options.split(", "))
    project(tmp_path, model=MODEL, a=TRAIN + added, b=TRAIN + "parser.add_argument('--depth')\n")
    (tmp_path / "README.md").write_text("```\npython a.py --layer 3\npython b.py --depth 3\n```\n")
    assert leading(tmp_path)[0].startswith(f"{first}.py")


def test_a_shell_script_finds_what_lies_beside_it(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN + "parser.add_argument('--cfg')\n")
    shell = 'here=$(cd "$(dirname "$0")" && pwd)\npython train.py --cfg $here/config.yaml --out $(dirname $0)\n'
    project(tmp_path, **{"exp/small/run.sh": shell, "exp/small/config.yaml": "batch: 2\n"})
    assert leading(tmp_path)[0] == "train.py --cfg exp/small/config.yaml --out exp/small"


def test_a_command_with_an_option_that_the_script_no_longer_has_comes_after_one_without(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN + "parser.add_argument('--use-amp')\n")
    (tmp_path / "README.md").write_text("```\npython train.py --amp\npython train.py --use-amp\n```\n")
    assert leading(tmp_path) == ["train.py --use-amp", "train.py --amp"]


def test_a_placeholder_for_a_config_is_one_that_the_document_names_or_that_names_the_class(tmp_path):
    train = f"import yaml\nparser.add_argument('-c')\nparser.add_argument('--data')\n{TRAIN}"
    project(tmp_path, model=MODEL, train=train, **{"configs/a.yml": "lr: 1\n", "configs/net.yml": "model: Net\n"})
    readme = tmp_path / "README.md"
    readme.write_text("```\npython train.py -c path/to/config --data your data\n```\n")
    assert leading(tmp_path) == ["train.py -c configs/net.yml --data your data"]
    found = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert found[0].command.arguments[-1] == "your data"
    readme.write_text(f"{readme.read_text()}\nConfigs: [a](configs/a.yml)\n")
    of_class = "train.py -c configs/net.yml --data your data"  # which surely builds it
    assert leading(tmp_path) == [of_class, "train.py -c configs/a.yml --data your data"]


@pytest.mark.parametrize("config", ["conf", "conf/main.yaml"])
def test_hydra_is_told_the_group_whose_config_names_the_class(tmp_path, config):
    train = (
        f"import hydra\n\n@hydra.main(config_path='{config}', config_name='main')\ndef main(c):\n    c.fit()\n{MAIN}"
    )
    project(tmp_path, model=MODEL, train=train.replace("c.fit()", "build(c).fit(c)"))
    project(
        tmp_path,
        **{
            "conf/main.yaml": "defaults: [model: other]\nnet: {_target_: model.Net}\n",
            "conf/model/net.yaml": "_target_: model.Net\n",
        },
    )
    assert leading(tmp_path) == ["train.py model=net"]


def test_the_likeliest_command_is_typed_where_the_user_is_and_asks_for_data_that_nobody_has(tmp_path, monkeypatch):
    project(tmp_path, sub__model=MODEL, sub__train=TRAIN)
    (tmp_path / "sub/README.md").write_text("```\npython train.py --data /path/to/data\n```\n")
    typed = "memlint run --fake-data train.py --data /path/to/data"
    monkeypatch.chdir(tmp_path / "sub")
    assert likeliest_command(tmp_path / "sub/model.py", tmp_path) == typed
    monkeypatch.chdir(tmp_path)
    assert likeliest_command(tmp_path / "sub/model.py", tmp_path) == f"cd sub && {typed}"
    (tmp_path / "sub/train.py").unlink()
    assert not likeliest_command(tmp_path / "sub/model.py", tmp_path)


def test_what_was_found_is_kept_until_a_file_of_the_project_changes(tmp_path, monkeypatch):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "README.md").write_text("```\npython train.py --lr 1\n```\n")
    found = LeadingScripts(tmp_path / "model.py", tmp_path).commands
    assert [each.command.arguments for each in found] == [("--lr", "1")]
    with monkeypatch.context() as patches:
        patches.setattr(LeadingScripts, "_found", None)
        assert LeadingScripts(tmp_path / "model.py", tmp_path).commands == found
    (tmp_path / "README.md").write_text("```\npython train.py --lr 22\n```\n")
    assert LeadingScripts(tmp_path / "model.py", tmp_path).commands[0].command.arguments == ("--lr", "22")


LOOKS_UP = (
    """
import argparse
from net import Small, Wide
MODELS = {"Small": Small, "Wide": Wide}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Small", help="of models (see above)")
    MODELS[parser.parse_args().model]().loss().backward()
"""
    + MAIN
)


@pytest.mark.parametrize(
    ("choices", "commands"),
    [("'SMALL', 'WIDE'", ["train.py --model WIDE"]), ("'SMALL', 'other'", [])],
)
def test_a_model_is_chosen_as_the_option_spells_it(tmp_path, choices, commands):
    classes = "import torch\n\nclass {}(torch.nn.Module):\n    pass\n".format
    looks_up = LOOKS_UP.replace('"--model"', f"'--model', choices=({choices})")
    project(tmp_path, train=looks_up, net__small=classes("Small"), net__wide=classes("Wide"))
    (tmp_path / "net" / "__init__.py").write_text("from .small import Small\nfrom .wide import Wide\n")
    assert [each for each in leading(tmp_path, "net/wide.py") if "--model" in each] == commands


def test_a_script_that_chooses_models_by_name_is_asked_for_the_one_of_the_file(tmp_path):
    classes = "import torch\n\nclass {}(torch.nn.Module):\n    pass\n".format
    project(tmp_path, train=LOOKS_UP, net__small=classes("Small"), net__wide=classes("Wide"))
    (tmp_path / "net" / "__init__.py").write_text("from .small import Small\nfrom .wide import Wide\n")
    assert leading(tmp_path, "net/wide.py")[0] == "train.py --model Wide"
    assert leading(tmp_path, "net/small.py") == ["train.py"]
    (tmp_path / "README.md").write_text("```sh\npython train.py --model Small --lr 1\n```\n")
    assert leading(tmp_path, "net/wide.py")[0] == "train.py --lr 1 --model Wide"


def test_a_loop_of_a_shell_script_gives_a_command_for_each_of_its_values(tmp_path):
    project(tmp_path, train=TRAIN)
    (tmp_path / "all.sh").write_text("for net in small wide; do\n  python train.py --net $net --out runs/$net\ndone\n")
    assert commands_in(tmp_path) == [("train.py", "--net", name, "--out", f"runs/{name}") for name in ("small", "wide")]


def test_the_file_itself_comes_after_scripts_unless_it_trains(tmp_path):
    example = "\nif __name__ == '__main__':\n    Net()(1)\n"
    project(tmp_path, model=MODEL + example, train=TRAIN)
    (tmp_path / "README.md").write_text("```sh\npython model.py\npython train.py\n```\n")
    assert leading(tmp_path) == ["train.py", "model.py"]


def test_what_a_list_of_files_says_behind_a_script_is_no_argument(tmp_path):
    project(tmp_path, train=TRAIN, sample=TRAIN)
    (tmp_path / "README.md").write_text("```\ntrain.py   Example of training\nsample.py --n 4\n```\n")
    assert commands_in(tmp_path) == [("sample.py", "--n", "4")]


@pytest.mark.parametrize(
    ("typed", "concrete_words"),
    [
        ("--data-dir=[YOUR_DATA_PATH] --world-size 1 '[your imagenet folder]'", "--data-dir=data --world-size 1 imagenet"),
        ("--data_path '${DATA_PATH}/train' --log_dir '$OUT' --lr $LR --amp '${PY_ARGS}'", "--data_path data/train --log_dir out --amp"),
        ("--pretrained '[your checkpoint path]/[best file].pth.tar' --name '<model-name>'", "--pretrained checkpoint/best_file.pth.tar"),
        ("--data 'your data'", "--data data"),
        ("--data /path/to/data --dist-url 'tcp://[first node]:[port]'", "--data /path/to/data"),
        ("seed=SEED benchmark_name=BENCHMARK policy=POLICY lifelong=ALGO", ""),
        ("--task_id TASK_ID --algo ALGO_NAME --save_dir SAVE_DIR --cpu", "--save_dir save --cpu"),
        ("--model MLP --dataset METRLA --data data=DATA", "--model MLP --dataset METRLA --data data=DATA"),
        ("--cuda --dataset=dataset --lr=lr --batch_size batch_size --data_path=../sets/", "--cuda --data_path=../sets/"),
    ],
)  # fmt: skip
def test_what_stands_for_something_of_the_readers_is_never_part_of_a_command_to_type(typed, concrete_words):
    assert shlex.join(concrete(shlex.split(typed))) == concrete_words


def test_a_config_that_lies_elsewhere_than_the_document_says_is_taken_from_there(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "qm9_default.yml").write_text("width: 4\n")
    (tmp_path / "README.md").write_text("```sh\npython train.py ./config/qm9_default.yml\n```\n")
    assert leading(tmp_path) == ["train.py configs/qm9_default.yml"]


def test_words_behind_a_switch_or_in_brackets_stay_apart(tmp_path, monkeypatch):
    adds = ("'--multi', action='store_true'", "'--size'", "'data'")
    project(tmp_path, model=MODEL, train="".join(f"parser.add_argument({each})\n" for each in adds) + TRAIN)
    (tmp_path / "README.md").write_text("```\npython train.py --multi --size 1 [your folder with images]\n```\n")
    monkeypatch.chdir(tmp_path)
    typed = likeliest_command(tmp_path / "model.py", tmp_path, keep=False)
    assert typed == "memlint run --fake-data train.py --multi --size 1 images"


def test_paths_that_a_script_requires_are_given(tmp_path):
    options = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-c", "--code-path", type=str, required=True)
parser.add_argument("--out", required=True, help="a folder")
parser.add_argument("--classes", type=int, required=True)
parser.add_argument("--lr", type=float, default=0.1)
"""
    project(tmp_path, model=MODEL, train=f"{options}{TRAIN}")
    (tmp_path / "README.md").write_text("```\npython train.py --out results\n```\n")
    assert leading(tmp_path) == ["train.py --out results -c c"]


def test_a_shell_script_hands_on_the_arguments_that_a_document_gives_it(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/train.sh").write_text('torchrun \\\n  --nnodes=$nnodes \\\n  train.py --amp "$@"\n')
    (tmp_path / "README.md").write_text("```\nbash scripts/train.sh --data /path/to/data --size 384\n```\n")
    assert leading(tmp_path)[0] == "train.py --amp --data /path/to/data --size 384"
    (tmp_path / "scripts/train.sh").write_text("if [[ $1 == 'train' ]]; then\n    python train.py --amp ${@:2}\nfi\n")
    (tmp_path / "README.md").write_text("```\nbash scripts/train.sh train --size 384\n```\n")
    assert leading(tmp_path)[0] == "train.py --amp --size 384"


@pytest.mark.parametrize(
    ("argument", "stands"),
    [("forecast", False), ("ECL", False), ("COCO", False), ("DATA", True), ("EXP_NAME", True), ("/path/to/x", True)],
)
def test_a_word_stands_for_something_only_if_it_says_so(argument, stands):
    assert is_placeholder(argument) is stands


def test_shell_scripts_that_a_document_runs_come_before_others_with_what_they_compute(tmp_path):
    project(tmp_path, train=TRAIN, **{"a.sh": "python train.py --batch 1024\n"})
    lines = [
        "DATA=${1}",
        "each=96",
        "length=$[7*$each]",
        "python train.py --data ${DATA}/x --batch 128 --length $length",
    ]
    (tmp_path / "b.sh").write_text("\n".join(lines))
    (tmp_path / "c.sh").write_text("python train.py --batch 8\n")
    (tmp_path / "README.md").write_text("```\nbash c.sh\nbash b.sh ${DATAPATH}\n```\n")
    assert [" ".join(words[1:]) for words in commands_in(tmp_path)] == [
        "--batch 8",
        "--data datapath/x --batch 128 --length 672",
        "--batch 1024",
        "--data ${DATA}/x --batch 128 --length 672",
    ]


@pytest.mark.parametrize("computed", ["`echo ${num} | awk '{print $1}'`", "$(nproc)"])
def test_what_a_shell_computes_is_no_value_of_an_argument(tmp_path, monkeypatch, computed):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "train.sh").write_text(f"num={computed}\npython train.py --workers ${{num}} --amp\n")
    monkeypatch.chdir(tmp_path)
    assert likeliest_command(tmp_path / "model.py", tmp_path, keep=False) == "memlint run --fake-data train.py --amp"


def test_a_script_that_only_evaluates_comes_after_one_that_trains_whatever_it_names(tmp_path):
    shows = f"""
    import torch
    from model import Net

    def main():
        model = Net(args.pretrained).eval()
        with torch.no_grad():
            model(image)
    {MAIN}
    """
    delegates = f"from model import Net\nfrom engine import train\n\ndef main():\n    train(Net())\n{MAIN}"
    project(tmp_path, model=MODEL, custom=shows, tools=delegates)
    (tmp_path / "README.md").write_text("```\npython custom.py --arch Net\npython tools.py --cfg a.yaml\n```\n")
    assert leading(tmp_path) == ["tools.py --cfg a.yaml", "custom.py --arch Net"]


def test_what_a_script_is_told_to_do_decides_whether_it_trains(tmp_path):
    project(tmp_path, model=MODEL, main=TRAIN)
    text = (
        "```\npython main.py eval_model mini --weights w.pt\npython main.py train mini\n```\nSee `python main.py -h`.\n"
    )
    (tmp_path / "README.md").write_text(text)
    assert leading(tmp_path) == ["main.py train mini", "main.py eval_model mini --weights w.pt"]


def test_a_table_of_the_project_says_under_which_choice_a_script_has_the_model(tmp_path):
    train = """
        import argparse
        from net import table
        parser = argparse.ArgumentParser()
        parser.add_argument("--model", default="small", choices=["small", "broad"])
        parser.add_argument("--backbone", default="a")
        parser.add_argument("--lr")
        table.MODELS[parser.parse_args().model]().loss().backward()
        if __name__ == "__main__":
            pass
    """
    classes = "import torch\n\nclass {0}(torch.nn.Module):\n    pass\n\ndef get_{0}():\n    return {0}()\n".format
    table = "from net.small import get_Small\nfrom net.wide import get_Wide\nMODELS = {'small': get_Small, 'broad': get_Wide}\n"
    project(tmp_path, train=train, net__small=classes("Small"), net__wide=classes("Wide"), net__table=table)
    (tmp_path / "README.md").write_text("```sh\npython train.py --model small --backbone b --lr 1\n```\n")
    assert leading(tmp_path, "net/wide.py")[0] == "train.py --lr 1 --model broad"
    assert leading(tmp_path, "net/small.py")[0] == "train.py --model small --backbone b --lr 1"


def test_a_training_script_that_may_build_the_model_comes_before_another_that_surely_does(tmp_path):
    chosen = "import importlib, sys\nimportlib.import_module(sys.argv[1]).Net().loss().backward()\n"
    project(tmp_path, model=MODEL, train=f"{chosen}{MAIN}", convert=f"from model import Net\n{MAIN}")
    (tmp_path / "README.md").write_text("```sh\npython convert.py\n```\n")
    assert leading(tmp_path) == ["train.py", "convert.py"]


def test_a_script_in_a_folder_of_tests_leads_to_nothing_but_the_tests(tmp_path):
    project(tmp_path, model=MODEL, tests__run_it=TRAIN, tests__model=MODEL)
    assert leading(tmp_path) == []
    assert leading(tmp_path, "tests/model.py") != []


def test_the_key_of_a_table_that_has_the_files_model_is_chosen_before_other_texts_with_one_of_its_names(tmp_path):
    model = "from torch import nn\nclass average(nn.Module): ...\nclass Model(nn.Module): ...\n"
    looks_up = LOOKS_UP.replace("Small, Wide", "linear").replace('"Small": Small, "Wide": Wide', '"linear": linear')
    project(tmp_path, train=looks_up, net__linear=model, layers="__all__ = ['average']\nclass average: ...\n")
    assert leading(tmp_path, "net/linear.py")[0] == "train.py --model linear"


def test_an_option_is_not_the_name_of_the_file(tmp_path):
    options = "".join(f"parser.add_argument('--{name}')\n" for name in ("lr", "model"))
    project(tmp_path, model=MODEL, train=f"{options}{TRAIN}")
    (tmp_path / "README.md").write_text("```sh\npython train.py --lr 1\npython train.py --model other\n```\n")
    assert leading(tmp_path)[0] == "train.py --lr 1"


@pytest.mark.parametrize(
    ("added", "arguments"),
    [
        ("'--task', choices=['m4', 'dummy'], required=True", " --task dummy"),
        ("'--task', choices=('long', 'short'), required=True", " --task long"),
        ("'--task', choices=['m4', 'dummy'], default='m4'", ""),
    ],
)
def test_a_choice_that_a_script_requires_is_given_best_one_without_data(tmp_path, added, arguments):
    project(tmp_path, model=MODEL, train=f"parser.add_argument({added})\n{TRAIN}")
    assert leading(tmp_path) == [f"train.py{arguments}"]


def test_a_training_comes_before_one_that_goes_on_with_its_weights(tmp_path):
    readme = "```\npython run_finetuning.py --lr 1\npython run_pretraining.py --lr 2\n```\n"
    project(tmp_path, model=MODEL, run_finetuning=TRAIN, run_pretraining=TRAIN, **{"README.md": readme})
    assert leading(tmp_path) == ["run_pretraining.py --lr 2", "run_finetuning.py --lr 1"]


def test_an_option_may_say_its_default_in_its_help():
    text = (
        "parser.add_argument('--model', default='net_small', type=str,\n    help='Name of it (default: %(default)s)')\n"
    )
    assert model_option(text)[::2] == ("--model", "net_small")


def test_a_placeholder_in_a_folder_of_configs_is_the_first_of_them(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    for name in ("b.yml", "a.yml"):
        (tmp_path / "configs/train").mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs/train" / name).write_text("width: 3\n")
    (tmp_path / "README.md").write_text("```sh\npython train.py ./configs/train/<config-name>\n```\n")
    assert leading(tmp_path) == ["train.py configs/train/a.yml"]


def test_a_config_that_stands_in_brackets_is_the_only_one_of_the_project(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "default.yaml").write_text("width: 3\n")
    (tmp_path / "README.md").write_text("```sh\npython train.py -c [config yaml]\n```\n")
    assert leading(tmp_path) == ["train.py -c config/default.yaml"]


def test_a_validation_comes_after_training_and_a_cross_validation_is_one(tmp_path):
    readme = (
        "```\npython coco_validation.py --path a\npython train.py --lr 1\npython cross_validation.py --folds 5\n```\n"
    )
    project(tmp_path, model=MODEL, train=TRAIN, coco_validation=TRAIN, cross_validation=TRAIN, **{"README.md": readme})
    assert [each.split()[0] for each in leading(tmp_path)] == ["train.py", "cross_validation.py", "coco_validation.py"]


def test_of_scripts_that_choose_a_model_the_one_whose_own_it_is_comes_first(tmp_path):
    find = "parser.add_argument('--model', default='{}')\nimport importlib\nimportlib.import_module(args.model)\n"
    text = TRAIN.replace("from model import Net", "Net = None")
    scripts = {"train_cls": find.format("cls_net") + text, "train_seg": find.format("seg_net") + text}
    readme = "```\npython train_cls.py --model cls_net\npython train_seg.py --model large_seg_net\n```\n"
    project(tmp_path, seg_net=MODEL, cls_net=MODEL, **scripts, **{"README.md": readme})
    assert leading(tmp_path, "seg_net.py")[0] == "train_seg.py --model seg_net"


def test_code_of_html_in_a_document_is_typed_as_it_is_shown(tmp_path):
    text = (
        "Train it:\n<pre><code>CUDA_VISIBLE_DEVICES=0 python train.py \\\n  -n run \\\n  -c a&amp;b.yaml</code></pre>\n"
    )
    folder = project(tmp_path, train=TRAIN, **{"README.md": text + "<pre>\npython train.py -f\n</pre>\n"})
    assert commands_in(folder) == [("train.py", "-n", "run", "-c", "a&b.yaml"), ("train.py", "-f")]


def test_a_config_with_the_key_of_the_branch_that_builds_the_model_takes_the_place_of_another(tmp_path):
    build = """
        from first import Net as First
        from second import Second

        def build(kind):
            if kind == 'net':
                model = First()
            elif kind == 'netv2':
                model = Second()
            return model
    """
    configs = {
        "configs/masked/masked_netv2.yaml": "MODEL:\n  TYPE: netv2\n",
        "configs/net/base.yaml": "MODEL:\n  TYPE: net\n",
        "configs/netv2/base.yaml": "MODEL:\n  TYPE: netv2  \n",
    }
    train = TRAIN.replace("from model", "import yacs\nfrom build import build\nfrom first")
    second = MODEL.replace("Net", "Second")
    readme = "```\npython main.py --cfg configs/net/base.yaml\npython main_masked.py --cfg configs/net/base.yaml\n```\n"
    scripts = {"first": MODEL, "second": second, "build": build, "main": train, "main_masked": train}
    project(tmp_path, **scripts, **configs, **{"README.md": readme})
    found = leading(tmp_path, "second.py")
    assert found[0] == "main.py --cfg configs/netv2/base.yaml"
    assert "main_masked.py --cfg configs/masked/masked_netv2.yaml" in found


def test_a_config_that_names_the_module_by_its_folders_is_one_of_the_file(tmp_path):
    script = "import yaml, importlib, sys\nimportlib.import_module('models.' + sys.argv[1])\n" + TRAIN.replace(
        "from model import Net", "Net = None"
    )
    of_other = {"configs/other.yaml": "model: unet.large\n", "configs/own.yaml": "model: unet.small\n"}
    readme = "```\npython train.py -c configs/other.yaml\npython train.py -c configs/own.yaml\n```\n"
    folder = project(tmp_path, train=script, models__unet__small__model=MODEL, **of_other, **{"README.md": readme})
    assert leading(folder, "models/unet/small/model.py")[0] == "train.py -c configs/own.yaml"


def test_a_fence_of_one_line_opens_nothing_and_a_list_is_no_placeholder(tmp_path):
    project(tmp_path, train=TRAIN)
    typed = "python train.py --factors [1,4,10] data=[a,b]"
    (tmp_path / "README.md").write_text(
        f"```{typed}```\n\nthen python train.py --prose 1\n\n```\npython train.py --last\n```\n"
    )
    assert commands_in(tmp_path) == [("train.py", "--factors", "[1,4,10]", "data=[a,b]"), ("train.py", "--last")]
    assert concrete(("--factors", "[1,4,10]", "data=[a,b]")) == ("--factors", "[1,4,10]", "data=[a,b]")


def test_a_place_that_nobody_types_has_the_name_that_the_script_gives_it(tmp_path):
    adds = ("'path', metavar='PATH', type=str", "'more', nargs='*'", "'--lr'")
    project(tmp_path, model=MODEL, train="".join(f"parser.add_argument({each})\n" for each in adds) + TRAIN)
    assert leading(tmp_path) == ["train.py path"]
    (tmp_path / "README.md").write_text("# Net\n\nTrain:\n\n> python train.py PATH\n")
    assert leading(tmp_path) == ["train.py PATH"]


def test_a_script_that_is_named_after_the_model_comes_first(tmp_path):
    project(tmp_path, model=MODEL.replace("Net", "Vae"), train_gan=TRAIN, train_vae=TRAIN)
    assert leading(tmp_path) == ["train_vae.py", "train_gan.py"]


def test_a_package_that_is_run_lies_in_a_folder_of_sources_and_each_place_that_needs_a_word_gets_one(tmp_path):
    added = "".join(f"parser.add_argument({each})\n" for each in ("'out'", "'data', nargs='+'", "'more', nargs='*'"))
    project(tmp_path, src__boxes__model=MODEL)
    (tmp_path / "src" / "boxes" / "__main__.py").write_text(added + TRAIN.replace("from model", "from boxes.model"))
    assert leading(tmp_path, "src/boxes/model.py") == ["__main__.py out data"]
    (tmp_path / "README.md").write_text("    python -m boxes /path/to/out /path/to/data\n")
    assert commands_in(tmp_path) == [("boxes", "/path/to/out", "/path/to/data")]


def test_a_template_of_a_config_has_the_name_of_the_one_that_the_document_speaks_of(tmp_path):
    train = f"import os, yaml\nyaml.load(os.path.join('configs', args.config))\n{TRAIN}"
    project(tmp_path, model=MODEL, train=train, **{f"configs/{name}.yml": "lr: 1\n" for name in ("bedroom", "cifar10")})
    readme = tmp_path / "README.md"
    readme.write_text(
        "Trained on CIFAR10.\n```\npython train.py --config {DATASET}.yml --exp {PROJECT_PATH} --ni\n```\n"
    )
    assert leading(tmp_path) == ["train.py --config cifar10.yml --exp {PROJECT_PATH} --ni"]
    assert concrete(["--exp", "{PROJECT}", "--ode", '{"nfe": 50}']) == ("--ode", '{"nfe": 50}')
    readme.write_text("```\npython train.py --config configs/<dataset>.yml\n```\n")
    assert leading(tmp_path) == ["train.py --config configs/bedroom.yml"]


def test_in_place_of_a_config_that_is_no_longer_there_stands_one_that_begins_with_its_name(tmp_path):
    configs = dict.fromkeys(["config/sr_16_128.json", "config/sr_64_512.json", "config/sample.json"], "{}")
    project(tmp_path, model=MODEL, train=TRAIN, **configs)
    (tmp_path / "README.md").write_text("```\npython train.py -p train -c config/sr.json\n```\n")
    assert leading(tmp_path) == ["train.py -p train -c config/sr_16_128.json"]
    (tmp_path / "config" / "sr.json").write_text("{}")
    assert leading(tmp_path) == ["train.py -p train -c config/sr.json"]


def test_in_place_of_a_config_that_is_nowhere_stands_one_that_names_the_class(tmp_path):
    configs = {"configs/a.yaml": "model: Other\n", "configs/b.yaml": "model: Net\n"}
    project(tmp_path, model=MODEL, train=TRAIN, **configs)
    (tmp_path / "README.md").write_text("```\npython train.py --cfg configs/CONFIG_FILE.yaml\n```\n")
    assert leading(tmp_path) == ["train.py --cfg configs/b.yaml"]


def test_a_config_that_is_typed_in_other_letters_than_its_name_has_is_that_one(tmp_path):
    configs = dict.fromkeys(["options/train_X2.yml", "options/train_X4.yml", "options/train_X4_large.yml"], "a: 1\n")
    project(tmp_path, model=MODEL, train=TRAIN, **configs)
    (tmp_path / "README.md").write_text("```\npython train.py -opt options/train_x4.yml\n```\n")
    assert leading(tmp_path) == ["train.py -opt options/train_X4.yml"]


def test_a_script_that_calculates_a_metric_comes_after_training_though_it_names_the_model(tmp_path):
    project(tmp_path, model=MODEL, main=TRAIN, calculate_psnr=f"from model import Net\n{MAIN}")
    (tmp_path / "README.md").write_text("```\npython calculate_psnr.py --model_name Net\npython main.py\n```\n")
    assert leading(tmp_path) == ["main.py", "calculate_psnr.py --model_name Net"]


def test_a_demonstration_comes_after_the_training_of_a_shell_script(tmp_path):
    scripts = {"scripts/evaluate.sh": "python main.py --val kitti\n", "scripts/train.sh": "python main.py --batch 16\n"}
    project(tmp_path, model=MODEL, main=TRAIN, **scripts)
    (tmp_path / "README.md").write_text("```\npython main.py --inference_dir demo --resume a.pth\n```\n")
    assert leading(tmp_path) == ["main.py --batch 16", "main.py --inference_dir demo --resume a.pth"]


def test_a_shell_script_is_read_without_its_comments_and_whichever_way_its_lines_end(tmp_path):
    project(tmp_path, model=MODEL, train=TRAIN)
    text = "# accelerate launch train.py \\\r\n#   ...\r\npython train.py \\\r\n--batch 16 \\\r\n--lr 1\r\n"
    (tmp_path / "train.sh").write_text(text, newline="")
    assert leading(tmp_path) == ["train.py --batch 16 --lr 1"]


def test_a_script_that_a_document_types_does_something_whatever_its_text_says(tmp_path):
    script = "from model import Net\nParser = object\nfor epoch in range(Net.epochs):\n    Net.learn(epoch)\n"
    project(tmp_path, model=MODEL, scripts__learn=script, other=script)
    (tmp_path / "README.md").write_text("```\npython scripts/learn.py --dataset a\n```\n")
    assert leading(tmp_path) == ["learn.py --dataset a"]


def test_an_option_that_a_script_requires_is_given_where_the_document_has_a_template(tmp_path):
    project(tmp_path, model=MODEL, train=f"p.add_argument('--doc', type=str, required=True)\n{TRAIN}")
    (tmp_path / "README.md").write_text("```\npython train.py --doc {MODEL_NAME} --ni\n```\n")
    found = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert [concrete(each.command.arguments) for each in found] == [("--ni", "--doc", "doc")]


def test_a_shell_script_is_read_with_the_arguments_and_along_the_branches_that_a_document_gives_it(tmp_path):
    project(tmp_path, train=TRAIN, model=MODEL, **{"a.yaml": "size: 1\n", "b.yaml": "size: 2\n"})
    script = """
        CONFIG=$1
        kind="short"
        if [ "$kind" = "short" ]; then
            words="--length=1024"
        fi
        if [ "$kind" = "long" ]; then
            words="--length=4096"
        else
            words="$words --steps=10"
        fi
        accelerate launch --num_machines $N --mixed_precision ${PRECISION:-bf16} train.py --config $CONFIG $words
    """
    project(tmp_path, **{"run.sh": script, "docs.md": "```\nbash run.sh b.yaml\n```\n"})
    found = next(typed_commands(ProjectFiles(tmp_path, tmp_path / "x.py")))
    assert found.arguments == ("--config", "b.yaml", "--length=1024", "--steps=10")
    assert found.precision == "bf16"
    assert "accelerate launch --mixed_precision bf16 train.py" in likeliest_command(tmp_path / "model.py", tmp_path)


def test_a_script_that_puts_a_model_into_evaluation_and_speaks_of_no_training_does_not_train(tmp_path):
    shows = f"from model import Net\n\ndef main():\n    print(Net().eval().infer(args.image))\n{MAIN}"
    delegates = f"from model import Net\nfrom engine import train\n\ndef main():\n    train(Net())\n{MAIN}"
    project(
        tmp_path,
        model=MODEL,
        run=shows,
        tools=delegates,
        **{"README.md": "```\npython run.py --net Net\npython tools.py\n```\n"},
    )
    found = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert [(each.command.script.name, each.trains) for each in found] == [("tools.py", True), ("run.py", False)]


def test_the_name_of_the_project_tells_none_of_its_scripts_from_the_others(tmp_path):
    text = "# Nets\n\n```\npython train.py --size 64\npython train_net_lora.py --from lab/net-base\n```\n"
    folder = project(tmp_path / "net-alpha", net=MODEL, train=TRAIN.replace("model", "net"), **{"README.md": text})
    project(folder, train_net_lora=TRAIN.replace("model", "net"))
    assert leading(folder, "net.py") == ["train.py --size 64", "train_net_lora.py --from lab/net-base"]


def test_a_default_that_is_no_number_of_its_type_stays_a_text(tmp_path):
    added = (
        "parser.add_argument('--steps', type=int, default='')\nparser.add_argument('--lr', type=float, default='1')\n"
    )
    run = {"README.md": "```\nbash run.sh\n```\n", "run.sh": "python train.py --steps 3\n"}
    project(tmp_path, model=MODEL, train=f"import argparse\nparser = argparse.ArgumentParser()\n{added}{TRAIN}", **run)
    assert leading(tmp_path) == ["train.py --steps 3"]


def test_a_launcher_of_the_project_starts_the_script_that_it_is_given_and_keeps_its_own_options(tmp_path):
    submit = 'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--nodes")\n'
    typed = "python -m tools.submit train.py \\\n --nodes 4 --out <PATH/TO/OUT> data.path=Images:root=<PATH/TO/DATA>"
    files = {"README.md": f"```\n{typed}\n```\n", "tools/submit.py": submit}
    project(tmp_path, model=MODEL, train=f'parser.add_argument("--out")\n{TRAIN}', **files)
    assert leading(tmp_path)[0] == "train.py --out <PATH/TO/OUT> data.path=Images:root=<PATH/TO/DATA>"


def test_a_config_that_names_a_function_which_gives_the_model_leads_to_it(tmp_path):
    model = f"{MODEL}\ndef Net_XL():\n    return Net()\n"
    train = "import hydra\n\ndef main():\n    hydra.utils.instantiate(cfg).fit()\n" + MAIN
    files = {"conf/base.yaml": "_target_: build\narch: Net_XL\n", "README.md": "```\ncomposer train.py --x 1\n```\n"}
    project(tmp_path, model=model, train=train, **files)
    assert leading(tmp_path) == ["train.py --x 1"]


def test_a_script_that_speaks_of_no_training_does_not_train(tmp_path):
    shows = f"from model import Net\n\ndef main():\n    print(Net().infer(args.image))\n{MAIN}"
    config = {"conf.yaml": "net: !new:model.Net\n", "README.md": "```\npython example.py\n```\n"}
    train = f"from hyperpyyaml import load\n\ndef main():\n    load(args.config).loss.backward()\n{MAIN}"
    project(tmp_path, model=MODEL, example=shows, bin__train=train, **config)
    found = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert [(each.command.script.name, each.trains) for each in found] == [("train.py", True), ("example.py", False)]


def test_variables_of_a_document_have_the_values_that_it_gave_them_last(tmp_path):
    readme = """
        ```sh
        MODEL_FLAGS="--depth 2 --width 8"
        export DATA=/data/a

        python -m torch.distributed.launch --nproc_per_node=$N train.py --data $DATA $MODEL_FLAGS
        ```
        ```sh
        MODEL_FLAGS='--depth 4'
        python train.py $MODEL_FLAGS $REST
        ```
    """
    project(tmp_path, train=TRAIN, **{"README.md": readme})
    assert commands_in(tmp_path) == [
        ("train.py", "--data", "/data/a", "--depth", "2", "--width", "8"),
        ("train.py", "--depth", "4", "$REST"),
    ]


def test_what_is_added_to_a_variable_is_part_of_it_and_a_variable_may_hold_the_command(tmp_path):
    project(tmp_path, train=TRAIN)
    script = """
        ARGS="--width 64"
        ARGS+=" --batch 16"
        CMD="python train.py $ARGS"
        eval $CMD
        ${CMD} --again
    """
    (tmp_path / "run.sh").write_text(dedent(script))
    words = ("train.py", "--width", "64", "--batch", "16")
    assert commands_in(tmp_path) == [words, (*words, "--again")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project.scripts]\nnet-tool = "net.cli:main"\n'),
        ("pyproject.toml", '[tool.poetry.scripts]\nnet-tool = "net.cli:main"\n'),
        ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n    net-tool = net.cli:main\n"),
        ("setup.py", "setup(entry_points={'console_scripts': ['net-tool=net.cli:main']})\n"),
    ],
)
def test_a_command_that_the_project_declares_is_one_with_the_verb_that_trains_first(tmp_path, name, text):
    readme = "`net-tool`\n\n```\nuv run net-tool predict --x\npip install net-tool -U\nA=1 net-tool train n/s/m/l.yaml\n```\n"
    project(tmp_path, src__net__cli="from net.model import Net\n\ndef main():\n    Net()\n", src__net__model=MODEL)
    (tmp_path / "src/net/__init__.py").touch()
    project(tmp_path, **{"README.md": readme, name: text})
    found = LeadingScripts(tmp_path / "src/net/model.py", tmp_path, keep=False).commands
    assert [(each.command.start, each.command.arguments, each.trains) for each in found] == [
        (("net-tool",), ("train", "n.yaml"), True),
        (("net-tool",), ("predict", "--x"), False),
    ]
    assert {each.command.module for each in found} == {"net.cli:main"}
    assert likeliest_command(tmp_path / "src/net/model.py", tmp_path, keep=False).endswith("run net-tool train n.yaml")
    assert training_command(tmp_path).endswith("memlint run net-tool train n.yaml")


def test_a_part_of_a_value_that_stands_for_a_place_is_one_and_the_value_of_a_setting_keeps_its_name(tmp_path):
    typed = ["data.path=Images:split=A:root=<PATH/TO/IMAGES>", "out_dir=$HOME/runs", "dataset=**", "lr=$LR"]
    assert concrete(typed) == ("data.path=Images:split=A:root=images", "out_dir=home/runs")


def test_a_hydra_script_whose_configs_name_an_agent_that_imports_the_file_leads_to_it(tmp_path):
    run = "import hydra\n\n@hydra.main(config_path='conf')\ndef main(cfg):\n    hydra.utils.get_class(cfg._target_)\n"
    files = {"conf/base.yaml": "_target_: agents.fit.Trainer\n", "conf/other.yaml": "_target_: agents.show.Viewer\n"}
    project(tmp_path, model=MODEL, run=f"{run}{MAIN}", agents__fit="import model\n", agents__show="", **files)
    project(tmp_path, prepare=f"import yaml, importlib\nimportlib.import_module(yaml.x).fit()\n{MAIN}")
    assert leading(tmp_path)[0] == "run.py"
    (tmp_path / "conf/base.yaml").unlink()
    assert "run.py" not in leading(tmp_path)


def test_a_runner_is_told_what_to_do_by_the_first_part_of_a_word(tmp_path):
    launch = f"import model\nimport lib\n{MAIN}"
    text = "```\npython launch.py infer.net --x 1\npython launch.py train.net --x 1\n```\n"
    project(tmp_path, model=MODEL, launch=launch, **{"README.md": text})
    assert leading(tmp_path) == ["launch.py train.net --x 1", "launch.py infer.net --x 1"]


def test_a_setting_that_names_the_task_says_whether_it_trains(tmp_path):
    text = "```\npython train.py task=inference x=1\npython train.py task=train x=1\n```\n"
    project(tmp_path, model=MODEL, train=TRAIN, **{"README.md": text})
    assert leading(tmp_path) == ["train.py task=train x=1", "train.py task=inference x=1"]


def test_what_runs_a_benchmark_with_settings_of_training_trains(tmp_path):
    text = "```\npython run_benchmark.py a\npython run_benchmark.py a --settings '{\"lr\": 1}'\n```\n"
    runs = f"import importlib\nimportlib.import_module(name).fit()\n{MAIN}"
    project(tmp_path, model=MODEL, run_benchmark=runs, **{"README.md": text})
    assert leading(tmp_path) == ['run_benchmark.py a --settings {"lr": 1}', "run_benchmark.py a"]


def test_a_word_in_capitals_for_a_number_leaves_its_option_out(tmp_path):
    text = "```\npython train.py --gpus NUM_OF_GPUS --name RUN --lr=LR --epochs 3\n```\n"
    options = "".join(f"p.add_argument('--{each}', type=int)\n" for each in ("gpus", "lr", "epochs"))
    train = f"{TRAIN}\nimport argparse\np = argparse.ArgumentParser()\n{options}p.add_argument('--name')\n"
    project(tmp_path, model=MODEL, train=train, **{"README.md": text})
    assert leading(tmp_path) == ["train.py --name RUN --epochs 3"]


def test_what_an_imported_parser_requires_is_given(tmp_path):
    text = "```\npython train.py -c base.json -m [run_name]\n```\n"
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('-c')\n"
    options += "p.add_argument('-m', '--model', type=str, required=True)\n"
    train = f"from tools import options\n{TRAIN}"
    project(tmp_path, model=MODEL, train=train, tools__options=options, **{"README.md": text, "base.json": "{}"})
    (found,) = LeadingScripts(tmp_path / "model.py", tmp_path, keep=False).commands
    assert concrete(found.command.arguments) == ("-c", "base.json", "-m", "m")


def test_what_a_document_types_comes_before_a_script_with_the_name_of_training(tmp_path):
    readme = "```\npython ddpm.py\n```\n"
    project(tmp_path, model=MODEL, ddpm=TRAIN, train_quickly=TRAIN, **{"README.md": readme})
    assert leading(tmp_path) == ["ddpm.py", "train_quickly.py"]


def test_a_script_that_surely_evaluates_it_comes_before_the_third_that_only_may_train_it(tmp_path):
    may = f"import importlib\nimportlib.import_module(name).fit()\n{MAIN}"
    project(tmp_path, model=MODEL, train_a=may, train_b=may, train_c=may, export=f"import model\n{MAIN}")
    assert leading(tmp_path) == ["train_a.py", "train_b.py", "export.py", "train_c.py"]


def test_a_config_that_is_typed_with_the_other_ending_of_yaml_is_that_one(tmp_path):
    text = "```\npython train.py --config conf/a_1k.yml\n```\n"
    project(tmp_path, model=MODEL, train=TRAIN, **{"README.md": text, "conf/a_1k.yaml": "x: 1\n"})
    assert leading(tmp_path) == ["train.py --config conf/a_1k.yaml"]


def test_an_address_with_the_name_of_the_class_in_a_config_names_no_class(tmp_path):
    run = "import hydra\n\n@hydra.main(config_path='conf')\ndef main(cfg):\n    import_module(cfg.x).fit()\n"
    files = {"conf/parts/mock.yaml": "url: https://host/lab/Net/a.zip\n"}
    project(tmp_path, model=MODEL, train=f"import model\n{run}{MAIN}", **files)
    assert leading(tmp_path) == ["train.py"]


def test_an_option_that_the_script_has_under_a_shorter_name_is_that_one(tmp_path):
    options = "parser.add_argument('--drop', type=float)\nparser.add_argument('--drop-path', type=float)\n"
    text = "```\npython train.py --drop-path-rate 0.2 --other-rate 1\n```\n"
    project(tmp_path, model=MODEL, train=f"{options}parser.parse_known_args()\n{TRAIN}", **{"README.md": text})
    assert leading(tmp_path) == ["train.py --drop-path 0.2 --other-rate 1"]


def test_lists_and_sums_of_a_shell_script_are_read(tmp_path):
    script = (
        "dirs=()\nwidth=0\nif [[ ${kind} == *slow* ]]; then\n  dirs+=(a/slow)\n  (( width += 2304 ))  # a sum\nfi\n"
        "dirs+=(a/clip)\n(( width += 512 ))\npython train.py --dirs ${dirs[@]} --width ${width}\n"
    )
    project(tmp_path, model=MODEL, train=TRAIN, **{"train.sh": script, "README.md": "```\nbash train.sh\n```\n"})
    assert leading(tmp_path) == ["train.py --dirs a/slow a/clip --width 2816"]


def test_one_of_several_that_a_document_lists_with_blanks_is_taken(tmp_path):
    options = "parser.add_argument('--model')\nparser.add_argument('--task')\n"
    text = "```\npython train.py --task={E1, E2, E3} --model={gnn, res_cnn}\n```\n"
    project(tmp_path, model=MODEL, train=f"{options}parser.parse_known_args()\n{TRAIN}", **{"README.md": text})
    assert leading(tmp_path) == ["train.py --task=E1 --model=gnn"]


def test_a_list_of_several_lines_is_read(tmp_path):
    script = (
        "header='torchrun train.py'\noptions=(\n    --width 64\n    # what the (small) model has\n"
        '    --rate "${RATE:-1e-3}"  # as the paper\n    --bf16\n    $@\n)\noptions+=(--depth)\noptions+=(2)\n'
        "$header ${options[@]}\n"
    )
    project(tmp_path, model=MODEL, train=TRAIN, **{"train.sh": script, "README.md": "```\nbash train.sh\n```\n"})
    assert leading(tmp_path) == ["train.py --width 64 --rate 1e-3 --bf16 --depth 2"]


def test_a_shell_script_that_has_moved_is_the_only_one_of_its_name(tmp_path):
    scripts = {f"scripts/{name}/{name}.sh": f"python train.py --data {name}\n" for name in ("a", "weather")}
    text = "```\nsh scripts/long/weather/weather.sh\n```\n"
    project(tmp_path, model=MODEL, train=TRAIN, **scripts, **{"README.md": text})
    assert leading(tmp_path)[0] == "train.py --data weather"


def test_a_branch_on_a_device_is_no_table_of_models(tmp_path):
    text = "```\npython train.py\n```\n"
    options = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--model_name', type=str, default='mine')\n"
    other = "def load(device):\n    if str(device) == 'cpu':\n        model.float()\n"
    project(tmp_path, model=MODEL, train=options + TRAIN, other=other, **{"README.md": text})
    assert leading(tmp_path) == ["train.py"]


def test_a_config_in_python_that_imports_the_file_leads_to_it(tmp_path):
    text = "```\npython run.py --cfg=other.py\npython run.py --cfg=mine.py\n```\n"
    run = f"import sys\nfrom runner import train\n{MAIN}    train(sys.argv[1])\n"
    project(tmp_path, model=MODEL, run=run, other="A = 1\n", mine="from model import Net\n", **{"README.md": text})
    assert leading(tmp_path) == ["run.py --cfg=mine.py"]


def test_a_config_in_python_is_an_argument_of_the_script(tmp_path):
    text = "```\npython train.py conf/a.py conf/b.py --x 1\n```\n"
    project(tmp_path, model=MODEL, train=TRAIN, conf__a="lr = 1\n", conf__b="x = 1\n", **{"README.md": text})
    assert leading(tmp_path) == ["train.py conf/a.py conf/b.py --x 1"]


@pytest.mark.parametrize("suffix", ["yaml", "py"])
def test_a_config_that_names_what_the_file_defines_takes_the_place_of_another(tmp_path, suffix):
    text = f"```\npython train.py --config configs/one/first.{suffix} --lr 1\n```\n"
    others = {f"configs/one/first.{suffix}": "model = 'Other'\n", f"configs/two/segnet.{suffix}": "model = 'SegNet'\n"}
    train = f"import importlib\nimport yaml\nimportlib.import_module(name).fit()\n{MAIN}"
    project(tmp_path, segnet=MODEL.replace("Net(", "SegNet("), train=train, **{"README.md": text}, **others)
    typed, own = (f"train.py --config configs/{each}.{suffix} --lr 1" for each in ("one/first", "two/segnet"))
    assert leading(tmp_path, "segnet.py") == [own, typed]


def test_a_required_config_is_one_that_the_document_names(tmp_path):
    added = "parser.add_argument('--cfg', required=True, type=str)\n"
    text = "Run `bash run.sh -t train --cfg conf/net.yaml`.\n"
    run = {"README.md": text, "run.sh": "python train.py ${EXTRA_ARGS}\n"}
    project(tmp_path, model=MODEL, train=f"{added}{TRAIN}", **run, **{"conf/net.yaml": "lr: 1\n"})
    assert leading(tmp_path)[0] == "train.py ${EXTRA_ARGS} --cfg conf/net.yaml"
