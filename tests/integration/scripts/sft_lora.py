"""Supervised fine-tuning with TRL and a LoRA adapter of peft; model and tokenizer are built from nothing."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer


def main() -> None:
    words = {word: number for number, word in enumerate(["<unk>", "<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>")
    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    data = Dataset.from_dict({"text": ["a b c d e f g h " * 8] * 64})
    arguments = SFTConfig(
        output_dir="sft",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=4,
        bf16=True,
        report_to=[],
    )
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    SFTTrainer(model, arguments, train_dataset=data, processing_class=fast, peft_config=lora).train()


if __name__ == "__main__":
    main()
