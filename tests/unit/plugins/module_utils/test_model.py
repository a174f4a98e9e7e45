"""Reading a model: its layers and caches, its weights, and what bad files get."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import model_weights
from ansible_collections.serving.sglang.plugins.module_utils.memory_releases import memory_release_for
from ansible_collections.serving.sglang.plugins.module_utils.model import FAMILIES, describe, stage_layers
from ansible_collections.serving.sglang.plugins.module_utils.model_config import ModelError
from ansible_collections.serving.sglang.plugins.module_utils.model_files import read_model

TESTS = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TESTS))
import references  # noqa: E402

RELEASE = memory_release_for("0.5.22")
QWEN3 = json.loads((references.MODELS / "qwen3-8b" / "config.json").read_text(encoding="utf-8"))


def of(name: str) -> Any:
    return references.model_named(name, "0.5.22")[0]


def folder(tmp_path: Path, config: Any = None) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3 if config is None else config), encoding="utf-8")
    return tmp_path


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]], data: bool = False) -> None:
    bits = {"BF16": 16, "F8_E4M3": 8, "F32": 32}
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = bits[dtype] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + (b"\0" * at if data else b""))


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3-8b", 8.19),
        ("qwen3-30b-a3b", 30.53),
        ("llama-3.1-8b", 8.03),
        ("mixtral-8x7b", 46.7),
        ("deepseek-v3", 671),
        ("kimi-k2", 1026),
        ("gpt-oss-20b", 20.9),
        ("qwen3-next-80b-a3b", 79.7),
        ("glm-4.5-air", 106.9),
        ("llama-4-scout", 107.8),
        ("gemma3-12b", 12.2),
        ("mistral-small-3.1-24b", 23.6),
    ],
)
def test_parameters_from_dimensions_match_what_is_published(name: str, billions: float) -> None:
    model, config = references.model_named(name, "0.5.22")
    total = sum(part.parameters for part in model_weights.parts(model, config)) / 1e9
    assert total == pytest.approx(billions, rel=0.02)


def test_layers_and_pools() -> None:
    gemma, oss, scout, hybrid = of("gemma3-12b"), of("gpt-oss-20b"), of("llama-4-scout"), of("qwen3-next-80b-a3b")
    assert gemma.layers.count("sliding") == 40
    assert gemma.pooled_layers.count("full") == 48, "SGLang keeps one pool for Gemma 3"
    assert oss.layer_count("sliding") == oss.layer_count("full") == 12
    assert (scout.layer_count("sliding"), scout.layer_count("full"), scout.window) == (36, 12, 8192)
    assert (hybrid.layer_count("linear"), hybrid.layer_count("full")) == (36, 12)
    assert of("deepseek-v3").latent.rank == 512
    assert of("deepseek-v3").latent.index is None
    assert of("deepseek-v3.2").latent.index.head_dim == 128
    assert of("deepseek-v3").draft_layers == 1


def test_every_family_of_the_test_configurations_is_known_and_says_what_it_was_checked_against() -> None:
    for path in sorted(references.MODELS.iterdir()):
        model = of(path.name)
        assert model.known, path.name
        assert model.reference, path.name
        assert model.unknown == ()
    assert any(not family.reference for family in FAMILIES.values())


def test_an_unknown_architecture_says_so_and_keeps_what_is_certain(tmp_path: Path) -> None:
    model = describe({**QWEN3, "architectures": ["BrandNewForCausalLM"]}, RELEASE)
    assert not model.known
    assert model.unverified
    assert "BrandNewForCausalLM" in model.unknown[0]
    assert (model.dtype, model.context_length, model.vocabulary) == ("bfloat16", 40960, 151936)
    assert model.layers == ()
    assert model.full is None
    assert not model.fits_pool()


def test_what_a_class_fills_in_is_named() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    }
    model = describe(config, RELEASE)
    assert (model.full.count, model.full.key_dim, model.heads) == (4, 256, 8)
    assert "text_config.num_key_value_heads" in model.defaulted


def test_stages_take_what_is_left_over_last() -> None:
    assert [stage_layers(10, 4, stage) for stage in range(4)] == [(0, 2), (2, 4), (4, 7), (7, 10)]


def test_weights_from_headers(tmp_path: Path) -> None:
    tensors: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": ("BF16", [100, 8]),
        "model.layers.0.self_attn.q_proj.weight": ("BF16", [8, 8]),
        "model.layers.0.self_attn.k_proj.weight": ("BF16", [4, 8]),
        "model.layers.0.mlp.gate_proj.weight": ("F8_E4M3", [16, 8]),
        "model.layers.0.mlp.experts.3.w1.weight": ("BF16", [16, 8]),
        "model.layers.0.input_layernorm.weight": ("BF16", [8]),
        "visual.blocks.0.attn.qkv.weight": ("BF16", [8, 8]),
        "model.mtp.0.eh_proj.weight": ("BF16", [8, 8]),
    }
    safetensors(folder(tmp_path) / "model.safetensors", tensors)
    model, _config = read_model(str(tmp_path), RELEASE)
    assert model.weights.source == "safetensors headers"
    assert model.weights.by_division == {
        "attention": 1600 + 128,
        "kv": 64,
        "tp": 128 + 128,
        "experts": 256,
        "all": 16,
    }
    assert model.weights.draft_bytes == 128
    held = model_weights.rank_weight_bytes(model.weights, model, 4, 2)
    assert held == 1728 / 2 + 64 / 2 + 256 / 4 + 256 / 4 + 16


def test_mistrals_second_copy_is_not_counted(tmp_path: Path) -> None:
    tensors: dict[str, tuple[str, list[int]]] = {"lm_head.weight": ("BF16", [10, 10])}
    safetensors(folder(tmp_path) / "model-00001.safetensors", tensors)
    safetensors(tmp_path / "consolidated.safetensors", {"output.weight": ("BF16", [10, 10])})
    assert read_model(str(tmp_path), RELEASE)[0].weights.total_bytes == 200


def test_weights_from_the_index_alone(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 16_381_470_720}, "weight_map": {"lm_head.weight": "model-00001.safetensors"}}
    (folder(tmp_path) / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    model, _config = read_model(str(tmp_path), RELEASE)
    assert model.weights.total_bytes == pytest.approx(16_381_470_720, abs=10)
    assert "0 of 1 files" in model.weights.source


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers"),
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"num_attention_heads": "32"}, "num_attention_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"architectures": []}, "architectures"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"rope_scaling": {"factor": float("inf")}}, "rope_scaling.factor"),
        ({"vocab_size": -5}, "vocab_size"),
    ],
)
def test_a_bad_configuration_names_file_key_and_value(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    with pytest.raises(ModelError) as raised:
        read_model(str(folder(tmp_path, {**QWEN3, **change})), RELEASE)
    assert str(tmp_path / "config.json") in str(raised.value)
    assert key in str(raised.value)
    assert repr(change[key.split(".")[0]] if "." not in key else change["rope_scaling"]["factor"]) in str(raised.value)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json: there is no such file"):
        read_model(str(tmp_path), RELEASE)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json: is not JSON"):
        read_model(str(tmp_path), RELEASE)
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError, match="not an object"):
        read_model(str(tmp_path), RELEASE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x10", "truncated"),
        (struct.pack("<Q", 5000) + b"{}", "truncated"),
        (struct.pack("<Q", 3) + b"{x}", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
        (struct.pack("<Q", 12) + b'{"a": {"x":1', "not JSON"),
    ],
)
def test_broken_safetensors(tmp_path: Path, content: bytes, said: str) -> None:
    (folder(tmp_path) / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=said) as raised:
        read_model(str(tmp_path), RELEASE)
    assert "model.safetensors" in str(raised.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 0]},
        {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 7]},
        {"dtype": "BF16", "shape": [-2, 2], "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": [2, 2]},
    ],
)
def test_impossible_tensors(tmp_path: Path, entry: dict[str, Any]) -> None:
    text = json.dumps({"lm_head.weight": entry}).encode()
    (folder(tmp_path) / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        read_model(str(tmp_path), RELEASE)


@pytest.mark.parametrize("total", [-1, 0, float("inf"), "many"])
def test_an_impossible_total(tmp_path: Path, total: Any) -> None:
    index = {"metadata": {"total_size": total}, "weight_map": {}}
    (folder(tmp_path) / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match="total_size"):
        read_model(str(tmp_path), RELEASE)
