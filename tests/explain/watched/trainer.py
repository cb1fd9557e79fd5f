"""A training with Hugging Face's Trainer whose fourth step fails; --watch watches it."""

import sys

import out_of_memory
import torch
from transformers import Trainer, TrainingArguments

import memlint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(4, 2), 0

    def forward(self, x, labels):
        self.calls += 1
        if self.calls == 4:
            out_of_memory.fail()
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


data = [{"x": torch.ones(4), "labels": torch.tensor(1)} for _ in range(64)]
options = TrainingArguments(
    "out", max_steps=8, per_device_train_batch_size=4, report_to=[], disable_tqdm=True, use_cpu=True
)
callbacks = [memlint.watch().for_trainer()] if "--watch" in sys.argv else []
Trainer(Model(), options, train_dataset=data, callbacks=callbacks).train()
