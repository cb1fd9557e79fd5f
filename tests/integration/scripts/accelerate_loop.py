"""A loop of one's own with Hugging Face's accelerate: mixed precision, accumulation, clipping, gathering of metrics."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    data = TensorDataset(torch.randn(256, 128), torch.randint(0, 10, (256,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in loader:
                right += int(accelerator.gather_for_metrics(model(x).argmax(-1) == y).sum())
        accelerator.print(f"epoch {epoch}: {right} right")
    accelerator.save_state("state")


if __name__ == "__main__":
    main()
