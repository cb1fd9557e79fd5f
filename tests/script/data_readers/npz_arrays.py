import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = np.load("data/moving_digits.npz")
x_train, y_train = data["x_train"], data["y_train"]
x_train = x_train.reshape(-1, 1, 28, 28).astype("float32") / 255.0
y_train = y_train.astype("int64")
mean, std = x_train.mean(), x_train.std()
x_train = (x_train - mean) / (std + 1e-8)
idx = np.random.permutation(len(x_train))
x_train, y_train = x_train[idx], y_train[idx]
ds = TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))
loader = DataLoader(ds, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 26 * 26, 10)).cuda()
opt = torch.optim.Adam(model.parameters())
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
