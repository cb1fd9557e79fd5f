import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


os.makedirs("outputs/traces", exist_ok=True)  # noqa: PTH103 -- each process of its own
dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(*[Block(256) for _ in range(4 // world_size)]).cuda()
stage = PipelineStage(model, rank, world_size, torch.device("cuda"))
schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(64, 256, device="cuda")
for _ in range(3):
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x, losses=[])
    optimizer.step()
    optimizer.zero_grad()
