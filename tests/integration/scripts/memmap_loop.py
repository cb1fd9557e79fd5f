"""Pre-training in one file: batches from a memory map, evaluation first, accumulation, autocast, checkpoints."""

import math
import os
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

out_dir = "out"
eval_interval, eval_iters = 4, 20
batch_size, block_size, gradient_accumulation_steps = 4, 256, 5
n_layer, n_head, n_embd, vocab_size = 4, 4, 256, 50304
learning_rate, max_iters, warmup_iters = 6e-4, 9, 2
device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
compile = True  # noqa: A001
for setting in os.environ.get("SETTINGS", "").split():  # as a configurator does
    key, value = setting.split("=")
    globals()[key] = type(globals()[key])(value)

os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
ctx = nullcontext() if device == "cpu" else torch.amp.autocast(device_type=device, dtype=getattr(torch, dtype))


def get_batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    data = np.memmap(os.path.join("data", f"{split}.bin"), dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.words.weight = self.head.weight

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        hidden = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.layers(hidden, mask=mask, is_causal=True))
        return logits, nn.functional.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


model = Model().to(device)
scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), fused=device == "cuda")
raw_model = model
if compile:
    model = torch.compile(model)


@torch.no_grad()
def estimate_loss() -> dict[str, float]:
    model.eval()
    losses = {split: torch.zeros(eval_iters) for split in ("train", "val")}
    for split, each in losses.items():
        for k in range(eval_iters):
            x, y = get_batch(split)
            with ctx:
                _logits, loss = model(x, y)
            each[k] = loss.item()
    model.train()
    return {split: each.mean().item() for split, each in losses.items()}


best = 1e9
x, y = get_batch("train")
for iteration in range(max_iters + 1):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * min(1.0, (iteration + 1) / warmup_iters) * (1 + math.cos(iteration)) / 2
    if iteration % eval_interval == 0:
        losses = estimate_loss()
        if losses["val"] < best and iteration > 0:
            best = losses["val"]
            torch.save({"model": raw_model.state_dict(), "optimizer": optimizer.state_dict()}, f"{out_dir}/ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(x, y)
            loss = loss / gradient_accumulation_steps
        x, y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iteration}: loss {loss.item() * gradient_accumulation_steps:.4f}")
