"""Scripts and model files that were written for packages of another time, as the commands take them."""

from __future__ import annotations

from textwrap import dedent
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.memory.records import Category
from memlint.workloads.older_versions.former_transformers import FORMER_METHODS
from tests.script.isolated import needs
from tests.script.running import run_script, run_text, stdout_of, write

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
    import numpy as np
    import torch
    from torch import nn
    from torch._six import container_abcs

    class Net(nn.Module):
        def __init__(self, width=32):
            super().__init__()
            self.layer = nn.Linear(width, int(np.float(2)))

        def forward(self, x):
            return self.layer(x)
"""
TRAINING = """
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, correct_bias=True)
    for _ in range(4):
        model(torch.zeros(8, 32, device="cuda")).sum().backward()
        optimizer.step()
"""
SIX = ".container_abcs: it is collections.abc"


def test_a_script_runs_again_until_nothing_is_missing_that_another_version_had(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, MODEL + TRAINING).report.workloads
    assert workload.error is None
    assert workload.script is not None
    assert (workload.script.happened, workload.batch) == ("trained", 8)
    texts = [each.text for each in workload.assumptions]
    assert any("torch._six" in text and text.endswith(SIX) for text in texts)
    assert any("has no numpy.float: it is builtins.float" in text for text in texts)
    assert any("has no argument correct_bias of AdamW: it is left out" in text for text in texts)


def test_a_model_file_is_imported_and_built_with_what_stands_for_the_names_of_before(tmp_path: Path) -> None:
    file = write(tmp_path, MODEL, "net.py")
    (workload,) = check([f"{file}"], {"select": ("MEM010",)}, CheckOptions(cache=False)).report.workloads
    assert workload.error is None
    assert workload.estimate is not None
    assert any(each.text.endswith(SIX) for each in workload.assumptions)


def test_a_script_is_asked_again_until_nothing_is_missing_though_it_builds_less_in_between(tmp_path: Path) -> None:
    file = write(tmp_path, MODEL, "net.py")
    text = """
        import numpy, torch
        if not hasattr(numpy, "product"):
            probe = torch.nn.Linear(2, 2)
        from numpy import product
        from net import Net
        from fractions import gcd

        model = Net(width=int(product([3, gcd(16, 24)]))).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.zeros(8, 24, device="cuda")).sum().backward()
            optimizer.step()
    """
    write(tmp_path, text, "train.py")
    (workload,) = check([f"{file}"], {"select": ("MEM010",)}, CheckOptions(cache=False)).report.workloads
    assert workload.error is None
    assert workload.built_by.endswith("train.py builds it")
    assert any("Net(width=24)" in each.text for each in workload.assumptions)


VARIABLES = """
    import os
    import torch
    from torch import nn

    folder = os.environ["TEST_DATA_DIR"]
    model = nn.Linear(4, len(os.environ["TEST_ENTITY"])).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.zeros(8, 4, device="cuda")).sum().backward()
        optimizer.step()
"""


def test_variables_for_a_place_or_an_account_are_made_up_as_data_is_and_others_are_named(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, VARIABLES, fake_data=True).report.workloads
    assert workload.error is None
    texts = [each.text for each in workload.assumptions]
    for name in ("TEST_DATA_DIR", "TEST_ENTITY"):
        assert f"the environment variable {name} is not set: it is {name.lower()}" in texts
    failing = "import os\nraise ValueError(os.environ['TEST_DATA_DIR'])\n"
    (workload,) = run_text(tmp_path, failing, fake_data=True).report.workloads
    assert workload.error is not None
    assert "if so, put it there: the environment variable TEST_DATA_DIR is not set" in workload.error.hint
    (workload,) = run_text(tmp_path, VARIABLES, fake_data=False).report.workloads
    assert workload.error is not None
    assert "TEST_DATA_DIR=VALUE" in workload.error.hint
    number = VARIABLES.replace("TEST_DATA_DIR", "TEST_DATA_RANK")
    (workload,) = run_text(tmp_path, number, fake_data=True).report.workloads
    assert workload.error is not None
    assert "TEST_DATA_RANK=VALUE" in workload.error.hint


LAUNCHED = """
    import os
    import torch
    from torch import nn

    rank = int(os.environ["LOCAL_RANK"])
    torch.distributed.init_process_group("nccl")
    model = nn.Linear(4, int(os.environ["WORLD_SIZE"])).to(f"cuda:{rank}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.zeros(8, 4, device="cuda")).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("fake_data", [True, False])
@pytest.mark.parametrize(("rank", "size"), [("LOCAL_RANK", "WORLD_SIZE"), ("SLURM_LOCALID", "SLURM_NTASKS")])
def test_a_script_of_a_launcher_finds_the_variables_that_it_sets(
    tmp_path: Path, fake_data: bool, rank: str, size: str
) -> None:
    text = LAUNCHED.replace("LOCAL_RANK", rank).replace("WORLD_SIZE", size)
    text = text.replace('"nccl"', '"nccl", "tcp://127.0.0.1:29500", world_size=1, rank=0')
    (workload,) = run_text(tmp_path, text, fake_data=fake_data).report.workloads
    assert (workload.error, workload.script.happened) == (None, "trained")
    said = f"the environment variable {rank} is not set: it and others are as a launcher sets them"
    assert said in [each.text for each in workload.assumptions]


SPECTRA = """
    import torch
    from torch import nn

    model = nn.Linear(129, 129).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    signal = torch.zeros(2, 4096, device="cuda")
    window = torch.hann_window(256, device="cuda")
    for _ in range(2):
        spectrum = torch.stft(signal, 256, 64, window=window)
        real = model(spectrum[..., 0].transpose(1, 2)).transpose(1, 2)
        torch.istft(torch.stack([real, spectrum[..., 1]], -1), 256, 64, window=window).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(tuple(spectrum.shape))
"""


def test_spectra_are_pairs_of_real_numbers_for_a_script_that_takes_them_for_that(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, SPECTRA).report.workloads
    assert (workload.error, workload.script.happened) == (None, "trained")
    said = "torch.stft gives pairs of real numbers where it is not told, as in PyTorch 1"
    assert said in [each.text for each in workload.assumptions]


@needs("pandas")
def test_a_column_of_texts_takes_a_number_as_before_pandas_3(tmp_path: Path) -> None:
    text = """
        import pandas
        import torch

        table = pandas.DataFrame({"label": ["tumor", "normal"] * 4})
        for number in range(8):
            table.loc[number, "label"] = number % 2
        model = torch.nn.Linear(8, 2).cuda()
        labels = torch.tensor(list(table["label"]), device="cuda")
        torch.nn.functional.cross_entropy(model(torch.zeros(8, 8, device="cuda")), labels).backward()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is None


def test_an_option_that_the_script_does_not_have_stays_an_error_with_what_argparse_wrote(tmp_path: Path) -> None:
    text = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    (workload,) = run_text(tmp_path, text, "--lerning_rate", "1").report.workloads
    assert workload.error is not None
    assert "unrecognized arguments: --lerning_rate 1" in workload.error.hint


def test_an_assertion_without_words_is_quoted_with_its_line(tmp_path: Path) -> None:
    text = (
        'import torch\nimport numpy as np\nnp.load("data/train.npy")\nassert torch.__version__ == "0.3.2"  # checked\n'
    )
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert 'the script raised AssertionError: assert torch.__version__ == "0.3.2"' in workload.error.message
    assert workload.error.hint == "Install the version that it asks for: pip install torch==0.3.2"


CHAT = """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="w0", chat_template="{% for each in messages %}{{ each.content }} {% endfor %}"
    )
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50)).cuda().eval()
    encoded = tokenizer.apply_chat_template([{"role": "user", "content": "w1 w2 w3"}], return_tensors="pt")
    model.generate(encoded.to("cuda"), max_new_tokens=4)
"""


@needs("transformers")
def test_a_result_that_was_a_tensor_before_is_one_for_a_script_that_takes_it_for_one(tmp_path: Path) -> None:
    checked = run_text(tmp_path, CHAT)
    (workload,) = checked.report.workloads
    assert (workload.error, workload.script.happened) == (None, "generated")
    assert workload.estimate.generation.new_tokens == 4
    assert any("another value for return_dict of apply_chat_template" in each.text for each in workload.assumptions)


def test_a_warning_is_not_what_a_script_says_at_its_end(tmp_path: Path) -> None:
    text = (
        "import sys, warnings\nprint('no folder', file=sys.stderr)\nwarnings.warn('old', FutureWarning)\nsys.exit(3)\n"
    )
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert workload.error.hint == "It wrote: no folder"


def test_a_path_that_a_script_refuses_to_be_without_comes_before_packages_that_are_missing(tmp_path: Path) -> None:
    text = """
    import glob
    import absent_sheets
    book = absent_sheets.open("records.xls")
    if not glob.glob("path/to/speech/*"):
        raise Exception("No files found using: path/to/speech/*")
    """
    (workload,) = run_text(tmp_path, text.replace("\n    ", "\n")).report.workloads
    assert workload.error is not None
    assert workload.error.hint == "It wants path/to/speech/*, which is not there: put it there."


def test_an_assertion_on_values_that_nobody_knows_or_on_a_version_is_taken_to_hold(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        dedent(
            """
            import torch

            def rows(x, y):
                assert torch.unique(y).numel() == 1 and len(x) == 4  # one row
                return x + y

            class Net(torch.nn.Linear):
                def __init__(self, *sides):
                    super().__init__(*sides)
                    assert torch.__version__ == "1.7.1", "please use torch 1.7.1"

                def forward(self, x, places):
                    return super().forward(rows(x, places[:, 1:]))
            """
        )
    )
    text = """
        import torch
        from nets import Net
        model = Net(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            x = torch.randn(4, 8, device="cuda")
            model(x, torch.cat([x.cumsum(0), torch.zeros_like(x)], 1)[:, 7:9]).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.error, workload.batch) == (None, 4)
    texts = "\n".join(each.text for each in workload.assumptions)
    for line in (5, 11):
        assert f"an assertion on unknown values, or on a version, is taken to hold: line {line} of a module" in texts


OF_TRANSFORMERS_4 = """
    import torch
    from torch import nn
    from transformers import PreTrainedModel
    from transformers.configuration_utils import PretrainedConfig

    class OwnConfig(PretrainedConfig):
        model_type = "own"

        def __init__(self, vocab_size=512, hidden_size=64, **kwargs):
            self.vocab_size, self.hidden_size = vocab_size, hidden_size
            super().__init__(tie_word_embeddings=True, **kwargs)

    class OwnForCausalLM(PreTrainedModel):
        config_class = OwnConfig
        _tied_weights_keys = ["lm_head.weight"]

        def __init__(self, config):
            super().__init__(config)
            self.embed = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

        def get_input_embeddings(self):
            return self.embed

        def forward(self, input_ids):
            assert not self.config.is_decoder
            return self.lm_head(self.embed(input_ids))

    model = OwnForCausalLM(OwnConfig()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.zeros(8, 32, dtype=torch.long, device="cuda")).sum().backward()
        optimizer.step()
"""


@needs("transformers")
def test_a_model_of_transformers_4_has_its_settings_and_one_weight_for_what_it_ties(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, OF_TRANSFORMERS_4).report.workloads
    texts = [each.text for each in workload.assumptions]
    assert workload.error is None
    assert any("no attribute pad_token_id of PreTrainedConfig" in text for text in texts)
    assert any("each is tied to the embedding of the inputs" in text for text in texts)
    assert workload.estimate is not None
    assert workload.estimate.categories[Category.PARAMETER] == 512 * 64 * 4


@needs("timm")
def test_a_model_of_timm_is_found_under_its_former_name(tmp_path: Path) -> None:
    text = """
        import timm, torch
        model = timm.create_model("vit_deit_tiny_patch16_224", num_classes=10).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.zeros(2, 3, 224, 224, device="cuda")).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is None
    text = "timm has no model vit_deit_tiny_patch16_224: it is the one that was called so"
    assert text in [each.text for each in workload.assumptions]


BERT = """
    import torch
    from torch import nn
    from transformers import BertConfig
    from transformers.modeling_utils import PreTrainedModel

    class Net(PreTrainedModel):
        config_class = BertConfig

        def __init__(self, config):
            super().__init__(config)
            self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
            self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.init_weights()

        def _init_weights(self, module):
            pass

        def get_input_embeddings(self):
            return self.embed

        def get_output_embeddings(self):
            return self.head

        def forward(self, ids, mask):
            assert self.get_head_mask(None, 2) == [None, None]
            self.config.is_decoder = False
            added = self.get_extended_attention_mask(mask, ids.shape, ids.device)
            assert added.shape == self.invert_attention_mask(mask).shape == (4, 1, 1, 16)
            rows = mask[:, None].expand(4, 16, 16)
            assert self.get_extended_attention_mask(rows, ids.shape, device=ids.device).shape == (4, 1, 16, 16)
            self.config.is_decoder = True
            assert self.get_extended_attention_mask(mask, ids.shape).shape == (4, 1, 16, 16)
            return self.head(self.embed(ids)) + added.sum()

    model = Net(BertConfig(vocab_size=5000, hidden_size=64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.ones(4, 16, dtype=torch.long, device="cuda")
    for _ in range(2):
        model(ids, torch.ones_like(ids)).sum().backward()
        optimizer.step()
"""


@needs("transformers")
def test_a_model_of_transformers_4_has_its_masks_and_its_tied_weights(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, BERT).report.workloads
    assert workload.error is None
    assert workload.estimate is not None
    assert workload.estimate.categories[Category.PARAMETER] == 4 * 5000 * 64
    texts = [each.text for each in workload.assumptions]
    for name in ("get_extended_attention_mask", "get_head_mask", "invert_attention_mask"):
        assert f"models of transformers 5 have no {name}: it is as in version 4" in texts


def test_what_is_added_to_scores_is_none_where_the_mask_is_and_for_a_decoder_before() -> None:
    model = SimpleNamespace(dtype=torch.float32, config=SimpleNamespace(is_decoder=True))
    lowest = torch.finfo(torch.float32).min
    added = FORMER_METHODS["get_extended_attention_mask"](model, torch.tensor([[1, 1, 0]]), (1, 3))
    assert (added == lowest).tolist() == [[[[False, True, True], [False, False, True], [False, False, True]]]]
    heads = FORMER_METHODS["get_head_mask"](model, torch.tensor([1.0, 0.0]), 3)
    assert (heads.shape, heads[2, 0, :, 0, 0].tolist()) == ((3, 1, 2, 1, 1), [1.0, 0.0])


def test_a_package_of_the_project_is_found_behind_an_installed_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").touch()
    for folder in ("tqdm", "scripts"):
        (tmp_path / folder).mkdir()
    write(tmp_path, "def batch(): return __import__('torch').zeros(8, 32, device='cuda')\n", "tqdm/__init__.py")
    text = "import sys\nfrom tqdm import batch\nfrom torch import nn\nimport torch\n"
    step = "model = nn.Linear(32, 2).cuda()\nmodel(batch()).sum().backward()\n"
    script = write(tmp_path, text + step, "scripts/train.py")
    (workload,) = run_script(script).report.workloads
    assert (workload.error, workload.batch) == (None, 8)
    said = f"a package of the project in {tmp_path} is taken, which an installed one of its name hides"
    assert said in [each.text for each in workload.assumptions]


@needs("transformers")
def test_the_positions_of_gpt_have_their_second_name(tmp_path: Path) -> None:
    text = """
        import torch, transformers
        config = transformers.GPT2Config(n_positions=77)
        model = torch.nn.Linear(config.n_ctx, 2).cuda()
        model(torch.zeros(8, 77, device="cuda")).sum().backward()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.error, workload.batch) == (None, 8)


@needs("transformers")
def test_a_config_that_transformers_has_since_taken_is_the_programs(tmp_path: Path) -> None:
    text = """
        import torch
        from transformers import AutoConfig, PretrainedConfig

        class LlavaConfig(PretrainedConfig):
            model_type = "llava"
            width = 32

        AutoConfig.register("llava", LlavaConfig)
        model = torch.nn.Linear(AutoConfig.for_model("llava").width, 2).cuda()
        model(torch.zeros(8, 32, device="cuda")).sum().backward()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.error, workload.batch) == (None, 8)
    assert "transformers has a config llava of its own: the program's takes its place" in [
        each.text for each in workload.assumptions
    ]


OF_TRAINING = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 4)

        def forward(self, x):
            return self.layer(x)

    def train(model):
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.zeros(8, 32, device="cuda")).sum().backward()
            optimizer.step()
"""
OF_GROUPS = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4)
    named = {group.title: group for group in parser._action_groups}
    print(named["optional arguments"].title)
    train(Net().cuda())
"""
OF_METRICS = """
    import torchmetrics
    model = Net()
    model.metrics = nn.ModuleList(
        [torchmetrics.F1(num_classes=4), torchmetrics.AUROC(num_classes=4), torchmetrics.Accuracy()]
    )
    print([type(each).__name__ for each in model.metrics], model.metrics[2](torch.zeros(3), torch.ones(3)))
    train(model.cuda())
"""
OF_STRATEGY = """
    import pytorch_lightning
    pytorch_lightning.Trainer(strategy=None, gpus="0", accelerator="gpu", logger=False)
    train(Net().cuda())
"""
OF_LOOKAHEAD = """
    class Slow(torch.optim.Optimizer):
        def __init__(self, fast):
            self.fast, self.param_groups, self.defaults, self.state = fast, fast.param_groups, fast.defaults, fast.state

        def step(self, closure=None):
            return self.fast.step(closure)

    model = Net().cuda()
    optimizer = Slow(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        model(torch.zeros(8, 32, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
OF_FOLDERS = """
    import os
    os.mkdir("outputs/a-run")
    with open("logs/now/log.txt", "w") as file:
        file.write("begun")
    print(open("logs/now/log.txt").read())
    train(Net().cuda())
"""
OF_MONAI = """
    from monai.transforms import AddChanneld, Compose
    print(Compose([AddChanneld(keys=["image"])])({"image": torch.zeros(4, 4)})["image"].shape)
    train(Net().cuda())
"""
OF_CHOICE = """
    import hydra

    @hydra.main(config_path="configs", config_name="config", version_base=None)
    def main(settings):
        train(Net().cuda())

    main()
"""
OF_PLACEHOLDER = """
    import sys
    with open(f"configs/{sys.argv[1]}/model.yaml") as file:
        print(file.read())
    train(Net().cuda())
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (OF_GROUPS, 'a parser calls its options "optional arguments", as before Python 3.10'),
        pytest.param(OF_METRICS, "metrics of torchmetrics need no task", marks=needs("torchmetrics")),
        pytest.param(OF_STRATEGY, "Lightning takes no strategy None", marks=needs("pytorch_lightning")),
        (OF_LOOKAHEAD, "Slow makes no Optimizer of itself, and needs none, as before PyTorch 2: it has no hooks"),
        pytest.param(OF_MONAI, "monai.transforms.AddChanneld", marks=needs("monai")),
        (OF_FOLDERS, "outputs is not there, in which the script writes: it is made, and others, too"),
    ],
)
def test_a_script_takes_its_steps_with_what_was_so_before(lines: str, said: str, tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, OF_TRAINING + lines).report.workloads
    assert (workload.error, workload.batch) == (None, 8)
    assert workload.script is not None
    assert workload.script.happened == "trained"
    assert any(said in each.text for each in workload.assumptions)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("lines", "argument", "said"),
    [
        pytest.param(OF_CHOICE, "user=me", "user=me is taken as user=somebody, which is there", marks=needs("hydra")),
        (OF_PLACEHOLDER, "DATASET_NAME", "DATASET_NAME is taken as somebody, which is there"),
    ],
)
def test_what_a_command_leaves_open_is_the_one_that_is_there(
    lines: str, argument: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", "user/somebody.yaml", "somebody/model.yaml", "words/model.yaml"):
        (tmp_path / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs" / name).write_text("defaults:\n  - user: null\n" if name == "config.yaml" else "a: 1\n")
    (workload,) = run_text(tmp_path, OF_TRAINING + lines, argument).report.workloads
    assert (workload.error, workload.batch) == (None, 8)
    assert any(said in each.text for each in workload.assumptions)


SEVERAL = """
    import os
    import torch
    import torch.multiprocessing as mp
    from types import SimpleNamespace

    def train(rank, size):
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
        torch.distributed.init_process_group("nccl", rank=rank, world_size=size)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda(rank), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.zeros(8, 4, device="cuda")).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        number = torch.cuda.device_count()
        CHECK
        mp.spawn(train, args=(number,), nprocs=number)
"""


@pytest.mark.parametrize(
    "check",
    [
        'assert number >= 2, f"Requires at least 2 GPUs to run, but got {number}."',
        'size = SimpleNamespace(gpus=2); assert size.gpus <= torch.cuda.device_count(), "more than there are"',
    ],
)
def test_a_script_that_wants_several_gpus_is_the_first_of_them(tmp_path: Path, check: str) -> None:
    (workload,) = run_text(tmp_path, SEVERAL.replace("CHECK", check)).report.workloads
    assert (workload.error, workload.batch) == (None, 8)
    assert workload.script is not None
    assert workload.script.happened == "trained"
    said = [each.text for each in workload.assumptions]
    assert "the script wants several GPUs: it is the first rank of 2" in said
    assert any("rank 0 of 2" in each for each in said)


OF_TRL = """
    from datasets import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, AutoTokenizer, TrainingArguments
    from trl import DataCollatorForCompletionOnlyLM, SFTTrainer

    def texts(rows):
        return [f"{question} ### {answer}" for question, answer in zip(rows["question"], rows["answer"])]

    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    tokenizer.pad_token = tokenizer.eos_token
    words = " ".join(map(str, range(400)))
    rows = Dataset.from_dict({"question": [words] * 64, "answer": [words] * 64})
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=64))
    model.register_forward_pre_hook(lambda _, args, named: print(*named["input_ids"].shape), with_kwargs=True)
    SFTTrainer(
        model,
        tokenizer=tokenizer,
        args=TrainingArguments("out", per_device_train_batch_size=4, max_steps=4, report_to="none"),
        train_dataset=rows,
        formatting_func=texts,
        max_seq_length=96,
        data_collator=DataCollatorForCompletionOnlyLM(" ###", tokenizer=tokenizer),
    ).train()
"""


@needs("trl", "datasets", "accelerate")
def test_a_trainer_of_trl_takes_its_settings_as_arguments_and_gives_texts_as_long_as_they_say(tmp_path: Path) -> None:
    checked = run_text(tmp_path, OF_TRL)
    (workload,) = checked.report.workloads
    assert (workload.error, workload.batch) == (None, 4)
    assert workload.script is not None
    assert workload.script.happened == "trained"
    assert "4 96" in stdout_of(checked).splitlines()


def test_names_that_transformers_no_longer_has_are_there_behind_an_import_of_a_model(tmp_path: Path) -> None:
    text = """
    from transformers.models.t5.modeling_t5 import T5Stack
    from transformers import BeamScorer, NameOfAnotherTime
    from torch import nn
    import torch

    class Net(nn.Linear):
        pass
    """
    text += TRAINING.replace("Net()", "Net(32, 2)").replace(", correct_bias=True", "")
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("passed over" in each.text for each in workload.assumptions)


def test_a_tokenizer_has_the_special_tokens_that_a_program_added_as_before_version_5(tmp_path: Path) -> None:
    text = """
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
    print(tokenizer.additional_special_tokens, tokenizer.additional_special_tokens_ids[0] == len(tokenizer) - 1)
    """
    assert stdout_of(run_text(tmp_path, text)).split("\n")[0] == "['[ENC]'] True"


def test_a_copy_of_a_model_for_version_4_has_its_rotary_positions_and_its_flash_attention(tmp_path: Path) -> None:
    text = """
    from transformers import LlamaConfig, PreTrainedModel
    from torch import nn
    import torch

    class Net(PreTrainedModel):
        config_class = LlamaConfig
        _supports_flash_attn_2 = True

        def __init__(self, config):
            super().__init__(config)
            assert config.rope_scaling is None
            self.layer = nn.Linear(int(config.rope_theta), 2)

        def forward(self, x):
            return self.layer(x)

    assert Net._supports_flash_attn and not PreTrainedModel._supports_flash_attn
    scaled = LlamaConfig(rope_theta=64.0, rope_scaling={"rope_type": "linear", "factor": 2.0})
    model = Net(LlamaConfig(rope_theta=32.0)).cuda()
    print(scaled.rope_theta, scaled.rope_scaling["type"], scaled.rope_scaling["factor"])
    """
    text += TRAINING.replace("model = Net().cuda()", "").replace(", correct_bias=True", "")
    checked = run_text(tmp_path, text)
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert stdout_of(checked).split() == ["64.0", "linear", "2.0"]


@needs("scipy")
def test_a_function_takes_by_place_what_it_takes_by_name_alone(tmp_path: Path) -> None:
    text = """
    import torch
    from scipy.signal.windows import general_hamming

    width = len(general_hamming(32, 0.5, True, None, None))
    model = torch.nn.Linear(width, 2).cuda()
    """
    text += TRAINING.replace("model = Net().cuda()", "").replace(", correct_bias=True", "")
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    texts = [each.text for each in workload.assumptions]
    assert any("takes xp, device of general_hamming by name: they are taken in its order" in each for each in texts)


def test_masks_of_before_are_made_and_examples_tell_nobody(tmp_path: Path) -> None:
    text = """
    import torch
    from transformers.modeling_attn_mask_utils import AttentionMaskConverter, _prepare_4d_causal_attention_mask
    from transformers.utils import send_example_telemetry

    send_example_telemetry("run_clm", None)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    made = _prepare_4d_causal_attention_mask(mask, (2, 3), torch.zeros(2, 3, 4), 0)
    print((made == 0).int().tolist(), AttentionMaskConverter(is_causal=True).to_causal_4d(1, 2, 3, torch.float16).shape)
    """
    text += TRAINING.replace("Net()", "torch.nn.Linear(32, 2)").replace(", correct_bias=True", "")
    checked = run_text(tmp_path, text)
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    seen = "[[[[0, 0, 0], [0, 1, 0], [0, 1, 1]]], [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]] torch.Size([1, 1, 2, 3])"
    assert stdout_of(checked).split("\n")[0] == seen
    assert not any("passed over" in each.text for each in workload.assumptions)


def test_a_config_file_may_have_settings_of_a_training_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = '{"evaluation_strategy": "steps", "overwrite_output_dir": true, "use_mps_device": false, "width": 32}'
    (tmp_path / "settings.json").write_text(settings)
    text = """
    from dataclasses import dataclass
    from transformers import HfArgumentParser
    import torch

    @dataclass
    class Settings:
        eval_strategy: str = "no"
        width: int = 8

    (settings,) = HfArgumentParser(Settings).parse_json_file("settings.json")
    print(settings.eval_strategy, settings.width)
    """
    text += TRAINING.replace("Net()", "torch.nn.Linear(settings.width, 2)").replace(", correct_bias=True", "")
    checked = run_text(tmp_path, text)
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert stdout_of(checked).split() == ["steps", "32"]
    texts = [each.text for each in workload.assumptions]
    assert any("no argument evaluation_strategy of TrainingArguments: it is taken as eval_strategy" in t for t in texts)
    assert any("no argument use_mps_device of TrainingArguments: it is left out" in t for t in texts)
