"""Trains a GAN, as the DCGAN of pytorch/examples: two optimizers, two backwards for one of them, images saved between."""

import argparse

import torch
from torch import nn
from torchvision import datasets, transforms, utils

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=64)
parser.add_argument("--niter", type=int, default=2)
parser.add_argument("--accel", action="store_true")
options = parser.parse_args()
device = torch.device("cuda" if options.accel and torch.cuda.is_available() else "cpu")
NOISE, WIDTH = 100, 64


def generator() -> nn.Sequential:
    layers: list[nn.Module] = [nn.ConvTranspose2d(NOISE, WIDTH * 8, 4, 1, 0, bias=False)]
    for wide in (8, 4, 2):
        layers += [nn.BatchNorm2d(WIDTH * wide), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(WIDTH * wide, WIDTH * wide // 2, 4, 2, 1, bias=False)]
    layers += [nn.BatchNorm2d(WIDTH), nn.ReLU(True), nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for wide in (1, 2, 4):
        layers += [nn.Conv2d(WIDTH * wide, WIDTH * wide * 2, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(WIDTH * wide * 2), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(WIDTH * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0))


images = datasets.FakeData(image_size=(3, 64, 64), transform=transforms.ToTensor())
loader = torch.utils.data.DataLoader(images, options.batchSize, shuffle=True, num_workers=2)
netG, netD = generator().to(device), discriminator().to(device)
criterion = nn.BCELoss()
fixed_noise = torch.randn(options.batchSize, NOISE, 1, 1, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(options.niter):
    for i, data in enumerate(loader):
        netD.zero_grad()
        real = data[0].to(device)
        label = torch.full((len(real),), 1, dtype=real.dtype, device=device)
        output = netD(real)
        errD_real = criterion(output, label)
        errD_real.backward()
        print(output.mean().item())
        noise = torch.randn(len(real), NOISE, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(0)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1)
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        print(f"[{epoch}][{i}/{len(loader)}] {errD.item():.4f} {errG.item():.4f}")
        if i % 100 == 0:
            utils.save_image(real, "real_samples.png", normalize=True)
            fake = netG(fixed_noise)
            utils.save_image(fake.detach(), f"fake_samples_epoch_{epoch:03d}.png", normalize=True)
    torch.save(netG.state_dict(), f"netG_epoch_{epoch}.pth")
    torch.save(netD.state_dict(), f"netD_epoch_{epoch}.pth")
