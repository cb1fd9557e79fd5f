"""Large batches of made-up data are as those of a loader, and take the memory of a few samples."""

from tests.script.isolated import needs, run

FEW = "8 samples that are made up stand for all of a batch of 512"
DATA = """\
import numpy as np, resource, torch
from torch.utils.data import DataLoader, Dataset
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
class Files(Dataset):
    num_loaded = 0
    def __init__(self, side): self.side = side
    def __len__(self): return 2048
    def __getitem__(self, index):
        Files.num_loaded += 1
        image = np.load(f"images/{index // 2048}.npy", mmap_mode="r")[: 3 * self.side**2]
        image = torch.from_numpy(image.astype(np.float32).reshape(3, self.side, self.side)) + 1
        return {"image": image, "label": index, "name": f"{index}.jpg"}
"""


def test_a_large_batch_is_as_a_loader_makes_it(tmp_path):
    ran = run(
        tmp_path / "p",
        DATA
        + """\
before = peak()
for batch in DataLoader(Files(256), 512, shuffle=True, num_workers=2):
    image = batch["image"]
    print(image.shape, image.dtype, image.is_contiguous(), image.stride(), len(batch["name"]), batch["label"].shape)
    break
print(Files.num_loaded, peak() - before < 128, image[:8].mean().item())
image.sub_(0.5)
image[-1] = 3
print(image[-1].mean().item(), image[-2].mean().item(), image[0].mean().item())
""",
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "torch.Size([512, 3, 256, 256]) torch.float32 True (196608, 65536, 256, 1) 512 torch.Size([512])",
        "8 True 1.0",
        "3.0 -0.5 0.5",
    ]
    assert FEW in ran.assumptions


def test_a_collate_function_may_take_samples_apart(tmp_path):
    ran = run(
        tmp_path / "p",
        DATA
        + """\
def collate(samples):
    labels = torch.tensor([sample.pop("label") for sample in samples])
    return torch.stack([sample["image"] for sample in samples], dim=1), labels, [len(sample) for sample in samples]
image, labels, lengths = next(iter(DataLoader(Files(128), 512, collate_fn=collate)))
print(image.shape, image[0, -1, 0, 0].item(), labels.tolist()[:10], set(lengths), Files.num_loaded)
""",
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["torch.Size([3, 512, 128, 128]) 1.0 [0, 1, 2, 3, 4, 5, 6, 7, 0, 1] {2} 8"]


def test_small_batches_samples_that_differ_and_data_that_is_there_are_loaded_whole(tmp_path):
    ran = run(
        tmp_path / "p",
        DATA
        + """\
class Ragged(Files):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return sample["image"][:, : 1 + index % 200]
class Objects(Files):
    def __getitem__(self, index): return object(), super().__getitem__(index)["image"]
class There(Dataset):
    num_loaded = 0
    def __len__(self): return 128
    def __getitem__(self, index):
        There.num_loaded += 1
        return torch.full((3, 256, 256), float(index))
print(next(iter(DataLoader(There(), 128)))[-1].mean().item(), There.num_loaded)
for data, collate in ((Files(16), None), (Ragged(256), len), (Objects(256), len)):
    Files.num_loaded = 0
    next(iter(DataLoader(data, 128, collate_fn=collate)))
    print(Files.num_loaded)
""",
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["127.0 128", "128", "128", "128"]
    assert not any("stand for all" in text for text in ran.assumptions)


def test_a_sample_that_can_be_made_stands_for_those_that_fail_and_for_parts_that_do_not_fit(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import numpy as np, torch
        from torch.utils.data import DataLoader, Dataset
        class Parts(Dataset):
            def __len__(self): return 64
            def __getitem__(self, index):
                image = np.load("images/0.npy", mmap_mode="r")[:64].astype(np.float32)
                if index % 3 == 1:
                    raise KeyError(index)
                return {"image": torch.from_numpy(image[: 16 if index % 3 else 48]), "label": index}
        for batch in DataLoader(Parts(), 32, num_workers=2):
            print(batch["image"].shape, batch["label"].shape)
        class More(Parts):
            def __getitem__(self, index): return super().__getitem__([2][index])
        for batch in DataLoader(More(), batch_sampler=[[40, 41], [50]]):
            print(batch["image"].shape, batch["label"].tolist())
        class None_(Parts):
            def __getitem__(self, index): raise KeyError("always")
        for batch in DataLoader(None_(), 32): pass
        """,
        fake=True,
    )
    assert ran.stdout.splitlines()[:2] == ["torch.Size([32, 48]) torch.Size([32])"] * 2
    assert ran.stdout.splitlines()[2:] == ["torch.Size([2, 16]) [2, 2]", "torch.Size([1, 16]) [2]"]
    assert "always" in str(ran.error)
    assert "one sample that is made up stands for those of a batch that fail, or fit no others" in ran.assumptions


@needs("lightning")
def test_lightning_validates_after_more_batches_than_were_made_up(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import lightning, numpy as np, torch
        rows = torch.from_numpy(np.load("rows.npy")[:64].astype(np.float32)).view(8, 8)
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)
            def training_step(self, batch): return self.layer(batch).sum()
            def validation_step(self, batch): self.layer(batch)
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
        loader = torch.utils.data.DataLoader(rows, 2)
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
        lightning.Trainer(max_steps=2, val_check_interval=100, **options).fit(Model(), loader, loader)
        print("fitted")
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == "fitted"
