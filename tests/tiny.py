"""A tiny random model that a real engine loads in seconds: for tests of everything but what a model says."""

from pathlib import Path

LINES = (
    "The quick brown fox jumps over the lazy dog.",
    "Who are you, and what do you want to tell me about the world today?",
    "I am a small model, and I do not know very much: one, two, three, four, five.",
    "In the beginning there was a question, and then there was an answer to the question.",
    "Hello! How are you doing? Please write a short story about the sea and the sky.",
)
"""What the tokenizer's merges are trained on."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2, as in the embedded model."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

HEAD_SIZE = 64
"""vLLM's attention on a CPU refuses 32."""


def tiny_model(
    folder: Path,
    *,
    vocab: int = 512,
    layers: int = 2,
    hidden: int = 128,
    max_position_embeddings: int = 2048,
    chat_template: str = CHATML,
    seed: int = 0,
) -> Path:
    """Write a random Llama-type model of float32 into `folder`, the same bytes for the same arguments.

    `vocab` bounds the vocabulary; the fewer lines there are to train on, the smaller it comes out. The least is 259:
    every byte, and the special tokens. What the model says is random bytes, so its text may hold U+FFFD.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer(vocab, chat_template, max_position_embeddings)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_SIZE,
        num_key_value_heads=hidden // HEAD_SIZE,
        max_position_embeddings=max_position_embeddings,
        # Ten times the usual: logits lie far enough apart that rounding in another batch rarely turns a greedy choice.
        initializer_range=0.2,
        tie_word_embeddings=False,
        dtype="float32",
        **tokens,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**tokens | {"eos_token_id": [2, 0]})  # either ends an answer
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def _tokenizer(vocab: int, chat_template: str, length: int):
    """Byte-level BPE, so that any text has tokens, and what they decode to is the text again."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        LINES,
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=chat_template,
        model_max_length=length,
        clean_up_tokenization_spaces=False,
    )
