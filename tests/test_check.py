"""`check`, on a model that is there: what it says of a run before anything starts."""

import io
from pathlib import Path

from rich.console import Console

from jobs.check import check
from jobs.config import load

TEMPLATES = Path(__file__).parent / "templates"
WORDS = ["data=demo", "sets=[single]", "dialogues=1", "turns=2", "candidate.sampling.max_tokens=64"]
WORDS += ["judge.engine=scripted", "judge.model=j", "judge.script=sequor.scripts:judge"]


def said(model: Path, template: str, *more: str) -> str:
    words = [*WORDS, f"candidate.model={model}", f"candidate.chat_template={TEMPLATES / template}.jinja", *more]
    out = io.StringIO()
    check(load(None, words), Console(file=out, width=200))
    return out.getvalue()


def test_check_tells_the_kind_of_template_and_shows_two_turns_through_it(model):
    told = said(model, "append_only")
    assert "- history grows token-exact: only the new user turn is rendered" in told
    assert "what the model thought" not in told
    seen = told.partition("what the model sees:")[2]
    assert "<|im_start|>assistant\n(the first answer)<|im_end|>\n<|im_start|>user\n" in seen


def test_check_warns_where_thoughts_would_be_judged_as_answers(model):
    warning = "WARNING: a thought opens at its end, and without a reasoning_parser it is judged as the answer"
    assert warning in said(model, "drops_reasoning")
    assert warning not in said(model, "drops_reasoning", "candidate.reasoning_parser=deepseek_r1")
    assert warning not in said(model, "empty_think") + said(model, "append_only")


def test_check_tells_what_the_template_does_with_reasoning_where_it_is_handed_over(model):
    asked = "candidate.reasoning_history=as-template"
    handed = "- what the model thought is handed to the template, which"
    assert f"{handed} leaves it out all the same" in said(model, "append_only", asked)
    assert f"{handed} shows it with the last answer alone" in said(model, "drops_reasoning", asked)
    assert f"{handed} shows it with every answer of a history" in said(model, "channels", asked)
