"""Trains a small GPT-2 with Hugging Face's Trainer: bf16, accumulation, checkpointing, evaluation, saving, resume."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, length: int, block: int) -> None:
        self.ids = torch.randint(0, 1000, (length, block))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="out")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    model = GPT2LMHeadModel(GPT2Config(n_layer=options.layers, n_embd=256, n_head=4, vocab_size=1000, n_positions=128))
    arguments = TrainingArguments(
        output_dir=options.output,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        bf16=True,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        dataloader_num_workers=2,
    )
    trainer = Trainer(model, arguments, train_dataset=Tokens(256, 128), eval_dataset=Tokens(64, 128))
    print(trainer.train(resume_from_checkpoint=options.resume or None))
    print(trainer.evaluate())
    trainer.save_model()


if __name__ == "__main__":
    main()
