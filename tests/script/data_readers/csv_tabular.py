import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAT = {"male": 0, "female": 1}


class Titanic(Dataset):
    def __init__(self, df):
        self.x = df[["Pclass", "Sex", "Age", "Fare"]].values.astype(np.float32)
        self.y = df["Survived"].values.astype(np.int64)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.tensor(self.y[i])


df = pd.read_csv("input/titanic/train.csv")
df["Sex"] = df["Sex"].map(CAT)
df["Age"] = df["Age"].fillna(df["Age"].median())
df["Fare"] = (df["Fare"] - df["Fare"].mean()) / df["Fare"].std()
df.drop(["Name", "Ticket"], axis=1, inplace=True)
train_df, valid_df = train_test_split(df, test_size=0.2, stratify=df["Survived"])
loader = DataLoader(Titanic(train_df), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
