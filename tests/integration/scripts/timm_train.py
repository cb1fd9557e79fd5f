"""Trains a timm model: GradScaler, EMA, mixup, label smoothing, a scheduler, workers."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2, NativeScaler


class Images(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, 224, 224), index % 10


def main() -> None:
    model = timm.create_model("resnet18", num_classes=10).cuda()
    ema = ModelEmaV2(model, decay=0.999)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=10)
    scaler = NativeScaler()
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    loss_of = SoftTargetCrossEntropy()
    loader = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=4, pin_memory=True, drop_last=True)
    for epoch in range(2):
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            images, targets = mixup(images, labels)
            with torch.autocast("cuda", torch.float16):
                loss = loss_of(model(images), targets)
            optimizer.zero_grad()
            scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            ema.update(model)
            torch.cuda.synchronize()
        scheduler.step(epoch + 1)
        with torch.no_grad():
            for images, labels in loader:
                print(timm.utils.accuracy(ema.module(images.cuda()), labels.cuda(), topk=(1, 5)))
    torch.save({"model": model.state_dict(), "ema": ema.module.state_dict()}, "best.pth.tar")


if __name__ == "__main__":
    main()
