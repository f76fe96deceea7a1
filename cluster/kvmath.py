"""How much of a GPU's memory a model's weights and its KV cache take, from its config.json alone. Pure.

Per token and layer, in numbers of the cache's type:
1. Full attention keeps a key and a value for each KV head: 2 x num_key_value_heads x head_dim.
2. A sliding-window layer keeps the same, but of a context only its last `sliding_window` tokens.
3. Latent attention (MLA: DeepSeek, GLM, Kimi) keeps one compressed vector and the rotary part: kv_lora_rank +
   qk_rope_head_dim, whatever the number of heads.
4. A linear-attention layer (Mamba, Gated DeltaNet) keeps a state of fixed size, which is left out.
5. Tensor parallelism divides the heads, up to one a GPU; from then on, and with latent attention always, each GPU keeps
   a copy.
Estimates: vLLM rounds up to blocks, and pads layers of different kinds to one block size.
"""

from typing import Any

from msgspec import Struct

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
QUANTISED_BITS = {"fp8": 8, "mxfp4": 4.25, "awq": 4.25, "gptq": 4.25}
"""Bits a weight, scales included, where a config does not say."""
LINEAR = frozenset({"linear_attention", "mamba", "recurrent"})
ACTIVATIONS_BYTES = 3 * 2**30
"""Kept free of cache for a step's activations, CUDA graphs and the libraries' own; vLLM measures it at its start."""


class KvShape(Struct, frozen=True):
    """KV bytes of one token, by kind of layer."""

    full: int
    """Summed over the layers that keep every token."""
    windowed: int = 0
    """Summed over the layers that keep the last `window` tokens."""
    window: int = 0
    heads: int = 1
    """KV heads, each of which can stand on a GPU of its own; 1 with latent attention."""

    def context(self, tokens: int) -> int:
        """Bytes of one conversation whose context has that many tokens."""
        return tokens * self.full + min(tokens, self.window) * self.windowed

    def capacity(self, memory: int, gpus: int, tokens: int) -> int:
        """KV tokens that `memory` bytes on each of `gpus` hold, in contexts of `tokens`."""
        copies = max(1, gpus / self.heads)
        return int(memory * gpus / copies / (self.context(tokens) / tokens))


def kv_shape(config: dict[str, Any], kv_bytes: int | None = None) -> KvShape:
    """Of a config.json. `kv_bytes`: bytes of a cached number; left out, those of the model's type.

    Raises KeyError naming the key that the config lacks.
    """
    config = text_part(config)
    size = kv_bytes or BYTES.get(model_dtype(config), 2)
    kinds = layer_kinds(config)
    if config.get("kv_lora_rank"):
        return KvShape(len(kinds) * (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * size)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    layer = 2 * kv_heads * head_dim * size
    window = config.get("sliding_window") or 0
    full, sliding = (sum(kind == which for kind in kinds) for which in ("full", "sliding"))
    return KvShape(full * layer, sliding * layer, window if sliding else 0, kv_heads)


def layer_kinds(config: dict[str, Any]) -> list[str]:
    """`full`, `sliding` or `linear` of each layer.

    Newer configs list them (`layer_types`); Gemma's older ones say that every sixth is full (`sliding_window_pattern`);
    a window without either is of all layers (Mistral), unless `use_sliding_window` is false (Qwen).
    """
    count = config["num_hidden_layers"]
    if types := config.get("layer_types"):
        return ["sliding" if "sliding" in t else "linear" if t in LINEAR else "full" for t in types]
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return ["full"] * count
    pattern = config.get("sliding_window_pattern") or (6 if "gemma3" in config.get("model_type", "") else 0)
    return ["full" if pattern and (n + 1) % pattern == 0 else "sliding" for n in range(count)]


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a config that holds several."""
    return config | config["text_config"] if config.get("text_config") else config


def model_dtype(config: dict[str, Any]) -> str:
    return str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch.")


def weight_bytes(config: dict[str, Any]) -> int:
    """As stored: quantised to so many bits where the config says so, else in the model's type."""
    found = config.get("quantization_config") or {}
    bits = found.get("bits") or QUANTISED_BITS.get(found.get("quant_method", ""))
    return int(parameters(config) * (bits / 8 if bits else BYTES.get(model_dtype(text_part(config)), 2)))


def parameters(config: dict[str, Any]) -> int:
    """How many numbers the weights are, from the config's shapes. Norms and biases are left out.

    Attention's projections, the feed-forward part (three matrices; experts, shared experts and the first dense layers
    where there are experts), the embedding and, unless it is tied to it, the output layer.
    """
    config = text_part(config)
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    tied = config.get("tie_word_embeddings", True)
    embeddings = config["vocab_size"] * hidden * (1 if tied else 2)
    return embeddings + layers * _attention(config, hidden) + _feed_forward(config, hidden, layers)


def _attention(config: dict[str, Any], hidden: int) -> int:
    heads = config["num_attention_heads"]
    if rank := config.get("kv_lora_rank"):
        rope, nope, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
        query = heads * (nope + rope)
        queries = (hidden + query) * config["q_lora_rank"] if config.get("q_lora_rank") else hidden * query
        return queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    head_dim = config.get("head_dim") or hidden // heads
    return hidden * head_dim * 2 * (heads + (config.get("num_key_value_heads") or heads))


def _feed_forward(config: dict[str, Any], hidden: int, layers: int) -> int:
    experts = config.get("n_routed_experts") or config.get("num_local_experts") or config.get("num_experts") or 0
    if not experts:
        return 3 * hidden * config["intermediate_size"] * layers
    dense = min(layers, config.get("first_k_dense_replace") or 0)
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    routed = 3 * hidden * width * (experts + (config.get("n_shared_experts") or 0)) + hidden * experts
    return dense * 3 * hidden * config["intermediate_size"] + (layers - dense) * routed
