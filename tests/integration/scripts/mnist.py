"""Trains a convolutional network on MNIST, as pytorch/examples does: argparse, Adadelta, workers, a large test batch."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--save-model", action="store_true")
    options = parser.parse_args()
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    loading = {"num_workers": 1, "persistent_workers": True, "pin_memory": True, "shuffle": True}
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    loaders = [
        torch.utils.data.DataLoader(datasets.MNIST("data", train, transform, download=train), size, **loading)
        for train, size in ((True, options.batch_size), (False, options.test_batch_size))
    ]
    model = Net().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=options.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(options.epochs):
        model.train()
        for number, (images, labels) in enumerate(loaders[0]):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            output = model(images)
            loss = F.nll_loss(output, labels)
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                print(f"{number * len(images)}/{len(loaders[0].dataset)}: {loss.item():.6f}")
        model.eval()
        num_right = 0
        with torch.no_grad():
            for images, labels in loaders[1]:
                images, labels = images.to(device), labels.to(device)
                output = model(images)
                F.nll_loss(output, labels, reduction="sum").item()
                num_right += output.argmax(dim=1, keepdim=True).eq(labels.view(-1, 1)).sum().item()
        print(num_right / len(loaders[1].dataset))
        scheduler.step()
    if options.save_model:
        torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
