"""A training with Lightning whose fourth step fails; --watch watches it."""

import sys

import lightning
import out_of_memory
import torch

import memlint


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        if index == 3:
            out_of_memory.fail()
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 4)), batch_size=4)
callbacks = [memlint.watch().for_lightning()] if "--watch" in sys.argv else []
options = {"accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False}
lightning.Trainer(callbacks=callbacks, enable_progress_bar=False, **options).fit(Model(), loader)
