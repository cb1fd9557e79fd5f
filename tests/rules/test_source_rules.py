"""Rules of source text, on code as people write it."""

from textwrap import dedent

import pytest
from memlint_rules.m4_training_loop.mem403_retain_graph import RetainGraph
from memlint_rules.m4_training_loop.mem406_teacher_with_grad import TeacherWithGrad
from memlint_rules.m4_training_loop.mem408_retry_inside_except import RetryInsideExcept
from memlint_rules.m4_training_loop.mem410_cat_in_loop import CatInLoop
from memlint_rules.m4_training_loop.mem411_debug_left_on import DebugLeftOn
from memlint_rules.m5_data_loading.mem501_dataset_on_gpu import DatasetOnGpu
from memlint_rules.m5_data_loading.mem502_eager_dataset import EagerDataset
from memlint_rules.m5_data_loading.mem503_dataloader_host_memory import DataloaderHostMemory
from memlint_rules.m5_data_loading.mem504_pinned_memory_waste import PinnedMemoryWaste
from memlint_rules.m5_data_loading.mem505_pad_to_max import PadToMax
from memlint_rules.m5_data_loading.mem506_torch_load_on_gpu import TorchLoadOnGpu
from memlint_rules.m5_data_loading.mem507_state_dict_duplicates import StateDictDuplicates
from memlint_rules.m5_data_loading.mem508_cast_after_move import CastAfterMove
from memlint_rules.m6_runtime.mem603_late_allocator_settings import LateAllocatorSettings
from memlint_rules.m6_runtime.mem605_ddp_bucket_view import DdpBucketView
from memlint_rules.m6_runtime.mem607_fsdp_flags import FsdpFlags

from memlint.lint.fixes import fix_text
from memlint.source.text import Source


def lines(rule, text):
    source = Source.from_text("import torch\n" + dedent(text), "train.py")
    return [finding.line for finding in rule().check(source)]


BAD = {
    RetainGraph: {
        "one backward in a loop over batches": """
            def fit(model, train_loader, optimizer):
                for epoch in range(3):
                    for x in train_loader:
                        loss = model(x).mean()
                        loss.backward(retain_graph=True)
                        optimizer.step()
        """,
        "two losses in a row": """
            def step(generator, optimizer):
                adversarial_loss.backward(retain_graph=True)
                identity_loss.backward()
                optimizer.step()
        """,
        "second derivatives into `.grad`": """
            def trace(model, x):
                model(x).sum().backward(create_graph=True)
                return [p.grad.norm() for p in model.parameters()]
        """,
    },
    TeacherWithGrad: {
        "a generator, for the discriminator's step": """
            for noise, real in loader:
                fake = generator(noise).detach()
                (critic(fake) - critic(real)).mean().backward()
                optimizer.step()
        """,
        "a target network of a method": """
            class Agent:
                def train_step(self, batch):
                    target = self.target_net(batch.next)
                    return ((self.net(batch.state) - target.detach()) ** 2).mean()
        """,
        "distillation without a guard": """
            def step(student, teacher_model, x):
                loss = distance(student(x), teacher_model(x))
                loss.backward()
        """,
    },
    RetryInsideExcept: {
        "a method that calls itself": """
            class Trainer:
                def valid_step(self, sample, again=False):
                    try:
                        return self.task(sample)
                    except RuntimeError as error:
                        if "out of memory" in str(error) and not again:
                            torch.cuda.empty_cache()
                            return self.valid_step(sample, again=True)
                        raise
        """,
        "by its former name": """
            try:
                train(model, batch)
            except torch.cuda.OutOfMemoryError:
                model.use_checkpointing()
                train(model, batch)
        """,
    },
    CatInLoop: {
        "collected predictions": """
            for x in loader:
                predictions = torch.cat((predictions, model(x)), dim=0)
        """,
        "an attribute, after asking whether it is there": """
            def collect(self, loader):
                for x in loader:
                    if self.features is None:
                        continue
                    self.features = torch.vstack([self.features, self.model(x)])
        """,
    },
    DebugLeftOn: {
        "a hook that is a method": """
            class Probe:
                def __init__(self, model):
                    self.seen = []
                    for module in model.children():
                        module.register_forward_hook(self.keep)

                def keep(self, module, inputs, output):
                    self.seen.append(output)
        """,
        "anomalies around a training": """
            def fit(model, loader):
                with torch.autograd.detect_anomaly():
                    for x in loader:
                        model(x).mean().backward()
        """,
        "a profiler around a training": """
            def fit(model, loader):
                with torch.profiler.profile(profile_memory=True, with_stack=True) as profiler:
                    for x in loader:
                        model(x).mean().backward()
        """,
        "a history without an end": """
            torch.cuda.memory._record_memory_history()
        """,
    },
    DatasetOnGpu: {
        "moved when the data set is made": """
            from torch.utils.data import Dataset

            class Graphs(Dataset):
                def __init__(self, arrays, device):
                    self.x = torch.from_numpy(arrays).float().to(device)
        """,
        "variables moved before": """
            from torch.utils.data import TensorDataset

            x = torch.from_numpy(x).cuda().half()
            data = TensorDataset(x)
        """,
        "a collate function of workers": """
            def collate(samples):
                return torch.stack(samples).to("cuda:0")

            loader = DataLoader(data, collate_fn=collate, num_workers=4)
        """,
    },
    EagerDataset: {
        "images that are decoded": """
            import cv2

            class Images(torch.utils.data.Dataset):
                def __init__(self, paths):
                    self.images = [cv2.imread(path) / 255 for path in paths]
        """,
        "an epoch of batches": """
            batches = list(train_loader)
        """,
    },
    DataloaderHostMemory: {
        "lines of a file": """
            class Lines(Dataset):
                def __init__(self, path):
                    self.lines = open(path).readlines()

            loader = DataLoader(Lines("a"), num_workers=args.workers)
        """,
    },
    PadToMax: {
        "a method of a data set": """
            class Texts(Dataset):
                def __getitem__(self, i):
                    return self.tokenizer.encode_plus(self.texts[i], max_length=self.length, padding="max_length")
        """,
        "without a length": """
            rows = dataset.map(lambda row: row)
            encoded = tok(texts, truncation=True, padding="max_length")
        """,
    },
    StateDictDuplicates: {
        "a training function called afterwards": """
            def main(model, args):
                saved = torch.load(args.resume, map_location="cpu")
                model.load_state_dict(saved["model"])
                for epoch in range(args.epochs):
                    train_one_epoch(model, epoch)
        """,
        "clones": """
            def snapshot(model, device):
                return {k: v.clone() for k, v in model.state_dict().items()}
        """,
        "a full state dict on every GPU": """
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        """,
    },
    TorchLoadOnGpu: {
        "handed on at once": """
            model.cuda()
            model.load_state_dict(torch.load("last.pt"))
        """,
        "by its name": """
            def open_checkpoint(path, device):
                ckpt = torch.load(path, weights_only=True)
                return ckpt["model"]
        """,
        "an imported name": """
            from torch import load

            def resume(model, path, device):
                saved = load(path)
                model.load_state_dict(saved["net"])
        """,
    },
    CastAfterMove: {
        "in a chain": """
            model = AutoModel.from_pretrained(name).to("cuda").eval().half()
        """,
        "in two statements": """
            model.cuda()
            model.half()
        """,
    },
    LateAllocatorSettings: {
        "after a tensor": """
            import os
            x = torch.zeros(4, device="cuda")
            os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        """,
        "as a default": """
            from os import environ
            def main(model):
                model.to("cuda:0")
                environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        """,
    },
    FsdpFlags: {
        "without sharding": """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
            model = FSDP(model, sharding_strategy=ShardingStrategy.NO_SHARD, auto_wrap_policy=policy)
        """,
        "without the limit": """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            model = FSDP(model, auto_wrap_policy=policy, limit_all_gathers=False)
        """,
    },
    DdpBucketView: {
        "under another name": """
            from torch.nn.parallel import DistributedDataParallel as DDP
            model = DDP(model, device_ids=[rank])
        """,
        "by its whole name": """
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
        """,
    },
}

GOOD = {
    RetainGraph: {
        "the graph of another function may be used again": """
            def step(self, loss):
                loss.backward(retain_graph=True)
                self.optimizer.step()
        """,
        "a state is carried on": """
            def fit(rnn, loader):
                for x in loader:
                    out, hidden = rnn(x, hidden)
                    loss = out.mean()
                    loss.backward(retain_graph=True)
        """,
        "another gradient follows": """
            def fit(model, loader):
                for x in loader:
                    loss = model(x).mean()
                    loss.backward(retain_graph=True)
                    penalty = torch.autograd.grad(loss, x)
        """,
        "a loss made before the loop": """
            def fit(model, x, loader):
                loss = model(x).mean()
                for batch in loader:
                    loss.backward(retain_graph=True)
        """,
        "a step of the optimizer lies between": """
            def step(g_loss, d_loss, optimizer):
                d_loss.backward(retain_graph=True)
                optimizer.step()
                g_loss.backward()
        """,
        "weights of the gradient": """
            def step(output, first, second):
                output.backward(first, retain_graph=True)
                output.backward(second)
        """,
        "decided by the caller": """
            def fit(model, loader, keep):
                for x in loader:
                    loss = model(x).mean()
                    loss.backward(retain_graph=keep)
        """,
        "second derivatives that are reset": """
            def fit(model, loader, optimizer):
                for x in loader:
                    model(x).sum().backward(create_graph=True)
                    optimizer.step()
                    optimizer.zero_grad()
        """,
    },
    TeacherWithGrad: {
        "guarded": """
            def step(student, teacher, x):
                with torch.no_grad():
                    target = teacher(x)
                (student(x) - target).square().mean().backward()
        """,
        "frozen in a loop": """
            for parameter in teacher.parameters():
                parameter.requires_grad = False
            for x in loader:
                (student(x) - teacher(x)).square().mean().backward()
        """,
        "detached for one use only": """
            def step(generator, critic, noise):
                fake = generator(noise)
                critic(fake.detach()).mean().backward()
                critic(fake).mean().backward()
        """,
        "made, not called": """
            def step(student, x):
                teacher = make_teacher(x)
                student(x).mean().backward()
        """,
        "an evaluation": """
            def evaluate(model, loader):
                return [model(x).detach() for x in loader]
        """,
        "after the training": """
            for x in loader:
                model(x).mean().backward()
            show(model(x).detach().numpy())
        """,
        "the loss is detached, the output is not": """
            def step(model, x, criterion):
                output = model(x)
                loss = criterion(output)
                loss.backward()
                return loss.detach()
        """,
    },
    RetryInsideExcept: {
        "only reported": """
            try:
                train(model, batch)
            except torch.OutOfMemoryError as error:
                logger.warning(str(error))
                torch.cuda.empty_cache()
        """,
        "after the handler": """
            failed = False
            try:
                train(model, batch)
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                train(model, batch)
        """,
        "another error": """
            try:
                train(model, batch)
            except FileNotFoundError:
                train(model, batch)
            # out of memory
        """,
        "the traceback is let go": """
            try:
                train(model, batch)
            except torch.OutOfMemoryError as error:
                error.__traceback__ = None
                train(model, batch)
        """,
    },
    CatInLoop: {
        "what was gathered is needed": """
            for step in range(100):
                logits = model(tokens)
                tokens = torch.cat([tokens, logits.argmax(-1)], dim=1)
        """,
        "made anew in each round": """
            for x in loader:
                y = model(x)
                y = torch.cat([y, x])
        """,
        "a few": """
            for size in (1, 2, 4):
                pyramid = torch.cat([pyramid, pool(x, size)])
        """,
        "of something else": """
            for x in loader:
                y = torch.cat([x, x])
        """,
        "another one in each round": """
            for region in regions:
                region.tokens = torch.cat([start, region.tokens])
        """,
        "a list": """
            for x in loader:
                parts.append(x)
            whole = torch.cat(parts)
        """,
    },
    DebugLeftOn: {
        "under a flag": """
            if args.debug:
                torch.autograd.set_detect_anomaly(True)
        """,
        "switched off": """
            torch.autograd.set_detect_anomaly(False)
        """,
        "a few calls are profiled": """
            with torch.profiler.profile(with_stack=True) as profiler:
                model(x).mean().backward()
        """,
        "a history with a limit": """
            torch.cuda.memory._record_memory_history(max_entries=100_000)
        """,
        "a history that is stopped": """
            torch.cuda.memory._record_memory_history()
            step()
            torch.cuda.memory._record_memory_history(enabled=None)
        """,
        "a hook that keeps numbers": """
            norms = []
            layer.register_forward_hook(lambda module, inputs, output: norms.append(output.norm().item()))
        """,
        "a list that is emptied": """
            seen = []
            layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
            for x in loader:
                use(model(x), seen)
                seen.clear()
        """,
    },
    DatasetOnGpu: {
        "another dtype": """
            class Images(Dataset):
                def __init__(self, x):
                    self.x = torch.from_numpy(x).to(torch.float32)
        """,
        "to where something else is": """
            class Images(Dataset):
                def __init__(self, x):
                    self.x = x.to(self.other.device).to("cpu")
        """,
        "a model in the data set": """
            class Latents(Dataset):
                def __init__(self, device):
                    self.vae = AutoencoderKL.from_pretrained("sd").to(device)
                    self.clip = Clip().to(device)
                    encoder = load().to(device)
        """,
        "without workers": """
            class Images(Dataset):
                def __getitem__(self, index):
                    return self.x[index].to(self.device)

            loader = DataLoader(Images(), num_workers=0)
        """,
        "known to be small": """
            from torch.utils.data import TensorDataset
            data = TensorDataset(torch.randn(1000, 16).cuda(), torch.tensor([1, 2]).cuda())
        """,
        "a module that is no data set": """
            class Head(torch.nn.Module):
                def __init__(self, device):
                    self.weight = torch.randn(4, 4).to(device)
        """,
        "one batch": """
            for x in loader:
                x = x.cuda()
        """,
    },
    EagerDataset: {
        "images that are only opened": """
            from PIL import Image

            class Images(torch.utils.data.Dataset):
                def __init__(self, paths):
                    self.images = [Image.open(path) for path in paths]
        """,
        "an archive": """
            import numpy as np

            class Tokens(torch.utils.data.Dataset):
                def __init__(self, path):
                    self.tokens = np.load(path)["tokens"]
                    self.archive = np.load(path + ".npz")
                    self.other = np.load(path)

                def __getitem__(self, i):
                    return self.other["x"][i]
        """,
        "objects": """
            import numpy as np

            class Graphs(torch.utils.data.Dataset):
                def __init__(self, path):
                    self.graphs = np.load(path, allow_pickle=True)
        """,
        "worked on before it is kept": """
            import numpy as np

            class Series(torch.utils.data.Dataset):
                def __init__(self, path):
                    series = np.load(path)
                    self.series = scale(series)
        """,
        "a part of the batches": """
            batches = list(itertools.islice(loader, 4))
        """,
    },
    DataloaderHostMemory: {
        "paths": """
            class Images(Dataset):
                def __init__(self, root):
                    self.paths = sorted(root.glob("*.png"))

            loader = DataLoader(Images(root), num_workers=8)
        """,
        "the usual queue": """
            loader = DataLoader(dataset, num_workers=8, prefetch_factor=4)
        """,
        "a model's configuration": """
            import json

            class Head(torch.nn.Module):
                def __init__(self, path):
                    self.config = json.load(open(path))

            loader = DataLoader(dataset, num_workers=8)
        """,
    },
    PadToMax: {
        "an audio model wants thirty seconds": """
            class Audio(Dataset):
                def __getitem__(self, i):
                    return self.feature_extractor(self.audio[i], padding="max_length", max_length=480000)
        """,
        "short": """
            data.map(f)
            tokenizer(texts, padding="max_length", max_length=64)
        """,
        "the longest of the batch": """
            data.map(f)
            tokenizer(texts, padding=True, max_length=2048)
        """,
        "a text encoder of an image model": """
            text_encoder = load()
            data.map(f)
            tokenizer(prompts, padding="max_length", max_length=512)
        """,
        "no training": """
            tokenizer(prompt, padding="max_length", max_length=2048)
        """,
        "fixed shapes": """
            import torch_xla
            data.map(f)
            tokenizer(texts, padding="max_length", max_length=2048)
        """,
    },
    StateDictDuplicates: {
        "bound to something else": """
            def main(model, loader):
                saved = torch.load("a.pt", map_location="cpu")
                model.load_state_dict(saved)
                saved = None
                for x in loader:
                    model(x).mean().backward()
        """,
        "the model takes over what was loaded": """
            def main(model, loader):
                saved = torch.load("a.pt", map_location="cpu")
                model.load_state_dict(saved, assign=True)
                train_one_epoch(model)
        """,
        "only loaded": """
            def resume(model):
                saved = torch.load("a.pt", map_location="cpu")
                model.load_state_dict(saved)
                model.train()
        """,
        "a snapshot on the host": """
            def snapshot(model, device):
                return {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
        """,
        "a full state dict that is loaded": """
            set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
        """,
        "a full state dict on the host": """
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        """,
    },
    TorchLoadOnGpu: {
        "to a device that is named": """
            model.cuda().load_state_dict(torch.load("last.pt", map_location=device))
        """,
        "by position": """
            checkpoint = torch.load("last.pt", "cpu")
            model.cuda()
        """,
        "decided by the caller": """
            def resume(path, device, **options):
                checkpoint = torch.load(path, **options)
        """,
        "from memory": """
            buffer = io.BytesIO()
            model.cuda().load_state_dict(torch.load(buffer))
        """,
        "data": """
            tokens = torch.load("tokens.pt").cuda()
        """,
        "a program without devices": """
            model.load_state_dict(torch.load("last.pt"))
        """,
        "a schedule": """
            model.cuda()
            saved = torch.load("scheduler.pt")
            scheduler.load_state_dict(saved)
        """,
        "another load": """
            checkpoint = pickle.load(file)
            model.cuda()
        """,
    },
    CastAfterMove: {
        "a batch": """
            for x in loader:
                x = x.cuda().half()
        """,
        "another device": """
            model = model.to(device).to(other)
        """,
        "cast first": """
            model = model.half().to(device)
        """,
        "something between": """
            model.cuda()
            evaluate(model)
            model.half()
        """,
    },
    LateAllocatorSettings: {
        "before the first tensor": """
            import os
            os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
            x = torch.zeros(4, device="cuda")
        """,
        "only asked whether there is a GPU": """
            import os
            if torch.cuda.is_available():
                os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        """,
        "in another function": """
            import os
            def run(x):
                return x.cuda()

            os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        """,
    },
    FsdpFlags: {
        "blocks in a comprehension": """
            from torch.distributed.fsdp import fully_shard
            blocks = [fully_shard(block) for block in model.blocks]
        """,
        "nested by hand": """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            model.encoder = FSDP(model.encoder)
            model.decoder = FSDP(model.decoder)
        """,
        "decided elsewhere": """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            model = FSDP(model, **options)
        """,
        "the root stays whole": """
            from torch.distributed.fsdp import fully_shard
            for block in model.blocks:
                fully_shard(block, reshard_after_forward=True)
            fully_shard(model, reshard_after_forward=False)
        """,
    },
    DdpBucketView: {
        "on purpose": """
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=False)
        """,
        "gradients that are detached": """
            model = torch.nn.parallel.DistributedDataParallel(model)
            for p in model.parameters():
                p.grad.detach_()
        """,
        "of another library": """
            from apex.parallel import DistributedDataParallel
            model = DistributedDataParallel(model)
        """,
        "evaluation only": """
            model = torch.nn.parallel.DistributedDataParallel(model.eval())
        """,
        "a type is asked for": """
            wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        """,
    },
}


def snippets(table):
    return [
        pytest.param(rule, text, id=f"{rule.code}-{name}")
        for rule, texts in table.items()
        for name, text in texts.items()
    ]


@pytest.mark.parametrize(("rule", "text"), snippets(BAD))
def test_what_costs_memory_is_reported_once(rule, text):
    assert len(lines(rule, text)) == 1


@pytest.mark.parametrize(("rule", "text"), snippets(GOOD))
def test_what_costs_none_or_is_needed_is_not_reported(rule, text):
    assert lines(rule, text) == []


def test_bytes_lost_by_rounding_pinned_memory_are_exact():
    text = "import torch\nx = torch.empty((3, 11, 2**20), pin_memory=True).half()\ny = torch.zeros(33, 1048576).pin_memory()\n"
    (finding,) = PinnedMemoryWaste().check(Source.from_text(text, "train.py"))
    assert (finding.line, finding.nbytes) == (3, 256 * 2**20 - 33 * 4 * 2**20)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (
            DdpBucketView,
            "DistributedDataParallel(\n    model,\n    device_ids=[rank],  # this one\n)",
            "DistributedDataParallel(\n    model,\n    device_ids=[rank], gradient_as_bucket_view=True,  # this one\n)",
        ),
        (DdpBucketView, "DistributedDataParallel((model))", None),
        (
            TorchLoadOnGpu,
            "model.cuda().load_state_dict(torch.load(path, weights_only=True)['model'])",
            "model.cuda().load_state_dict(torch.load(path, weights_only=True, map_location=\"cpu\")['model'])",
        ),
        (
            RetainGraph,
            "for x in loader:\n    loss = model(x)\n    loss.backward(retain_graph=True)",
            "for x in loader:\n    loss = model(x)\n    loss.backward()",
        ),
        (RetainGraph, "first.backward(retain_graph=True)\nsecond.backward()", None),
    ],
)
def test_corrections_add_or_remove_one_argument(rule, before, after):
    text = "import torch\nfrom torch.nn.parallel import DistributedDataParallel\n{}\n"
    path = "train.py"
    better, _ = fix_text(text.format(before), path, lambda source: rule().check(source), unsafe=True)
    assert better == text.format(after or before)
    assert fix_text(text.format(before), path, lambda source: rule().check(source))[1] == ()
