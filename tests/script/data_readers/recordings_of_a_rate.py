"""Shards whose names begin with the split, and recordings that the program takes at one rate alone."""

import os
import wave

import numpy as np
import torch

shards = [name for name in os.listdir("data/tokens") if name.endswith(".bin") and name.startswith("corpus_train")]
tokens = np.concatenate([np.fromfile(os.path.join("data/tokens", name), dtype=np.uint16) for name in sorted(shards)])
signals = []
for number in range(12):
    with wave.open(f"data/speech/{number:04}.wav", "rb") as file:
        rate = file.getframerate()
        assert rate == 16000, "resample it first"
        signals.append(np.frombuffer(file.readframes(rate), dtype=np.int16)[:1600])
model = torch.nn.Linear(1600, 8).cuda()
optimizer = torch.optim.Adam(model.parameters())
batch = torch.from_numpy(np.stack(signals)).float()
for step in range(3):
    labels = torch.from_numpy(tokens[step * 12 : (step + 1) * 12].astype(np.int64) % 8)
    torch.nn.functional.cross_entropy(model(batch.cuda()), labels.cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
