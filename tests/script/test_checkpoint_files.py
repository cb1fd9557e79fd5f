"""Checkpoints without which a script gives up: their folders, weights, settings and vocabularies."""

import json

from tests.script.isolated import needs, run
from tests.script.running import run_text

LLAMA_3 = "ckpts/Meta-Llama-3-8B-Instruct"


def test_a_file_of_weights_that_a_script_insists_on_is_loaded_without_values(tmp_path):
    text = """\
        import os, torch
        from pathlib import Path
        from torch import nn
        path = Path("checkpoints/model.pth")
        assert path.is_file(), path
        if not os.path.exists("weights/last.ckpt"):
            raise FileNotFoundError("no weights")
        model = nn.Linear(4, 3).cuda()
        model.load_state_dict(torch.load(path)["model"])
        model.load_state_dict(torch.load("weights/last.ckpt"))
        with open("weights/sam_b.pth", "rb") as file:
            model.load_state_dict(torch.load(file))
        print(tuple(model.weight.shape), os.path.exists("other.pth"))
    """
    ran = run(tmp_path / "p", text)
    assert ran.error is None, ran.stderr
    assert ran.stdout == "(3, 4) False\n"
    assert ran.assumptions == {
        "the checkpoint checkpoints/model.pth is not there: its weights are random": 5,
        "the checkpoint weights/last.ckpt is not there: its weights are random": 6,
        "the checkpoint weights/sam_b.pth is not there: its weights are random": 11,
    }


def test_a_checkpoint_that_is_assigned_gives_memory_to_a_model_without(tmp_path):
    text = """\
        import torch
        from torch import nn
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        model.load_state_dict(torch.load("model.pth"), assign=True)
        model.cuda()
        print([(p.device.type, tuple(p.shape), p.requires_grad) for p in model.parameters()][:2])
        print({b.device.type for b in model.buffers()})
    """
    ran = run(tmp_path / "p", text)
    assert ran.stdout.splitlines() == ["[('cuda', (3, 4), True), ('cuda', (3,), True)]", "{'cuda'}"], ran.stderr


@needs("transformers")
def test_the_settings_of_a_folder_are_those_known_by_its_name(tmp_path):
    text = """\
        import json, os
        from pathlib import Path
        for folder in ("FOLDER", "checkpoints/of-nobody"):
            assert os.path.isdir(folder)
            files = sorted(Path(folder).glob("*.pth"))
            print([file.name for file in files], json.dumps(json.load(open(f"{folder}/params.json"))))
    """
    ran = run(tmp_path / "p", text.replace("FOLDER", LLAMA_3))
    assert ran.error is None, ran.stderr
    known, unknown = ran.stdout.splitlines()
    name, _, settings = known.partition(" ")
    assert (name, unknown) == ("['000000.pth']", "['000000.pth'] {}")
    # the file that Meta publishes beside its weights, whose feed-forward is as wide: 1.3 times, rounded up to 1024
    published = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256}
    settings = json.loads(settings)
    multiple = settings.pop("multiple_of")
    assert settings == published
    width = multiple * -(-int(2 * 4 * settings["dim"] / 3) // multiple)
    assert width == 1024 * -(-int(1.3 * int(2 * 4 * 4096 / 3)) // 1024) == 14336
    assert "params.json of the checkpoint is not there: what it would set has its default values" in ran.assumptions


@needs("transformers", "sentencepiece", "tiktoken")
def test_a_vocabulary_is_read_by_its_library_and_has_the_size_of_the_model(tmp_path):
    text = """\
        import os, tiktoken, sentencepiece
        from tiktoken.load import load_tiktoken_bpe
        assert os.path.isfile("FOLDER/tokenizer.model")
        ranks = load_tiktoken_bpe("FOLDER/tokenizer.model")
        encoding = tiktoken.Encoding("x", pat_str=r"\\s?\\S+", mergeable_ranks=ranks, special_tokens={})
        print(encoding.n_vocab, len(encoding.encode("Hello, my name is")))
        pieces = sentencepiece.SentencePieceProcessor("Llama-2-7b/tokenizer.model")
        print(pieces.vocab_size(), pieces.bos_id(), pieces.eos_id(), len(pieces.encode("Hello, my name is")))
        print(sentencepiece.SentencePieceProcessor("vocabularies/bpe_8192_v2.model").vocab_size())
    """
    ran = run(tmp_path / "p", text.replace("FOLDER", LLAMA_3), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["128000 8", "32000 1 2 8", "8192"]


@needs("transformers", "tokenizers")
def test_a_vocabulary_in_json_is_read_by_its_library(tmp_path):
    text = """\
        import os
        from tokenizers import Tokenizer
        if os.path.isfile("FOLDER/tokenizer.json"):
            tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
        else:
            raise NotImplementedError
        print(tokenizer.get_vocab_size(), tokenizer.encode("w0 Hello").ids)
    """
    ran = run(tmp_path / "p", text.replace("FOLDER", LLAMA_3), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["128256 [3, 0]"]
    assert "tokenizer.json of the checkpoint is not there: a vocabulary of 128,256 words replaces it" in ran.assumptions


def test_what_a_checkpoint_holds_beside_weights_can_be_stated(tmp_path):
    text = """\
        import torch
        from torch import nn
        checkpoint = torch.load("ckpts/small.pt")
        sizes = checkpoint["model_args"]
        if "inner" not in sizes:
            sizes["inner"] = sizes["width"]
            del sizes["width"]
        print(nn.Linear(sizes["inner"], 3).cuda().weight.shape)
    """
    stated = run(tmp_path / "p", text, config_of=[["small.pt", json.dumps({"model_args": {"width": 5}})]])
    assert stated.stdout == "torch.Size([3, 5])\n", stated.stderr
    unknown = run(tmp_path / "q", text)
    assert "small.pt, which is not there" in unknown.error
    assert "--config-of small.pt=FILE" in unknown.error


def test_the_settings_without_which_a_class_cannot_be_made_are_to_be_stated(tmp_path):
    text = """
    from dataclasses import dataclass
    import torch

    @dataclass
    class Dimensions:
        width: int
        depth: int

    Dimensions(**torch.load("turbo.pt")["dims"])
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert "missing 2 required positional arguments" in workload.error.message
    advice = (
        'dims of the checkpoint are not known: state them in JSON: --config-of turbo.pt=FILE, with {"dims": {...}}.'
    )
    assert workload.error.hint == advice
