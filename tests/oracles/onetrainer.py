"""LoRA of Flux 2 Klein 9B as OneTrainer trains it on one GPU, for the figures of PyTorch's issue 175058.

The order of operations is that of commit 72dcf1b6 of February 2026 with its preset `#flux2 LoRA 16GB`, batch 1: weights of
the blocks and products in 8 bits, each block checkpointed and compiled with its checkpoint. The model is diffusers'.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_IMAGE, _TEXT = 1024, 512
"""Tokens: of an image of 512 by 512 pixels, and of its text."""
_CONTEXT = 12_288
_RANK = 16


def _rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / 127.0).clamp(min=1e-30)
    return x.float().mul(1.0 / scale).round_().clamp_(-128.0, 127.0).to(torch.int8), scale


class _Int8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight, weight_scale)
        with torch.no_grad():
            rounded, scale = _rounded(x)
            return torch._int_mm(rounded, weight.T).float().mul_(weight_scale * scale).to(torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        weight, weight_scale = ctx.saved_tensors
        with torch.no_grad():
            rounded, scale = _rounded(grads[0])
            product = torch._int_mm(rounded.contiguous(), weight)
            return product.float().mul_(weight_scale * scale).to(grads[0].dtype), None, None


class _Int8Linear(nn.Module):
    """A frozen product in 8 bits with a trained one of low rank in float32 beside it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        inputs, outputs = linear.in_features, linear.out_features
        weight = torch.zeros(outputs, inputs, dtype=torch.int8, device="cuda")
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", torch.tensor(1.0, device="cuda"))
        self.register_buffer("alpha", torch.tensor(1.0, device="cuda"))
        self.down = nn.Linear(inputs, _RANK, bias=False, device="cuda")
        self.up = nn.Linear(_RANK, outputs, bias=False, device="cuda")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.up(self.down(x))
        flat = x.reshape(-1, x.shape[-1])
        full: torch.Tensor = _Int8Product.apply(flat, self.weight, self.scale)  # type: ignore[no-untyped-call]
        return full.reshape(*x.shape[:-1], -1) + low * (self.alpha / _RANK)


class _Checkpointed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.dummy = torch.zeros((1,), device="cuda", requires_grad=True)

    def _run(self, _dummy: torch.Tensor, **arguments: Any) -> Any:
        return self.block(**arguments)

    def forward(self, **arguments: Any) -> Any:
        return checkpoint(self._run, self.dummy, use_reentrant=False, **arguments)


def _in_8_bits(module: nn.Module) -> None:
    """Replace the products within `module`."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                parent._modules[name] = _Int8Linear(child)


def _on_gpu(module: nn.Module) -> None:
    """Give the GPU what `module` has as `meta`, in bfloat16 and frozen."""
    for each in module.modules():
        for name, parameter in each._parameters.items():
            if parameter is not None and parameter.is_meta:
                made = torch.zeros(parameter.shape, dtype=torch.bfloat16, device="cuda")
                each._parameters[name] = nn.Parameter(made, requires_grad=False)


class Klein:
    """The training program; text and image are encoded before."""

    name = "onetrainer"
    device = "cuda"
    generates = False
    compiles = True
    compiles_model = True

    def setup(self) -> None:
        """Build the model and the optimizer."""
        import diffusers

        with torch.device("meta"):
            self.model = diffusers.Flux2Transformer2DModel(
                num_layers=8, num_single_layers=24, num_attention_heads=32, joint_attention_dim=_CONTEXT,
                guidance_embeds=False,
            ).train()  # fmt: skip
        for blocks in (self.model.transformer_blocks, self.model.single_transformer_blocks):
            _in_8_bits(blocks)
            for number, block in enumerate(blocks):
                blocks[number] = _Checkpointed(block)
                if self.compiles_model:
                    blocks[number].compile(fullgraph=True)
        _on_gpu(self.model)
        self.trained = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, fused=True)

    def step(self) -> None:
        """Take a step."""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self._loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self) -> torch.Tensor:
        noise, target = (torch.randn(1, _IMAGE, 128, device="cuda") for _ in range(2))
        flow = self.model(
            hidden_states=noise.bfloat16(),
            encoder_hidden_states=torch.randn(1, _TEXT, _CONTEXT, device="cuda", dtype=torch.bfloat16),
            timestep=torch.rand(1, device="cuda"),
            txt_ids=torch.zeros(1, _TEXT, 4, device="cuda"),
            img_ids=torch.zeros(1, _IMAGE, 4, device="cuda"),
        ).sample
        return nn.functional.mse_loss(flow.float(), target)
