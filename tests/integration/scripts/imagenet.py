"""Trains a ResNet on images that are made up, as pytorch/examples' imagenet with --dummy: DataParallel, SGD, accuracy."""

import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, models, transforms


def accuracy(output: torch.Tensor, target: torch.Tensor) -> list[float]:
    with torch.no_grad():
        _, best = output.topk(5, 1, True, True)
        right = best.t().eq(target.view(1, -1).expand(5, len(target)))
        return [right[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / len(target)).item() for k in (1, 5)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-a", "--arch", default="resnet18")
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("-j", "--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    model = torch.nn.DataParallel(models.__dict__[options.arch]()).cuda()
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    loaders = [
        torch.utils.data.DataLoader(
            datasets.FakeData(size, (3, 224, 224), 1000, transforms.ToTensor()),
            batch_size=options.batch_size,
            shuffle=size > 50_000,
            num_workers=options.workers,
            pin_memory=True,
        )
        for size in (1_281_167, 50_000)
    ]
    for epoch in range(options.epochs):
        model.train()
        for number, (images, target) in enumerate(loaders[0]):
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            print(number, len(loaders[0]), loss.item(), *accuracy(output, target))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for images, target in loaders[1]:
                images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
                output = model(images)
                print(criterion(output, target).item(), *accuracy(output, target))
        scheduler.step()
        state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, "checkpoint.pth.tar")


if __name__ == "__main__":
    main()
