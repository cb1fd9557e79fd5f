"""A script of today, with QLoRA, Liger's kernels and FlashAttention, run as it is."""

from __future__ import annotations

import pytest

from tests.script.isolated import needs
from tests.script.running import run_text

SCRIPT = """\
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from trl import SFTConfig, SFTTrainer

raw = Tokenizer(models.WordLevel(unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
raw.train_from_iterator(["the quick brown fox jumps over the lazy dog"], trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>", "</s>"]))
special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **special)
data = Dataset.from_dict({"text": ["the quick brown fox jumps over the lazy dog " * 64] * 64})
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=4, vocab_size=8000)
LlamaConfig.save_pretrained(config, "tinyllama"); tokenizer.save_pretrained("tinyllama")
model = AutoModelForCausalLM.from_pretrained(
    "tinyllama",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16),
    attn_implementation="flash_attention_2", dtype=torch.bfloat16, device_map={"": 0},
)
trainer = SFTTrainer(
    model=model, train_dataset=data, processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(output_dir="out", per_device_train_batch_size=4, max_length=512, use_liger_kernel=True, bf16=True, gradient_checkpointing=True, optim="paged_adamw_8bit", max_steps=4, report_to="none"),
)
trainer.train()
print(torch.cuda.max_memory_allocated())
"""


@pytest.mark.slow
@needs("bitsandbytes", "datasets", "liger_kernel", "peft", "transformers", "trl")
def test_a_script_of_quantized_fine_tuning_has_few_assumptions(tmp_path):
    checked = run_text(tmp_path, SCRIPT)
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    texts = [each.text for each in workload.assumptions]
    assert len(texts) <= 6, texts
    assert any("bitsandbytes" in text for text in texts)
    assert any("flash-attn" in text for text in texts)
    assert any("Triton" in text for text in texts)
    peak = workload.estimate.peak.requested.estimate
    weights = 2 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 2816) // 2 + 2 * 2 * 8000 * 1024
    assert weights < peak < 8 * weights


UNSLOTH = """\
from unsloth import FastLanguageModel
import torch
from transformers import LlamaConfig, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

raw = Tokenizer(models.WordLevel(unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
raw.train_from_iterator(["the quick brown fox"], trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>", "</s>"]))
special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>", "bos_token": "</s>"}
PreTrainedTokenizerFast(tokenizer_object=raw, **special).save_pretrained("tinyllama")
sizes = dict(hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4, vocab_size=8000)
LlamaConfig(num_hidden_layers=2, pad_token_id=1, dtype="bfloat16", **sizes).save_pretrained("tinyllama")
model, _ = FastLanguageModel.from_pretrained("tinyllama", max_seq_length=512, load_in_4bit=True, dtype=torch.bfloat16, fix_tokenizer=False)
projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, target_modules=projections, use_gradient_checkpointing="unsloth")
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
for _ in range(3):
    tokens = torch.randint(0, 8000, (4, 512), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@needs("unsloth", "bitsandbytes", "peft", "transformers", "trl", "triton")
def test_patches_of_unsloth_run_as_they_are(tmp_path):
    (workload,) = run_text(tmp_path, UNSLOTH).report.workloads
    assert workload.error is None, workload.error
    texts = [each.text for each in workload.assumptions]
    assert len(texts) <= 6, texts
    assert any("Triton" in text for text in texts)
    adapters = 2 * 16 * (2 * 2048 + 2 * (1024 + 256) + 3 * (1024 + 2816))  # of two layers
    assert workload.estimate.categories["optimizer_state"] >= 2 * 4 * adapters
