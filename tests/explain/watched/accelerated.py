"""A loop with accelerate whose fourth step fails; --watch watches it."""

import sys

import accelerate
import out_of_memory
import torch

import memlint

trackers = [memlint.watch().for_accelerate()] if "--watch" in sys.argv else None
accelerator = accelerate.Accelerator(cpu=True, log_with=trackers)
accelerator.init_trackers("run")
model = torch.nn.Linear(4, 2)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
for step in range(8):
    if step == 3:
        out_of_memory.fail()
    loss = model(torch.ones(4, 4)).sum()
    accelerator.backward(loss)
    optimizer.step()
    accelerator.log({"loss": loss.item()}, step=step)
accelerator.end_training()
