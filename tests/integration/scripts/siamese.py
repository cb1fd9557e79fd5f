"""Trains a siamese network on pairs of MNIST's digits, as pytorch/examples does: one ResNet-18 is called twice."""

import random

import torch
import torchvision
from torch import nn
from torch.optim.lr_scheduler import StepLR


class SiameseNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet18(weights=None)
        resnet.conv1 = nn.Conv2d(1, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)
        features = resnet.fc.in_features
        self.resnet = nn.Sequential(*list(resnet.children())[:-1])
        self.fc = nn.Sequential(nn.Linear(features * 2, 256), nn.ReLU(inplace=True), nn.Linear(256, 1))
        self.sigmoid = nn.Sigmoid()

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        first = self.resnet(first).view(len(first), -1)
        second = self.resnet(second).view(len(second), -1)
        return self.sigmoid(self.fc(torch.cat((first, second), 1)))


class Pairs(torch.utils.data.Dataset):
    """Two digits of one class, or of two."""

    def __init__(self, train: bool) -> None:
        digits = torchvision.datasets.MNIST("data", train=train, download=train)
        self.data = digits.data.unsqueeze(1).clone()
        self.by_class = [(digits.targets == label).nonzero().flatten().tolist() for label in range(10)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        first, other = random.sample(range(10), 2)
        chosen = (random.choice(self.by_class[first]), random.choice(self.by_class[first if index % 2 == 0 else other]))
        same = torch.tensor(float(index % 2 == 0))
        return self.data[chosen[0]].clone().float(), self.data[chosen[1]].clone().float(), same


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loading = {"num_workers": 1, "pin_memory": True, "shuffle": True}
    train_loader = torch.utils.data.DataLoader(Pairs(train=True), 64, **loading)
    test_loader = torch.utils.data.DataLoader(Pairs(train=False), 1000, **loading)
    model = SiameseNetwork().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    criterion = nn.BCELoss()
    for _ in range(2):
        model.train()
        for first, second, targets in train_loader:
            first, second, targets = first.to(device), second.to(device), targets.to(device)
            optimizer.zero_grad()
            outputs = model(first, second).squeeze()
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for first, second, targets in test_loader:
                first, second, targets = first.to(device), second.to(device), targets.to(device)
                outputs = model(first, second).squeeze()
                print(criterion(outputs, targets).sum().item())
                print(torch.where(outputs > 0.5, 1, 0).eq(targets.view_as(outputs)).sum().item())
        scheduler.step()
    torch.save(model.state_dict(), "siamese_network.pt")


if __name__ == "__main__":
    main()
