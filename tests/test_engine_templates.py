"""Two turns under each kind of chat template, on the real engine: what the model really sees (tests/templates/)."""

import asyncio
from pathlib import Path

import pytest

from cluster.conversation import Exchange, Message, Request
from cluster.history import Histories, Template
from cluster.settings import EngineSettings, Sampling
from jobs.check import findings

TEMPLATES = Path(__file__).parent / "templates"
FACTS = {
    # append-only, trims, system role, of which answers it shows the reasoning
    "append_only": (True, False, True, "none"),
    "drops_reasoning": (False, False, True, "last"),
    "empty_think": (False, False, True, "none"),
    "past_thoughts": (False, False, True, "all"),
    "never_thinks": (True, False, True, "none"),
    "alternates": (True, True, False, "none"),
    "channels": (False, False, True, "all"),
    "dated": (True, True, True, "none"),
}
SYSTEM = "You are a small model in a test, and you answer whatever you like to answer. " * 4
"""Longer than a block of the prefix cache, which is 128 tokens on a CPU."""


def source(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


@pytest.fixture(scope="session")
def tokenizer(model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


class Watched:
    """The shared engine under a template, with the ids that went in and the outputs that came."""

    def __init__(self, engine, tokenizer, name: str, monkeypatch):
        self.template = Template(tokenizer, source(name))
        self.prompts, self.outputs = {}, {}
        """By key and index of the turn."""
        ask = engine._final_output

        async def watch(request, prompt, params):
            output = await ask(request, prompt, params)
            self.prompts[request.key, request.index] = prompt.ids
            self.outputs[request.key, request.index] = list(output.outputs[0].token_ids)
            return output

        monkeypatch.setattr(engine, "_histories", Histories(self.template, 1024))
        monkeypatch.setattr(engine, "_final_output", watch)


@pytest.mark.parametrize("name", FACTS)
def test_what_is_true_of_a_template_is_found_out(tokenizer, name):
    template = Template(tokenizer, source(name))
    assert (template.append_only, template.trims, template.system_role, template.shows_reasoning) == FACTS[name]
    assert not template.double_bos
    assert template.facts()["dated"] == (name == "dated")


def test_there_is_a_file_for_each():
    assert {path.stem for path in TEMPLATES.glob("*.jinja")} == FACTS.keys()


def by_transformers(tokenizer, name: str, first: str, answer: str, second: str) -> str:
    """The prompt of turn 2 as Hugging Face renders it, the system text in front of the user's where it has no role."""
    system = [{"role": "system", "content": SYSTEM}] if FACTS[name][2] else []
    opening = first if system else f"{SYSTEM}\n\n{first}"
    said = [("user", opening), ("assistant", answer), ("user", second)]
    messages = system + [{"role": role, "content": content} for role, content in said]
    return tokenizer.apply_chat_template(
        messages, chat_template=source(name), tokenize=False, add_generation_prompt=True
    )


@pytest.mark.engine
@pytest.mark.parametrize("name", FACTS)
def test_two_turns_on_the_real_engine(engine, run, tokenizer, name, monkeypatch):
    watched = Watched(engine, tokenizer, name, monkeypatch)
    histories = set()
    for number in range(6):
        key, users = f"{name}{number}", (f"Who are you, number {number}?", "And what do you want to tell me?")
        first = run(engine.generate(Request(key, 0, (), users[0], SYSTEM, seed=1)))
        if first.status not in ("ok", "truncated"):
            continue
        exchange = Exchange(users[0], first.text)
        second = run(engine.generate(Request(key, 1, (exchange,), users[1], SYSTEM, seed=1, last=True)))
        before, after = watched.prompts[key, 0], watched.prompts[key, 1]
        said = watched.outputs[key, 0] if first.truncated else watched.outputs[key, 0][:-1]
        rendered = by_transformers(tokenizer, name, users[0], first.text, users[1])
        whole = watched.template.append_only and watched.template.shows(first.text, said)
        assert second.history == ("bridged" if whole else "rendered")
        if whole:  # the engine's own ids, then the bridge; read aloud, what a full render of them says
            assert after[: len(before) + len(said)] == before + said
            # not of the text: an answer that was cut within a character has lost that character's first bytes there
            heard = tokenizer.decode(said)
            assert tokenizer.decode(after) == by_transformers(tokenizer, name, users[0], heard, users[1])
        else:
            assert after == tokenizer.encode(rendered, add_special_tokens=False)
        assert after[:2] != [tokenizer.bos_token_id] * 2
        assert second.usage.cached_tokens >= 128
        histories.add(second.history)
    assert ("bridged" if FACTS[name][0] else "rendered") in histories


@pytest.mark.engine
def test_every_stop_token_of_the_generation_config_ends_an_answer(engine, run, tokenizer, monkeypatch):
    """<|im_end|> and <|endoftext|>: a warm random model says each of them in the end."""
    watched = Watched(engine, tokenizer, "append_only", monkeypatch)
    one = Sampling(max_tokens=1)
    hot = Sampling(max_tokens=600, temperature=2.0, frequency_penalty=2.0, presence_penalty=2.0)
    keys = [f"stop{seed}" for seed in range(24)]

    async def go_on(key: str, seed: int) -> bool:
        """Whether the answer ended by itself; then another turn stands behind it."""
        answer = await engine.generate(Request(key, 0, (), "Go on.", None, seed=seed, sampling=hot))
        history = (Exchange("Go on.", getattr(answer, "text", None)),)
        await engine.generate(Request(key, 1, history, "And?", None, seed=seed, sampling=one))
        return answer.status == "ok"

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(*(go_on(key, seed) for seed, key in enumerate(keys)))

    ended = [key for key, by_itself in zip(keys, run(all_at_once()), strict=True) if by_itself]
    assert {watched.outputs[key, 0][-1] for key in ended} == {0, 2}  # <|endoftext|>, <|im_end|>
    for key in ended:  # the template's own end of turn stands behind the answer, once
        prompt = tokenizer.decode(watched.prompts[key, 1])
        assert prompt.count("<|im_end|>") == 3 and "<|im_end|><|im_end|>" not in prompt


# By the three names that reasoning has: reasoning_content, reasoning, thinking.
@pytest.mark.parametrize("name", ["drops_reasoning", "past_thoughts", "channels"])
def test_reasoning_reaches_the_template_only_where_it_is_handed_over(tokenizer, name):
    template = Template(tokenizer, source(name))
    for reasoning, shown in ((None, False), ("I had to count.", True)):
        turn = Request("a", 1, (Exchange("Who?", "Me.", reasoning),), "And?", None, seed=0)
        prompt = Histories(template, 1000).prompt(turn, 10)
        assert ("I had to count." in tokenizer.decode(prompt.ids)) == shown
    asked = (Message("user", "Who?"), Message("assistant", "Me.", "I had to count."), Message("user", "And?"))
    older = (*asked, Message("assistant", "You."), Message("user", "Sure?"))
    shown = "I had to count." in tokenizer.decode(template.render(older))
    assert shown == (name != "drops_reasoning")  # the template's own decision


def test_a_turn_without_an_answer_breaks_no_strict_alternation(tokenizer):
    history = (Exchange("Who?", "Me."), Exchange("And?", None))
    prompt = Histories(Template(tokenizer, source("alternates")), 1000).prompt(
        Request("a", 2, history, "Well?", "Be kind.", seed=0), 10
    )
    seen = tokenizer.decode(prompt.ids)
    assert [text in seen for text in ("Be kind.\n\nWho?<end>", "And?\n\nWell?<end>")] == [True, True]


# What `check` says of each kind, in order.
SAID = {
    "append_only": ("grows token-exact", "leaves it out"),
    "drops_reasoning": ("changes earlier turns", "shows it with the last answer alone"),
    "empty_think": ("changes earlier turns", "leaves it out"),
    "past_thoughts": ("changes earlier turns", "shows it with every answer"),
    "never_thinks": ("grows token-exact", "leaves it out"),
    "alternates": ("grows token-exact", "outer white space", "leaves it out", "no system role"),
    "channels": ("changes earlier turns", "shows it with every answer"),
    "dated": ("grows token-exact", "outer white space", "leaves it out", "today's date"),
}


@pytest.mark.parametrize("name", FACTS)
def test_check_says_which_kind_a_template_is(tokenizer, name):
    for reasoning_history in ("none", "as-template"):
        said = findings(Template(tokenizer, source(name)), EngineSettings("tiny", reasoning_history=reasoning_history))
        asked = [line for line in SAID[name] if reasoning_history != "none" or not line.startswith(("leaves", "shows"))]
        assert len(said) == len(asked) and all(part in line for part, line in zip(asked, said, strict=True))


def test_check_says_that_a_template_refuses_reasoning(tokenizer):
    refusing = "{% for m in messages if m.reasoning %}{{ raise_exception('no') }}{% endfor %}" + source("append_only")
    said = findings(Template(tokenizer, refusing), EngineSettings("tiny", reasoning_history="as-template"))
    assert "refuses it: WARNING" in said[1]
