"""What libraries save for a script lies in the scratch folder alone, and can be loaded again."""

import pytest

from tests.script.isolated import needs, run


@needs("transformers", "tokenizers")
def test_models_and_tokenizers_of_transformers(tmp_path):
    pytest.importorskip("accelerate", reason="device_map needs it")
    ran = run(
        tmp_path / "p",
        """\
        import os
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
        from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
        raw = Tokenizer(models.WordLevel(unk_token="[UNK]")); raw.pre_tokenizer = pre_tokenizers.Whitespace()
        raw.train_from_iterator(["some words of a text"], trainers.WordLevelTrainer(special_tokens=["[UNK]"]))
        raw.save("raw.json"); print(Tokenizer.from_file("raw.json").get_vocab_size())
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=512, n_head=4, vocab_size=1000)).cuda()
        for folder in ("out", "out"):
            model.save_pretrained(folder)
            PreTrainedTokenizerFast(tokenizer_object=raw).save_pretrained(folder)
        tokenizer, loaded = AutoTokenizer.from_pretrained("out"), AutoModelForCausalLM.from_pretrained("out", device_map="cuda")
        print(len(tokenizer("some text").input_ids), loaded.device, loaded.num_parameters() == model.num_parameters())
        model.save_pretrained("sharded", max_shard_size="1MB")
        print(AutoModelForCausalLM.from_pretrained("sharded").num_parameters() == model.num_parameters())
        model.save_pretrained("bin", safe_serialization=False)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["6", "2 cuda:0 True", "True"]
    assert {"raw.json", "out/model.safetensors", "out/tokenizer.json"} <= set(ran.writes)
    num_parameters = 1000 * 512 + 1024 * 512 + 2 * (12 * 512 * 512 + 13 * 512) + 2 * 512
    assert 4 * num_parameters <= ran.writes["out/model.safetensors"][0] <= 4 * num_parameters + 8192


@needs("transformers", "huggingface_hub")
def test_what_is_pushed_to_the_hub_stays_here_and_the_script_goes_on(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from huggingface_hub import HfApi, create_repo, upload_folder
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=2)).cuda()
        print(model.push_to_hub("me/model"))
        print(create_repo("other", exist_ok=True).repo_id)
        print(upload_folder(repo_id="me/other", folder_path=".", run_as_future=True).result().repo_url.repo_id)
        print(HfApi().upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id="me/model"))
        """,
    )
    assert ran.error is None, ran.stderr
    model = f"https://huggingface.co/me/model/commit/{'0' * 40}"
    assert ran.stdout.splitlines() == [model, "me/other", "me/other", model]
    assert ran.connections == {"huggingface.co/me/model": 5, "huggingface.co/me/other": 6}


@needs("accelerate")
def test_states_of_accelerate(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os, torch
        torch.cuda.random.get_rng_state, torch.cuda.random.set_rng_state = torch.cuda.get_rng_state, torch.cuda.set_rng_state
        from accelerate import Accelerator
        accelerator = Accelerator(mixed_precision="bf16", project_dir="out")
        model = torch.nn.Linear(600, 600)
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
        accelerator.backward(model(torch.ones(4, 600, device=accelerator.device)).sum())
        optimizer.step()
        accelerator.save_state("state"); accelerator.load_state("state")
        accelerator.save_model(model, "model"); accelerator.save({"x": torch.ones(2)}, "x.pt")
        print(sorted(os.listdir("state")), os.listdir("model"))
        """,
    )
    assert ran.error is None, ran.stderr
    assert {"state/model.safetensors", "state/optimizer.bin", "model/model.safetensors", "x.pt"} <= set(ran.writes)


@needs("lightning")
def test_checkpoints_of_lightning(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import lightning, torch
        from torch.utils.data import DataLoader
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(700, 700)
            def training_step(self, batch, i):
                return self.layer(batch).sum()
            def configure_optimizers(self): return torch.optim.Adam(self.parameters())
        options = dict(accelerator="gpu", devices=1, enable_progress_bar=False, precision="bf16-mixed")
        trainer = lightning.Trainer(max_epochs=1, **options)
        trainer.fit(Model(), DataLoader(torch.ones(8, 700), 4))
        path = trainer.checkpoint_callback.best_model_path
        trainer = lightning.Trainer(max_epochs=2, **options)
        trainer.fit(Model(), DataLoader(torch.ones(8, 700), 4), ckpt_path=path)
        print(trainer.global_step, Model.load_from_checkpoint(path).layer.weight.shape)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == "4 torch.Size([700, 700])"
    nbytes = [nbytes for name, (nbytes, _) in ran.writes.items() if name.endswith(".ckpt")]
    assert len(nbytes) == 1 or len(nbytes) == 2
    assert all(3 * 4 * 701 * 700 <= n <= 3 * 4 * 701 * 700 + 20_000 for n in nbytes)


def test_distributed_checkpoints(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        import torch.distributed.checkpoint as checkpoint
        model = torch.nn.Linear(600, 600).cuda()
        checkpoint.save({"model": model.state_dict(), "step": 3}, checkpoint_id="state")
        loaded = {"model": model.state_dict(), "step": 0}
        checkpoint.load(loaded, checkpoint_id="state")
        print(loaded["step"], loaded["model"]["weight"].device)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["3 cuda:0"]
    assert "state/.metadata" in ran.writes


@needs("tensorboard")
def test_tensorboard(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("runs/first")
        model = torch.nn.Linear(600, 600).cuda()
        for step in range(3):
            writer.add_scalar("loss", model(torch.ones(2, 600, device="cuda")).sum(), step)
            writer.add_histogram("weight", model.weight, step)
        writer.add_hparams({"lr": 1e-3}, {"loss": 0.0}); writer.close()
        """,
    )
    assert ran.error is None, ran.stderr
    assert any("tfevents" in name for name in ran.writes)


@pytest.mark.parametrize("mode", ["offline", "disabled"])
@needs("wandb")
def test_wandb_sends_nothing(tmp_path, mode):
    ran = run(
        tmp_path / "p",
        f"""\
        import os, torch
        os.environ["WANDB_MODE"] = "{mode}"
        import wandb
        run = wandb.init(project="p", config={{"lr": 1e-3}})
        run.log({{"loss": torch.ones(2, device="cuda").sum().item()}})
        wandb.finish()
        print("over")
        """,
    )
    assert ran.error is None, ran.stderr
    assert "over" in ran.stdout
    assert not ran.connections


@needs("hydra")
def test_hydra_makes_the_folder_that_it_changes_into(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import hydra, os, torch
        @hydra.main(version_base=None, config_path=None)
        def main(config):
            torch.save({"x": torch.ones(2)}, "model.pt")
            print(os.path.exists("model.pt"), "outputs" in os.getcwd(), os.listdir("."))
        os.sys.argv += ["hydra.job.chdir=True"]
        main()
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.startswith("True True [")
    assert any(name.startswith("outputs/") and name.endswith("model.pt") for name in ran.writes)


@needs("peft", "transformers")
def test_adapters_of_peft(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from peft import LoraConfig, PeftModel, get_peft_model
        from transformers import GPT2Config, GPT2LMHeadModel
        make = lambda: GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=512, n_head=4, vocab_size=1000)).cuda()
        model = get_peft_model(make(), LoraConfig(task_type="CAUSAL_LM", target_modules=["c_attn"]))
        model.save_pretrained("adapter")
        print(type(PeftModel.from_pretrained(make(), "adapter")).__name__)
        """,
    )
    assert ran.error is None, ran.stderr
    assert "adapter/adapter_model.safetensors" in ran.writes


@needs("torchvision", "PIL")
def test_images(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from PIL import Image
        from torchvision.io import read_image
        from torchvision.utils import save_image
        save_image(torch.zeros(4, 3, 32, 32, device="cuda"), "samples.png")
        print(Image.open("samples.png").size)
        """,
    )
    assert ran.error is None, ran.stderr
    assert set(ran.writes) == {"samples.png"}


@needs("datasets")
def test_datasets_on_disk(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from datasets import Dataset, load_from_disk
        data = Dataset.from_dict({"x": list(range(20))}).map(lambda row: {"y": row["x"] * 2})
        data.save_to_disk("data"); print(load_from_disk("data")[3], data.train_test_split(0.2)["test"].num_rows)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == "{'x': 3, 'y': 6} 4"
