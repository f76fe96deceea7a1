import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
from conftest import GREEDY

from cluster.conversation import Exchange, Failure, Request, Response, Usage
from cluster.driver import EngineStartError
from cluster.engine import CPU_KV_CACHE_BYTES, EngineDied, VllmEngine, _Reasoning, merged_sampling, vllm_args
from cluster.enginelog import EngineLog, useful_line
from cluster.history import Prompt
from cluster.outcomes import outcome_of
from cluster.settings import EngineSettings, Sampling

SYSTEM = "You are a small model in a test, and you answer whatever you like to answer. " * 4
"""Longer than a block of the prefix cache, which is 128 tokens on a CPU."""


# Pure: no engine.


def output(text, finish_reason="stop", ids=(5, 6, 2), stop_reason=None):
    completion = SimpleNamespace(text=text, token_ids=list(ids), finish_reason=finish_reason, stop_reason=stop_reason)
    times = SimpleNamespace(queued_ts=1.0, scheduled_ts=1.5, last_token_ts=3.5, num_preemptions=1)
    return SimpleNamespace(outputs=[completion], prompt_token_ids=[1, 2, 3, 4], num_cached_tokens=2, metrics=times)


PROMPT = Prompt([1, 2, 3, 4], 7, "rendered")


def test_a_finished_answer_comes_with_its_cost_and_without_its_end_of_turn_token():
    outcome, ids = outcome_of(output("hello"), PROMPT, None)
    assert outcome == Response("hello", usage=Usage(4, 2, 3, 0.5, 2.0, 1), dropped_turns=7, history="rendered")
    assert ids == [5, 6]


def test_a_cut_answer_is_truncated_and_keeps_all_its_ids():
    outcome, ids = outcome_of(output("hello", "length"), PROMPT, None)
    assert outcome.status == "truncated"
    assert ids == [5, 6, 2]


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_white_space_alone_is_empty(finish_reason):
    outcome, ids = outcome_of(output(" \n", finish_reason), PROMPT, None)
    assert (outcome.status, ids) == ("empty", None)
    assert outcome.usage.output_tokens == 3


def test_the_ids_of_an_answer_shortened_at_a_stop_string_are_not_those_of_its_text():
    outcome, ids = outcome_of(output("hello", stop_reason="END"), PROMPT, None)
    assert (outcome.status, ids) == ("ok", None)


def test_another_end_is_an_engine_error():
    assert outcome_of(output("hel", "abort"), PROMPT, None)[0].status == "engine_error"


@pytest.mark.parametrize(
    "split, status, reasoning",
    [
        (("hm", "hello", True), "ok", "hm"),
        (("hm", "", False), "reasoning_unfinished", "hm"),
        (("hm", " ", True), "empty", "hm"),
    ],
)
def test_reasoning_is_taken_apart_and_is_never_an_answer(split, status, reasoning):
    outcome, ids = outcome_of(output("..."), PROMPT, lambda text, ids, prompt_ids: split)
    assert (outcome.status, outcome.reasoning, ids) == (status, reasoning, None)


def test_the_settings_sampling_stands_over_the_models():
    merged = merged_sampling({"temperature": 0.6, "top_k": 20, "max_tokens": 9}, Sampling(temperature=0.0, stop=("X",)))
    assert merged == {"temperature": 0.0, "top_k": 20, "max_tokens": 4096, "stop": ["X"]}


def test_engine_args_stand_over_ours(monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    settings = EngineSettings("m", max_model_len=512, engine_args={"max_num_seqs": 3, "dtype": "bfloat16"})
    args = vllm_args(settings, "/m", on_cpu=True)
    assert (args["max_num_seqs"], args["dtype"], args["max_model_len"]) == (3, "bfloat16", 512)
    assert args["kv_cache_memory_bytes"] == CPU_KV_CACHE_BYTES
    assert vllm_args(EngineSettings("m"), "/m", on_cpu=False)["max_num_seqs"] == 1024


def test_the_environments_cache_size_is_left_to_vllm(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert "kv_cache_memory_bytes" not in vllm_args(EngineSettings("m"), "/m", on_cpu=True)


@pytest.mark.parametrize(
    "message, line",
    [
        ("no such thing\nsecond line", "no such thing"),
        ("1 validation error for ModelConfig\n  Value error, too long [type=value_error, x]\n  see", "too long"),
        ("", "ValueError"),
    ],
)
def test_the_useful_line_of_an_error(message, line):
    assert useful_line(ValueError(message)) == line


def test_the_log_gives_the_root_error(monkeypatch):
    monkeypatch.delenv("VLLM_LOGGING_CONFIG_PATH", raising=False)
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "WARNING")
    log = EngineLog()
    with log.recording():
        assert os.path.isfile(os.environ["VLLM_LOGGING_CONFIG_PATH"])
    assert "VLLM_LOGGING_CONFIG_PATH" not in os.environ
    assert log.first_error() is None
    log._errors.write_text("failed\n  File x\ntorch.OutOfMemoryError: too large\nRuntimeError: it failed\n")
    assert log.first_error() == "too large"
    log.close()


def test_a_folder_without_a_model_is_refused_at_once(tmp_path):
    with pytest.raises(EngineStartError, match="no model in folder"):
        asyncio.run(VllmEngine.start(EngineSettings("m"), str(tmp_path)))


# With a real engine on a tiny random model (conftest.py).


def words(about, turn):
    return f"Please write a short story about the sea, the sky, {about} and {turn}."


def request(key, history=(), user="Hello! Who are you?", **options):
    return Request(key, len(history), tuple(history), user, SYSTEM, seed=options.pop("seed", 1), **options)


async def play(engine, key, turns, about="the fox"):
    outcomes, history = [], []
    for turn in range(turns):
        user = words(about, turn)
        outcomes.append(await engine.generate(request(key, history, user, last=turn == turns - 1)))
        history.append(Exchange(user, getattr(outcomes[-1], "text", None)))
    return outcomes, history


async def play_all(engine, keys, turns):
    return await asyncio.gather(*(play(engine, key, turns, about=key) for key in keys))


@pytest.mark.engine
def test_facts_are_flat_and_name_what_matters(engine):
    facts = engine.facts
    assert facts.kv_cache_tokens > 100_000
    assert (facts.context_tokens, facts.append_only) == (1024, True)
    assert all(isinstance(value, str | int | float | bool | None) for value in facts.resolved.values())
    assert {"vllm", "torch", "transformers", "dtype", "max_model_len", "sampling.max_tokens"} <= facts.resolved.keys()
    assert len(facts.resolved["chat_template.sha256"]) == 64


@pytest.mark.engine
def test_dialogues_are_bridged_and_a_full_render_drifts_from_them(engine, run, record_property):
    """Each turn is asked again under a key that no history is remembered for: so it is rendered from text."""
    played = run(play_all(engine, "abcde", 10))
    bridged = same_ids = same_answers = compared = 0
    for key, (outcomes, history) in zip("abcde", played, strict=True):
        bridged += sum(outcome.history == "bridged" for outcome in outcomes)
        for turn in range(1, 10):
            again = run(engine.generate(request(f"{key}{turn}", history[:turn], history[turn].user, last=True)))
            assert again.history == "rendered"
            compared += 1
            same_ids += again.usage.prompt_tokens == outcomes[turn].usage.prompt_tokens
            same_answers += getattr(again, "text", None) == history[turn].answer
    found = (
        f"bridged {bridged}/{compared}, of one length {same_ids}/{compared}, equal answers {same_answers}/{compared}"
    )
    record_property("drift", found)
    print(f"\n{found}")
    assert bridged > 0.8 * compared  # but for the answers that hold a special token, as random ones may
    assert same_ids < compared  # random bytes are never encoded as they were said; this is what bridging is for


@pytest.mark.engine
def test_a_greedy_dialogue_is_the_same_again(engine, run):
    (first, history), (second, again) = run(play(engine, "again1", 5)), run(play(engine, "again2", 5))
    assert history == again
    assert [outcome.history for outcome in first] == [outcome.history for outcome in second]


@pytest.mark.engine
def test_the_second_turn_finds_the_first_in_the_prefix_cache(engine, run):
    (first, second), _ = run(play(engine, "cached", 2))
    assert second.usage.cached_tokens >= 128
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + first.usage.output_tokens
    assert second.usage.run_s > 0


@pytest.mark.engine
def test_a_window_that_slides_never_sends_what_the_engine_rejects(engine, run):
    for outcomes, _ in run(play_all(engine, ["slide1", "slide2"], 30)):
        assert {outcome.status for outcome in outcomes} <= {"ok", "truncated", "empty"}
        assert all(outcome.usage.prompt_tokens + GREEDY.max_tokens <= 1024 for outcome in outcomes)
        dropped = [outcome.dropped_turns for outcome in outcomes]
        assert dropped == sorted(dropped)
        assert dropped[0] == 0 and dropped[-1] > 0
        assert all(outcome.history == "rendered" for outcome in outcomes if outcome.dropped_turns)


@pytest.mark.engine
def test_a_cut_answer_is_bridged(engine, run):
    few = Sampling(max_tokens=5, temperature=0)
    first = run(engine.generate(request("cut", sampling=few)))
    assert (first.status, first.usage.output_tokens) == ("truncated", 5)
    second = run(engine.generate(request("cut", [Exchange("Hello! Who are you?", first.text)], sampling=few)))
    assert second.history == "bridged"


@pytest.mark.engine
def test_a_user_text_that_never_fits_overflows_without_asking_the_engine(engine, run):
    outcome = run(engine.generate(request("long", user=words("long", 1) * 100)))
    assert isinstance(outcome, Failure)
    assert (outcome.status, outcome.usage.prompt_tokens) == ("context_overflow", 0)


@pytest.mark.engine
def test_seeded_prompts_that_are_more_than_a_step_takes_kill_no_engine(engine, run):
    """vLLM cuts prompts to fill a step, and then steps back in the request's random numbers; on a CPU it cannot."""
    warm = Sampling(max_tokens=4, temperature=1.0)
    prompts = [request(f"long{n}", user=f"{chr(97 + n)} " * 200, seed=n, sampling=warm) for n in range(16)]

    async def all_at_once():
        return await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))

    outcomes = run(all_at_once())
    assert sum(outcome.usage.prompt_tokens for outcome in outcomes) > 4096
    assert all(isinstance(outcome, Response) for outcome in outcomes)


@pytest.mark.engine
def test_a_seed_names_an_answer(engine, run):
    warm = Sampling(max_tokens=24, temperature=1.0)
    answers = [
        run(engine.generate(request(f"s{n}", seed=seed, sampling=warm))).text for n, seed in enumerate([1, 1, 2])
    ]
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.engine
def test_sampling_that_the_engine_refuses_is_an_engine_error_of_that_turn(engine, run):
    outcome = run(engine.generate(request("bad", sampling=Sampling(max_tokens=8, top_k=-7))))
    assert outcome.status == "engine_error"
    assert "top_k" in outcome.detail
    assert run(engine.generate(request("good"))).status in ("ok", "truncated")


@pytest.mark.engine
@pytest.mark.parametrize(
    "options, message",
    [
        ({"reasoning_parser": "nobody"}, "reasoning_parser 'nobody' is none of vLLM's: .*deepseek_r1"),
        ({"max_model_len": 99_999}, "max_model_len .*99999"),
        ({"engine_args": {"no_such": 1}}, "no_such"),
        ({"sampling": Sampling(max_tokens=4096)}, "leaves no room in a context of 2048"),
        ({"engine_args": {"kv_cache_memory_bytes": 2**19}}, "KV cache"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(model, options, message):
    options = {"sampling": GREEDY} | options
    with pytest.raises(EngineStartError, match=message) as error:
        asyncio.run(VllmEngine.start(EngineSettings("tiny", **options), str(model)))
    assert "\n" not in str(error.value)


@pytest.mark.engine
@pytest.mark.parametrize(
    "name, text, reasoning, answer, closed",
    [
        ("deepseek_r1", "hm</think>hello", "hm", "hello", True),
        ("deepseek_r1", "hm", "hm", "", False),
        ("deepseek_r1", "hm</think>", "hm", "", True),
        ("qwen3", "<think>hm</think>hello", "hm", "hello", True),
        ("qwen3", "<think>hm", "hm", "", False),
    ],
)
def test_vllms_parsers_take_reasoning_apart(model, name, text, reasoning, answer, closed):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["<think>", "</think>"])
    parser = _Reasoning(name, tokenizer, SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert parser.split(text, ids, [1]) == (reasoning, answer, closed)


@pytest.mark.engine
@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
def test_a_closing_tag_in_an_earlier_turn_ends_no_new_reasoning(model, name):
    """From turn 2 on, what a user or a template left in the prompt must not make reasoning the answer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["<think>", "</think>"])
    parser = _Reasoning(name, tokenizer, SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")))
    earlier = tokenizer.encode("<think>one</think>two<|im_end|>What of </think>?", add_special_tokens=False)
    opened = [*earlier, *tokenizer.encode("<think>", add_special_tokens=False)]
    told_of = {"hm</think>hello": ("hm", "hello", True), "hm, still thinking": ("hm, still thinking", "", False)}
    for text, told in told_of.items():
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert parser.split(text, ids, opened) == told


@pytest.mark.engine
def test_a_dead_engine_says_so_at_once(model, run):
    """An engine of its own, as it does not survive."""
    engine = run(VllmEngine.start(EngineSettings("tiny", sampling=GREEDY), str(model)))

    async def ask_and_kill():
        (core,) = engine._llm.engine_core.resources.engine_manager.processes
        os.kill(core.pid, signal.SIGSTOP)  # so that the answer cannot come first
        asking = asyncio.create_task(engine.generate(request("a")))
        await asyncio.sleep(0.2)
        os.kill(core.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await asking

    with pytest.raises(EngineDied):
        run(ask_and_kill())
    with pytest.raises(EngineDied):
        run(engine.generate(request("b")))
    run(engine.close())
