"""Loaders of scripts load in this process, whatever they were told."""

import pytest

from memlint.script.data import Cut
from tests.script.isolated import needs, run

WORKERS = "DataLoader workers are left out: batches are loaded in this process"


def test_loaders_with_workers_load_here_in_every_way_of_calling(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os, torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(10).float()[:, None], torch.arange(10))
        options = [
            lambda: DataLoader(data, 4, True, None, None, 8, None, True, False, 60, None, "spawn"),
            lambda: DataLoader(data, batch_size=4, num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=3),
            lambda: DataLoader(data, 4, num_workers=2, multiprocessing_context="fork", pin_memory=True, in_order=False),
            lambda: DataLoader(data, 4, num_workers=2, pin_memory=True, pin_memory_device="cuda"),
        ]
        for make in options:
            loader = make()
            for epoch in range(2):
                batches = [(x.cuda(non_blocking=True).sum(), y) for x, y in loader]
                print(loader.num_workers, len(loader), len(batches), sum(len(y) for _, y in batches), batches[0][0].device)
        for bad in (dict(prefetch_factor=2), dict(persistent_workers=True), dict(num_workers=-1)):
            try:
                DataLoader(data, **bad)
            except ValueError as error:
                print(str(error)[:30])
        """,
    )
    assert ran.error is None, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["8 3 3 10 cuda:0"] * 2
    assert lines[2:8] == ["2 3 3 10 cuda:0"] * 6
    assert lines[8:] == [
        "prefetch_factor option could o",
        "persistent_workers option need",
        "num_workers option should be n",
    ]
    assert ran.assumptions == {WORKERS: 13}


def test_what_a_worker_asks_for_is_answered_as_in_one(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
        class Shards(IterableDataset):
            file = None
            def __iter__(self):
                info = get_worker_info()
                yield from range(info.id, 10, info.num_workers)
        class Opened(Dataset):
            file = None
            def __len__(self): return 4
            def __getitem__(self, i): return self.file[i]
        def open_file(worker):
            info = get_worker_info()
            assert worker == info.id and info.seed >= 0
            info.dataset.file = torch.arange(4) * 10
        print([x.tolist() for x in DataLoader(Shards(), 4, num_workers=4)])
        print([x.tolist() for x in DataLoader(Opened(), 2, num_workers=4, worker_init_fn=open_file)])
        loader = DataLoader(Shards(), 4, num_workers=4, persistent_workers=True)
        print([len(list(loader)) for epoch in range(2)], get_worker_info())
        """,
    )
    assert ran.stdout.splitlines() == [
        "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]",
        "[[0, 10], [20, 30]]",
        "[3, 3] None",
    ]


def test_loaders_without_workers_are_as_they_were(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from torch.utils.data import DataLoader, IterableDataset, get_worker_info
        class Stream(IterableDataset):
            def __iter__(self):
                assert get_worker_info() is None
                yield from range(3)
        print([x.tolist() for x in DataLoader(Stream())])
        torch.set_default_device("cuda")
        loader = DataLoader(range(4), 2, shuffle=True, generator=torch.Generator(device="cuda"))
        print(len(list(loader)), next(iter(loader)).device)
        """,
    )
    assert ran.stdout.splitlines() == [
        "[[0], [1], [2]]",
        "2 cuda:0",
    ]
    assert WORKERS not in ran.assumptions


def test_loaders_are_cut_and_say_so(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
        class Stream(IterableDataset):
            def __iter__(self): return iter(range(100))
        class Sized(Stream):
            def __len__(self): return 100
        for loader in (
            DataLoader(range(100), 10), DataLoader(range(100), 10, num_workers=3, persistent_workers=True),
            DataLoader(Sized(), 10), DataLoader(range(15), 10),
            DataLoader(range(100), batch_sampler=BatchSampler(SequentialSampler(range(100)), 10, True)),
            DataLoader(range(100), batch_size=None),
        ):
            print(len(loader), [len(list(loader)) for epoch in range(2)])
        try:
            len(DataLoader(Stream(), 10))
        except TypeError:
            print(len(list(DataLoader(Stream(), 10))))
        loader = DataLoader(range(100), 10)
        first, second = iter(loader), iter(loader)
        print(sum(1 for _ in zip(first, second)))
        """,
        limit=3,
    )
    assert ran.stdout.splitlines() == [*["3 [3, 3]"] * 3, "2 [2, 2]", *["3 [3, 3]"] * 2, "3", "3"]


def test_samples_without_memory_are_collated(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Large(Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return {"image": torch.zeros(3, 512, 512), "target": i}
        for batch in DataLoader(Large(), 2, num_workers=2, pin_memory=True):
            print(batch["image"].cuda().shape, batch["target"].tolist())
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [f"torch.Size([2, 3, 512, 512]) {ids}" for ids in ([0, 1], [2, 3])]


@needs("accelerate")
def test_loaders_that_accelerate_wraps_are_cut_too(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader
        accelerator = Accelerator(gradient_accumulation_steps=2)
        model = torch.nn.Linear(1, 1)
        loader = DataLoader(torch.arange(100.0)[:, None], 10, shuffle=True, num_workers=4, pin_memory=True)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
        for epoch in range(2):
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch).sum())
                    print(len(loader), batch.shape, batch.device, accelerator.sync_gradients)
        """,
        limit=3,
    )
    assert ran.error is None, ran.stderr
    epoch = [f"4 torch.Size([10, 1]) cuda:0 {sync}" for sync in (False, True, False, True)]  # whole steps
    assert ran.stdout.splitlines() == epoch * 2


@needs("lightning")
def test_a_lightning_trainer_goes_through_cut_loaders(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import lightning, torch
        from torch.utils.data import DataLoader
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def training_step(self, batch, i):
                print("train", i, batch.device)
                return self.layer(batch).sum()
            def validation_step(self, batch, i):
                print("validate", i)
                self.log("loss", self.layer(batch).sum())
            def configure_optimizers(self): return torch.optim.Adam(self.parameters())
        loader = lambda: DataLoader(torch.arange(100.0)[:, None], 10, num_workers=4, persistent_workers=True)
        trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, num_sanity_val_steps=0, enable_progress_bar=False)
        trainer.fit(Model(), loader(), loader())
        print(trainer.num_training_batches, trainer.checkpoint_callback.best_model_path != "")
        """,
        limit=2,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-5:] == ["train 0 cuda:0", "train 1 cuda:0", "validate 0", "validate 1", "2 True"]
    assert any(name.endswith(".ckpt") for name in ran.writes)


@pytest.mark.parametrize(
    ("batches", "accumulation", "limit"), [(3, 1, 3), (1, 1, 1), (3, 4, 8), (1, 4, 4), (8, 4, 8), (9, 4, 12), (3, 2, 4)]
)
def test_a_loader_is_cut_to_whole_steps_where_their_size_is_known(batches, accumulation, limit):
    cut = Cut(batches)
    cut.accumulation = accumulation
    assert cut.limit == limit


def given(cut: Cut, *progress: tuple[int, bool]) -> int:
    """The batches that a loop takes in which `progress` is made, which begins with the first."""
    for number, now in enumerate(progress):
        cut.progress = lambda now=now: now
        if cut.is_enough(number, progress[0]):
            return number
    return len(progress)


def test_a_loop_that_accumulates_gets_the_batches_of_two_steps():
    accumulating = [(number // 4, number % 4 > 0) for number in range(100)]
    assert given(Cut(3), *accumulating) == 8
    assert given(Cut(9), *accumulating) == 12  # which ends a step
    assert given(Cut(1), *accumulating) == 4
    assert given(Cut(3), *accumulating[8:]) == 4  # in the next epoch, a whole step


def test_a_loop_that_does_not_train_gets_no_more():
    assert given(Cut(3), *[(0, False)] * 100) == 3
    assert given(Cut(3), *[(1, False)] * 100) == 3
    assert given(Cut(3), *[(0, True)] * 100) == 3  # an evaluation within a step


@needs("accelerate", "transformers")
def test_libraries_say_how_many_batches_a_step_has(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import sys, torch
        from torch.utils.data import DataLoader
        loader = DataLoader(torch.zeros(400), 4)
        print(len(loader))
        from accelerate import Accelerator
        Accelerator(gradient_accumulation_steps=3)
        print(len(loader))
        from transformers import TrainingArguments
        TrainingArguments("out", gradient_accumulation_steps=8, use_cpu=True)
        print(len(loader), len(list(loader)))
        """,
        limit=2,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["2", "6", "16 16"]


def test_a_sampler_may_pass_on_the_data_source_that_older_versions_took(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from torch.utils.data import DataLoader, Sampler
        class Endless(Sampler):
            def __init__(self, source): super().__init__(source)
            def __iter__(self): return iter([1, 0])
        print(list(Endless([5, 6])), len(list(DataLoader([5, 6], sampler=Endless([5, 6])))))
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["[1, 0] 2"]


@needs("datasets")
def test_a_data_set_is_mapped_here_whatever_number_of_processes_is_asked_for(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import os
        from datasets import Dataset, DatasetDict
        data = Dataset.from_dict({"text": ["a b", "c", "d e f"] * 8})
        split = DatasetDict({"train": data}).map(lambda row: {"pid": os.getpid()}, num_proc=4)
        kept = data.filter(lambda row: len(row["text"]) > 1, num_proc=4)
        print(set(split["train"]["pid"]) == {os.getpid()}, len(kept))
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == "True 16"
