"""Small training Programs for the oracles: the loop a user writes, on a device given by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixtures.models.bert import Bert, BertConfig
from fixtures.models.convnext import ConvNeXt, ConvNeXtConfig
from fixtures.models.gpt2 import GPT2, GPT2Config
from fixtures.models.llama import Llama, LlamaConfig
from fixtures.models.lstm_lm import LSTMConfig, LSTMLanguageModel
from fixtures.models.mixer import Mixer, MixerConfig
from fixtures.models.mlp import MLP, MLPConfig
from fixtures.models.resnet50 import ResNet50, ResNetConfig
from fixtures.models.swin import Swin, SwinConfig
from fixtures.models.unet import UNet, UNetConfig
from fixtures.models.vit import ViT, ViTConfig
from memlint.session.real.cpu import CpuMeasurement, measure_cpu_step

Inputs = Mapping[str, Tensor]
OptimizerFactory = Callable[[Any], torch.optim.Optimizer]


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)


class TrainingProgram:
    """One training step of `make_model()`: forward, loss, backward, optimizer step, zero_grad, in fp32."""

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        make_inputs: Callable[[str], Inputs],
        loss: Callable[[nn.Module, Inputs], tuple[Tensor, Tensor]],
        make_optimizer: OptimizerFactory = adamw,
        device: str = "cpu",
    ) -> None:
        self.make_model = make_model
        self.make_inputs = make_inputs
        self.loss = loss
        self.make_optimizer = make_optimizer
        self.device = device

    def setup(self) -> None:
        self.model = self.make_model().to(self.device).train()
        self.inputs = self.make_inputs(self.device)
        self.optimizer = self.make_optimizer(self.model.parameters())

    def step(self) -> None:
        _output, loss = self.loss(self.model, self.inputs)  # it stays alive through backward, as in a user's loop
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def token_inputs(batch: int, length: int, vocab: int) -> Callable[[str], Inputs]:
    def make(device: str) -> Inputs:
        return {
            "tokens": torch.randint(vocab, (batch, length), device=device),
            "targets": torch.randint(vocab, (batch, length), device=device),
        }

    return make


def image_inputs(batch: int, size: int, num_classes: int) -> Callable[[str], Inputs]:
    def make(device: str) -> Inputs:
        return {
            "images": torch.randn(batch, 3, size, size, device=device),
            "labels": torch.randint(num_classes, (batch,), device=device),
        }

    return make


def own_loss(model: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """For models that return (logits, loss)."""
    return model(**inputs)


def classification_loss(model: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
    logits = model(inputs["images"])
    return logits, F.cross_entropy(logits, inputs["labels"])


def denoising_loss(model: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
    noise = model(inputs["x"], inputs["timesteps"])
    return noise, F.mse_loss(noise, inputs["noise"])


def language_loss(model: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
    logits, _ = model(inputs["tokens"])
    return logits, F.cross_entropy(logits.flatten(0, 1), inputs["targets"].flatten())


def gpt2(
    optimizer: OptimizerFactory = adamw, device: str = "cpu", dropout: float = 0.0, batch: int = 4, length: int = 128
) -> TrainingProgram:
    config = GPT2Config(vocab_size=1000, block_size=128, num_layers=3, num_heads=4, embed_dim=128, dropout=dropout)
    return TrainingProgram(lambda: GPT2(config), token_inputs(batch, length, 1000), own_loss, optimizer, device)


def gpt2_dropout(
    optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, length: int = 128
) -> TrainingProgram:
    return gpt2(optimizer, device, 0.1, batch, length)


def llama(
    optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, length: int = 128
) -> TrainingProgram:
    config = LlamaConfig(1000, max_seq=256, num_layers=3, dim=128, num_heads=4, num_kv_heads=2, hidden_dim=352)
    return TrainingProgram(lambda: Llama(config), token_inputs(batch, length, 1000), own_loss, optimizer, device)


def bert(
    optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, length: int = 128
) -> TrainingProgram:
    config = BertConfig(1000, max_length=128, num_layers=3, num_heads=4, hidden_size=128, intermediate_size=512)

    def make_inputs(device: str) -> Inputs:
        input_ids = torch.randint(1, 1000, (batch, length), device=device)
        lengths = torch.arange(length, 0, -length // batch, device=device)[:batch]
        labels = torch.randint(1000, (batch, length), device=device)
        positions = torch.arange(length, device=device)
        return {
            "input_ids": input_ids,
            "attention_mask": (positions < lengths[:, None]).long(),
            "labels": labels.masked_fill(positions % 7 != 0, -100),
        }

    return TrainingProgram(lambda: Bert(config), make_inputs, own_loss, optimizer, device)


def vit(optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, size: int = 64) -> TrainingProgram:
    config = ViTConfig(image_size=size, patch_size=8, num_classes=100, num_layers=3, num_heads=4, embed_dim=128)
    return TrainingProgram(lambda: ViT(config), image_inputs(batch, size, 100), classification_loss, optimizer, device)


def mixer(optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, size: int = 64) -> TrainingProgram:
    config = MixerConfig(size, patch_size=8, num_classes=100, num_layers=3, dim=128, token_dim=96, channel_dim=512)
    return TrainingProgram(
        lambda: Mixer(config), image_inputs(batch, size, 100), classification_loss, optimizer, device
    )


def mlp(optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 64) -> TrainingProgram:
    config = MLPConfig(in_features=128, hidden_features=512, num_classes=10)

    def make_inputs(device: str) -> Inputs:
        return {
            "images": torch.randn(batch, 128, device=device),
            "labels": torch.randint(10, (batch,), device=device),
        }

    return TrainingProgram(lambda: MLP(config), make_inputs, classification_loss, optimizer, device)


def swin(optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, size: int = 64) -> TrainingProgram:
    config = SwinConfig(size, num_classes=100, embed_dim=32, depths=(2, 2, 2), num_heads=(1, 2, 4), window=4)
    return TrainingProgram(lambda: Swin(config), image_inputs(batch, size, 100), classification_loss, optimizer, device)


def resnet50(optimizer: OptimizerFactory = sgd, device: str = "cpu", batch: int = 4, size: int = 64) -> TrainingProgram:
    config = ResNetConfig(num_classes=100, width=16)
    return TrainingProgram(
        lambda: ResNet50(config), image_inputs(batch, size, 100), classification_loss, optimizer, device
    )


def convnext(
    optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 4, size: int = 64
) -> TrainingProgram:
    config = ConvNeXtConfig(num_classes=100, depths=(1, 1, 2, 1), dims=(32, 64, 96, 128))
    return TrainingProgram(
        lambda: ConvNeXt(config), image_inputs(batch, size, 100), classification_loss, optimizer, device
    )


def unet(optimizer: OptimizerFactory = adamw, device: str = "cpu", batch: int = 2) -> TrainingProgram:
    config = UNetConfig(image_size=32, channels=32, multipliers=(1, 2), num_groups=8, attention_sizes=(16,))

    def make_inputs(device: str) -> Inputs:
        return {
            "x": torch.randn(batch, 3, 32, 32, device=device),
            "timesteps": torch.randint(1000, (batch,), device=device),
            "noise": torch.randn(batch, 3, 32, 32, device=device),
        }

    return TrainingProgram(lambda: UNet(config), make_inputs, denoising_loss, optimizer, device)


def lstm(optimizer: OptimizerFactory = sgd, device: str = "cpu", batch: int = 4, length: int = 32) -> TrainingProgram:
    config = LSTMConfig(vocab_size=1000, embed_dim=64, hidden_size=96)
    return TrainingProgram(
        lambda: LSTMLanguageModel(config), token_inputs(batch, length, 1000), language_loss, optimizer, device
    )


PROGRAMS: Mapping[str, Callable[..., TrainingProgram]] = {
    "vit": vit,
    "mixer": mixer,
    "mlp": mlp,
    "gpt2": gpt2,
    "gpt2-dropout": gpt2_dropout,
    "bert": bert,
    "llama": llama,
    "swin": swin,
    "resnet50": resnet50,
    "convnext": convnext,
    "unet": unet,
    "lstm": lstm,
}
OPTIMIZERS: Mapping[str, OptimizerFactory] = {"adamw": adamw, "sgd": sgd}


@cache
def measured_step(program: str, optimizer: str) -> CpuMeasurement:
    """The real step on the CPU of a program in its default sizes, run once for all tests."""
    return measure_cpu_step(PROGRAMS[program](OPTIMIZERS[optimizer]))
