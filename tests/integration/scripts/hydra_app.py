"""A training script configured by Hydra."""

import hydra
import torch
from omegaconf import DictConfig
from torch import nn


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    model = nn.Sequential(*[nn.Linear(config.width, config.width) for _ in range(config.depth)]).to(config.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for _ in range(config.steps):
        loss = model(torch.randn(config.batch, config.width, device=config.device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() > 1e9:
            break
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
