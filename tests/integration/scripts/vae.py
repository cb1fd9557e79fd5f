"""Trains a variational autoencoder on MNIST, as pytorch/examples does, and samples from it without gradients."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import datasets, transforms
from torchvision.utils import save_image

BATCH = 128
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
loaders = {
    train: torch.utils.data.DataLoader(
        datasets.MNIST("data", train=train, download=train, transform=transforms.ToTensor()),
        batch_size=BATCH,
        shuffle=train,
        num_workers=1,
        pin_memory=True,
    )
    for train in (True, False)
}


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 400)
        self.fc21 = nn.Linear(400, 20)
        self.fc22 = nn.Linear(400, 20)
        self.fc3 = nn.Linear(20, 400)
        self.fc4 = nn.Linear(400, 784)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h1 = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        std = torch.exp(0.5 * logvar)
        return self.decode(mu + torch.randn_like(std) * std), mu, logvar


def loss_of(output: torch.Tensor, x: torch.Tensor, mu: torch.Tensor, logvar: torch.Tensor) -> torch.Tensor:
    entropy = F.binary_cross_entropy(output, x.view(-1, 784), reduction="sum")
    divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return entropy + divergence


model = VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def train() -> None:
    model.train()
    total = 0.0
    for data, _ in loaders[True]:
        data = data.to(device)
        optimizer.zero_grad()
        output, mu, logvar = model(data)
        loss = loss_of(output, data, mu, logvar)
        loss.backward()
        total += loss.item()
        optimizer.step()
    print(total / len(loaders[True].dataset))


def test(epoch: int) -> None:
    model.eval()
    with torch.no_grad():
        for i, (data, _) in enumerate(loaders[False]):
            data = data.to(device)
            output, mu, logvar = model(data)
            loss_of(output, data, mu, logvar).item()
            if i == 0:
                pairs = torch.cat([data[:8], output.view(BATCH, 1, 28, 28)[:8]])
                save_image(pairs.cpu(), f"results/reconstruction_{epoch}.png", nrow=8)


if __name__ == "__main__":
    os.makedirs("results", exist_ok=True)
    for epoch in range(1, 3):
        train()
        test(epoch)
        with torch.no_grad():
            sample = model.decode(torch.randn(64, 20).to(device)).cpu()
            save_image(sample.view(64, 1, 28, 28), f"results/sample_{epoch}.png")
