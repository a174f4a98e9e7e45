# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write plugins/module_utils/model_defaults.py: what a config.json may leave out, by model type.

    VENV/bin/python tools/model_defaults.py

Run it with the Python of an environment that has SGLang (no GPU is needed): the values are those of the configuration
classes that SGLang itself reads a config.json with.
"""

from __future__ import annotations

import pathlib
from typing import Any

import python_text

TARGET = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "model_defaults.py"

TYPES = (
    "llama",
    "llama4",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_moe",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "mistral",
    "mistral3",
    "mixtral",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k25",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v_moe",
    "glm_moe_dsa",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
)
KEYS = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "intermediate_size_mlp",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "v_head_dim",
    "vocab_size",
    "max_position_embeddings",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "n_shared_experts",
    "first_k_dense_replace",
    "interleave_moe_layer_step",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "full_attention_interval",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "sliding_window",
    "tie_word_embeddings",
    "depth",
)
PARTS = ("text_config", "vision_config")

HEADER = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a config.json may leave out, by model type and part. Made by tools/model_defaults.py: do not edit."""

from __future__ import annotations

# fmt: off
'''


# What a class derives from these is no default of its own.
PERTURBED = {"hidden_size": 7168 * 2, "num_attention_heads": 256, "qk_rope_head_dim": 192, "intermediate_size": 12345}


def values(config: Any, perturbed: Any) -> dict[str, Any]:
    found = {}
    for key in KEYS:
        value = getattr(config, key, None)
        own = key in PERTURBED or value == getattr(perturbed, key, None)
        if isinstance(value, (int, float, bool)) and own:
            found[key] = value
    return found


def defaults(model_type: str) -> dict[str, dict[str, Any]]:
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type)
    flat = AutoConfig.for_model(model_type, **PERTURBED)
    parts = {"": values(config, flat)}
    for name in PARTS:
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict):
            parts[name] = values(part, type(part)(**PERTURBED))
    return parts


def main() -> None:
    import sglang.srt.utils.hf_transformers_utils  # noqa: F401  registers SGLang's own configurations

    by_type: dict[str, Any] = {}
    for model_type in TYPES:
        try:
            by_type[model_type] = defaults(model_type)
        except ValueError as error:
            print(f"{model_type}: {error}")
    body = python_text.text(dict(sorted(by_type.items())))
    TARGET.write_text(f"{HEADER}DEFAULTS: dict[str, dict[str, dict[str, float]]] = {body}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
