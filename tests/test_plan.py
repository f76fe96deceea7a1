"""KV and weights from config.json, against figures worked out by hand; and the verb that prints them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.kvmath import KvShape, kv_shape, layer_kinds, parameters, weight_bytes
from cluster.machine import Gpu, Machine, this_machine
from jobs.config import load
from jobs.data import load_test_sets
from jobs.models import models
from jobs.preflight import preflight
from sequor.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]

QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}
GLM_4_7_FLASH = {
    "model_type": "glm4_moe_lite",
    "num_hidden_layers": 47,
    "num_attention_heads": 20,
    "num_key_value_heads": 20,
    "hidden_size": 2048,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}


def test_a_gpu_that_shares_the_machines_memory_has_all_of_it(monkeypatch):
    listed = "NVIDIA H100 80GB HBM3, 81559\nNVIDIA GB10, [N/A]\n"
    monkeypatch.setattr(subprocess, "run", lambda *args, **how: subprocess.CompletedProcess(args, 0, listed))
    found = this_machine()
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H100 80GB HBM3", "NVIDIA GB10"]
    assert [gpu.memory_gib for gpu in found.gpus] == [81559 / 1024, found.memory_gib]


def test_full_attention_keeps_key_and_value_of_every_kv_head():
    assert kv_shape(QWEN3_4B).full == 36 * 2 * 8 * 128 * 2 == 147_456
    assert kv_shape(QWEN3_4B, kv_bytes=1).full == 73_728


def test_sliding_window_layers_keep_their_window_and_no_more():
    """Gemma3: of 34 layers every sixth is full, which makes 5; a layer keeps 2 x 4 x 256 x 2 = 4,096 bytes a token."""
    shape = kv_shape(GEMMA3_4B)
    assert shape == KvShape(full=5 * 4096, windowed=29 * 4096, window=1024, heads=4)
    assert shape.context(1000) == 1000 * 34 * 4096
    assert shape.context(10_000) == 10_000 * 20_480 + 1024 * 118_784


def test_a_config_that_lists_its_layers_is_taken_at_its_word():
    kinds = ["sliding_attention", "full_attention", "linear_attention"]
    assert layer_kinds({"num_hidden_layers": 3, "layer_types": kinds}) == ["sliding", "full", "linear"]


def test_latent_attention_keeps_one_vector_whatever_the_heads():
    assert kv_shape(DEEPSEEK_V3).full == 61 * (512 + 64) * 2 == 70_272
    assert kv_shape(GLM_4_7_FLASH).full == 47 * 576 * 2 == 54_144


def test_more_gpus_divide_the_heads_and_never_a_latent_vector():
    qwen, deepseek = kv_shape(QWEN3_4B), kv_shape(DEEPSEEK_V3)
    gib = 2**30
    assert qwen.capacity(gib, 8, 1000) == 8 * gib // 147_456
    assert qwen.capacity(gib, 16, 1000) == 8 * gib // 147_456  # two GPUs a head: a copy each
    assert deepseek.capacity(gib, 8, 1000) == gib // 70_272


def test_weights_follow_from_the_shapes():
    """Qwen3-4B: 36 x (2560 x 128 x 80 + 3 x 2560 x 9728) + 151,936 x 2560."""
    assert parameters(QWEN3_4B) == 36 * (26_214_400 + 74_711_040) + 388_956_160 == 4_022_272_000
    assert weight_bytes(QWEN3_4B) == 2 * 4_022_272_000
    assert parameters(GEMMA3_4B) == pytest.approx(3.88e9, rel=0.01)
    assert parameters(DEEPSEEK_V3) == pytest.approx(671e9, rel=0.01)
    assert weight_bytes(DEEPSEEK_V3) == parameters(DEEPSEEK_V3)  # fp8: a byte each


def planned(folder: Path, config: dict, *words: str) -> subprocess.CompletedProcess:
    (folder / "config.json").write_text(json.dumps(config))
    words = ["data=demo", "sets=[single]", "turns=10", "dialogues=2", "--model", str(folder), *words]
    command = [sys.executable, "-m", "jobs", "plan", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_verb_prints_memory_tokens_and_hours(tmp_path):
    done = planned(tmp_path, QWEN3_4B, "--gpu-memory", "80", "--speed", "1560", "--answer-tokens", "780")
    assert done.returncode == 0, done.stderr
    assert "weights 7.5 GiB" in done.stdout and "tokens of 147,456 bytes" in done.stdout
    assert "15,600 output tokens" in done.stdout  # 2 dialogues x 10 turns x 780
    assert "about 0.00 h at 1,560 output tokens/s x 1 replica" in done.stdout


def test_of_an_endpoint_the_verb_says_what_is_sent_and_what_that_costs(tmp_path):
    """Two dialogues of two turns: the second prompt holds the first one and its answer again."""
    words = ["data=demo", "sets=[single]", "turns=2", "dialogues=2", "candidate.engine=api", "--model", "far"]
    words += ["candidate.price={input: 1000000, cached: 100000, output: 10000000}", "--answer-tokens", "5"]
    words += ["judge.engine=scripted", "judge.model=j"]
    command = [sys.executable, "-m", "jobs", "plan", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sent, new, got = map(
        int, re.search(r"to send: (\d+) prompt tokens \((\d+) of them new\); to get: (\d+)", done.stdout).groups()
    )
    assert got == 4 * 5
    first_turns_and_their_answers = (new + got) // 2
    assert sent == new + first_turns_and_their_answers
    least, most = sent - (sent - new) * 0.9 + 10 * got, sent + 10 * got
    assert f"costs about {least:,.2f} to {most:,.2f}" in done.stdout
    assert "whole run" not in done.stdout


def test_a_model_too_large_for_the_memory_is_named_with_what_would_help(tmp_path):
    done = planned(tmp_path, QWEN3_4B, "--gpu-memory", "8")
    assert done.returncode == 2
    assert "leave no room for a KV cache on 1 x 8 GiB (engine_args.tensor_parallel_size takes more GPUs)" in done.stderr


def test_a_context_that_no_cache_holds_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    """Qwen3-4B: 147,456 bytes a token, 8 GB of weights. On 24 GiB about 90,000 tokens of its 262,144 fit."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B))
    data = ["data=demo", "dialogues=1", "turns=2", f"candidate.model={tmp_path}", "judge.model=j"]
    machine = Machine(8, 64.0, (Gpu("a", 24.0), Gpu("b", 48.0)))
    monkeypatch.setattr("jobs.preflight.this_machine", lambda: machine)

    def refused(*words: str) -> str | None:
        config = load(None, [*data, "judge.engine=scripted", *words])
        files = models(config, "candidate", "judge")
        try:
            preflight(config, files, load_test_sets(config))
        except BadInput as error:
            return str(error)

    said = refused()
    assert said is not None and said.startswith("candidate.max_model_len: 262,144 tokens are more than")
    assert refused("candidate.max_model_len=65536") is None
    assert refused("candidate.engine_args.tensor_parallel_size=4") is None
    assert refused("ray_address=10.0.0.1:6379") is None  # another machine's GPUs
