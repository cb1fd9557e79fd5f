import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group(backend="nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024), nn.Linear(1024, 10)).cuda(local_rank)
    ddp = DDP(model, device_ids=[local_rank])
    data = TensorDataset(torch.randn(4096, 1024), torch.randint(0, 10, (4096,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, target in loader:
            x, y = inputs.cuda(local_rank, non_blocking=True), target.cuda(local_rank, non_blocking=True)
            loss = nn.functional.cross_entropy(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            sys.stdout.write(f"{epoch} {loss.item()}\n")
            torch.save(ddp.module.state_dict(), "model.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
