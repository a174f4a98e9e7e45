#!/usr/bin/env python3
"""Write a model of a few hundred kilobytes with random weights, which SGLang loads and serves like any Qwen3 model.

Its answers are noise. What the tests need of it is real: a tokenizer, a chat template, a context of 32,768 tokens.
"""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, CONTEXT = 64, 128, 1, 4, 2, 16, 1024, 32768
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    + START
    + "{{ message['role'] }}\n{{ message['content'] }}"
    + END
    + "\n{% endfor %}{% if add_generation_prompt %}"
    + START
    + "assistant\n{% endif %}"
)


def write_json(directory, name, content):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def write_tokenizer(directory):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [f"host number {n} starts a server, waits until it answers and takes the next request" for n in range(300)]
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    write_json(
        directory,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": PAD,
            "eos_token": END,
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def write_config(directory):
    tokens = {"bos_token_id": 0, "pad_token_id": 0, "eos_token_id": 2}
    write_json(directory, "generation_config.json", tokens)
    write_json(
        directory,
        "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "torch_dtype": "bfloat16",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "use_cache": True,
            **tokens,
        },
    )


def write_weights(directory):
    torch.manual_seed(0)

    def random(*shape):
        return (torch.randn(*shape) * 0.05).to(torch.bfloat16)

    def ones(size):
        return torch.ones(size, dtype=torch.bfloat16)

    weights = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN), "model.norm.weight": ones(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights[f"{prefix}.input_layernorm.weight"] = ones(HIDDEN)
        weights[f"{prefix}.post_attention_layernorm.weight"] = ones(HIDDEN)
        weights[f"{prefix}.self_attn.q_proj.weight"] = random(HEADS * HEAD_DIM, HIDDEN)
        weights[f"{prefix}.self_attn.k_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        weights[f"{prefix}.self_attn.v_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        weights[f"{prefix}.self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD_DIM)
        weights[f"{prefix}.self_attn.q_norm.weight"] = ones(HEAD_DIM)
        weights[f"{prefix}.self_attn.k_norm.weight"] = ones(HEAD_DIM)
        weights[f"{prefix}.mlp.gate_proj.weight"] = random(INTERMEDIATE, HIDDEN)
        weights[f"{prefix}.mlp.up_proj.weight"] = random(INTERMEDIATE, HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = random(HIDDEN, INTERMEDIATE)
    save_file(weights, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    write_tokenizer(directory)
    write_config(directory)
    write_weights(directory)
    # save_file makes files that only root reads; the service user has to read them too.
    os.chmod(directory, 0o755)
    for name in os.listdir(directory):
        os.chmod(os.path.join(directory, name), 0o644)


if __name__ == "__main__":
    main()
