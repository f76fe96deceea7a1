import pytest

from cluster.conversation import Exchange, Failure, Message, Request
from cluster.history import Histories, Template, UnusableTemplate

pytest.importorskip("transformers")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPS = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
"""Like Qwen3: reasoning is left out of a history."""
THINKS = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
"""Like DeepSeek-R1: the generation prompt opens a reasoning that no history shows."""
TRIMS = "<s>" + CHATML.replace("{{ m.content }}", "{{ m.content | trim }}")
"""Like Llama 3, with its BOS."""
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)
"""Like Gemma 2."""
SPOKEN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}assistant: "
"""No special token ends a turn."""
REFUSES = CHATML.replace(
    "{{ m.content }}", "{{ raise_exception('no tags, please') if '<x>' in m.content else m.content }}"
)
"""Takes some texts for markup of its own, as several templates for tools do."""

END = 2


def tokenizer(chat_template=CHATML):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["hello there, hello you", "what do you say to them there"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="<|im_end|>", chat_template=chat_template
    )


def request(user, *history, system=None, last=False):
    past = tuple(Exchange(*turn) for turn in history)
    return Request("a", len(past), past, user, system, seed=0, last=last)


def letters(text):
    """The ids of a text a letter a token: what a model may say, and no encoding would give."""
    ids = [id for letter in text for id in tokenizer().encode(letter, add_special_tokens=False)]
    assert ids != tokenizer().encode(text, add_special_tokens=False)
    return ids


def played(chat_template=CHATML, answer="hello there", context=1000, **options):
    """Histories after one turn ("hi"), with the ids of its prompt and answer."""
    histories = Histories(Template(tokenizer(chat_template)), context)
    first = request("hi", **options)
    prompt = histories.prompt(first, 10)
    assert prompt.history == "first"
    ids = letters(answer)
    histories.remember(first, prompt, ids, answer)
    return histories, [*prompt.ids, *ids]


def test_facts_of_an_append_only_template():
    template = Template(tokenizer())
    assert template.append_only and template.system_role
    assert not template.trims and not template.double_bos


def test_facts_of_other_templates():
    assert Template(tokenizer(TRIMS)).trims
    assert Template(tokenizer(TRIMS)).append_only
    assert not Template(tokenizer(THINKS)).append_only
    assert not Template(tokenizer(NO_SYSTEM)).system_role
    assert Template(tokenizer(SPOKEN)).append_only


def test_a_bos_that_template_and_tokenizer_both_add_is_noticed_and_rendered_once():
    doubling = tokenizer(TRIMS)
    encode = doubling.encode
    doubling.encode = lambda text, add_special_tokens=True: (
        [3] * add_special_tokens + encode(text, add_special_tokens=False)
    )
    template = Template(doubling)
    assert template.double_bos
    assert template.render((Message("user", "hi"),)).count(3) == 1


def test_without_a_system_role_the_system_text_leads_the_first_user_text():
    template = Template(tokenizer(NO_SYSTEM))
    folded = template.render((Message("system", "be kind"), Message("user", "hi")))
    assert folded == template.render((Message("user", "be kind\n\nhi"),))


def test_a_tokenizer_without_a_chat_template_is_refused_in_one_line():
    with pytest.raises(UnusableTemplate, match="chat_template") as error:
        Template(tokenizer(None))
    assert "\n" not in str(error.value)


def test_a_broken_template_is_refused():
    with pytest.raises(UnusableTemplate):
        Template(tokenizer("{% for %}"))


def test_a_template_of_ones_own_replaces_the_tokenizers():
    template = Template(tokenizer(THINKS), CHATML)
    assert template.append_only


@pytest.mark.parametrize("chat_template", [CHATML, STRIPS, TRIMS, NO_SYSTEM, SPOKEN])
def test_a_bridged_prompt_holds_the_models_own_ids_and_reads_like_a_rendered_one(chat_template):
    histories, so_far = played(chat_template, system="be kind")
    again = request("and you?", ("hi", "hello there"), system="be kind")
    bridged = histories.prompt(again, 10)
    rendered = Histories(Template(tokenizer(chat_template)), 1000).prompt(again, 10)
    assert (bridged.history, rendered.history) == ("bridged", "rendered")
    assert bridged.ids[: len(so_far)] == so_far
    assert bridged.ids != rendered.ids
    assert tokenizer().decode(bridged.ids) == tokenizer().decode(rendered.ids)


def test_the_end_of_turn_is_there_once():
    histories, so_far = played()
    ids = histories.prompt(request("you", ("hi", "hello there")), 10).ids
    assert ids[len(so_far)] == END
    assert ids[len(so_far) + 1] != END


def test_bridges_follow_one_another():
    histories, _ = played()
    second = request("you", ("hi", "hello there"))
    prompt = histories.prompt(second, 10)
    histories.remember(second, prompt, letters("what"), "what")
    third = histories.prompt(request("them", ("hi", "hello there"), ("you", "what")), 10)
    assert third.history == "bridged"
    assert third.ids[: len(prompt.ids)] == prompt.ids


@pytest.mark.parametrize(
    "chat_template, answer",
    [(THINKS, "hello there"), (TRIMS, "hello there "), (STRIPS, "<think>hm</think>hello there")],
)
def test_an_answer_that_a_history_changes_is_rendered(chat_template, answer):
    histories, _ = played(chat_template, answer)
    assert histories.prompt(request("you", ("hi", answer)), 10).history == "rendered"


def test_a_template_that_trims_still_bridges_an_answer_without_outer_white_space():
    histories, _ = played(TRIMS)
    assert histories.prompt(request("you", ("hi", "hello there")), 10).history == "bridged"


@pytest.mark.parametrize("ids", [None, [*letters("hello"), END, *letters("there")]])
def test_ids_that_are_not_the_texts_are_not_remembered(ids):
    histories = Histories(Template(tokenizer()), 1000)
    first = request("hi")
    histories.remember(first, histories.prompt(first, 10), ids, "hello there")
    assert histories.prompt(request("you", ("hi", "hello there")), 10).history == "rendered"


@pytest.mark.parametrize(
    "other",
    [
        request("you", ("hi", "hello")),
        request("you", ("ho", "hello there")),
        request("you", ("hi", "hello there"), ("and", "then")),
        request("you", ("hi", "hello there"), system="be kind"),
    ],
)
def test_another_history_is_rendered(other):
    histories, _ = played()
    assert histories.prompt(other, 10).history == "rendered"


def test_a_failed_turn_leaves_the_memory_and_its_text_goes_into_the_next_bridge():
    histories, so_far = played()
    failed = request("what", ("hi", "hello there"))
    histories.remember(failed, histories.prompt(failed, 10), None, None)
    prompt = histories.prompt(request("say", ("hi", "hello there"), ("what", None)), 10)
    assert prompt.history == "bridged"
    assert prompt.ids == [*so_far, *Template(tokenizer()).bridge("what\n\nsay")]


def test_a_bridge_that_does_not_fit_falls_back_to_the_window_and_is_rendered_ever_after():
    histories, so_far = played(context=60)
    second = request("you " * 20, ("hi", "hello there"))
    prompt = histories.prompt(second, 10)
    assert (prompt.history, prompt.dropped_turns) == ("rendered", 1)
    assert len(prompt.ids) + 10 <= 60
    histories.remember(second, prompt, letters("what"), "what")
    assert len(histories) == 0


def test_a_text_that_never_fits_is_an_overflow():
    histories, _ = played(context=60)
    outcome = histories.prompt(request("what do you say " * 60, ("hi", "hello there")), 10)
    assert isinstance(outcome, Failure)
    assert outcome.status == "context_overflow"


def test_the_last_turn_forgets_the_conversation():
    histories, _ = played()
    last = request("you", ("hi", "hello there"), last=True)
    histories.remember(last, histories.prompt(last, 10), letters("what"), "what")
    assert len(histories) == 0


def test_the_conversation_longest_unused_is_forgotten_first():
    _, one = played()
    histories = Histories(Template(tokenizer()), 1000, most_tokens=2 * len(one))

    def play(key):
        first = Request(key, 0, (), "hi", None, seed=0)
        histories.remember(first, histories.prompt(first, 10), letters("hello there"), "hello there")

    def history(key):
        return histories.prompt(Request(key, 1, (Exchange("hi", "hello there"),), "you", None, seed=0), 10).history

    play("a")
    play("b")
    assert history("a") == "bridged"
    play("c")
    assert [history(key) for key in "abc"] == ["bridged", "rendered", "bridged"]


def test_a_text_that_the_template_refuses_fails_its_turn_alone():
    histories = Histories(Template(tokenizer(REFUSES)), 4096)
    assert histories.prompt(request("an <x>"), 16) == Failure("template_error", "no tags, please")
    first = histories.prompt(request("hello"), 16)
    histories.remember(request("hello"), first, [5, 6], "an <x>")
    assert len(histories) == 0
    refused = histories.prompt(request("more", ("hello", "an <x>")), 16)
    assert refused.status == "template_error" and not refused.retryable


SHOWS_LAST = CHATML.replace(
    "{{ m.content }}",
    "{% if m.thinking and loop.index0 == messages | length - 2 %}({{ m.thinking }}){% endif %}{{ m.content }}",
)
"""The last answer's reasoning is in the prompt, that of older ones is not."""


def test_a_thought_that_the_template_showed_once_is_not_kept_in_the_prompt_for_ever():
    """It is append-only as long as nobody has thought; then what is remembered would show what a render does not."""
    template = Template(tokenizer(SHOWS_LAST))
    assert template.append_only and template.shows_reasoning == "last"
    histories = Histories(template, 1000)
    second = request("you", ("hi", "hello there", "hm"))
    prompt = histories.prompt(second, 10)
    assert "(hm)hello there" in tokenizer().decode(prompt.ids)
    histories.remember(second, prompt, letters("what"), "what")
    third = request("them", ("hi", "hello there", "hm"), ("you", "what"))
    prompt = histories.prompt(third, 10)
    assert prompt.ids == Histories(template, 1000).prompt(third, 10).ids
    assert "(hm)" not in tokenizer().decode(prompt.ids)
