"""Settings: every mistake is one line that names file and key."""

import pytest

from jobs.config import SynthesisConfig, load, one_pool
from sequor.errors import BadInput


def write(tmp_path, text: str):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


CANDIDATE = "candidate: {model: a}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("candidate: {model: a, modle: b}", "unknown key candidate.modle"),
        ("candiate: {model: a}", "key candi"),
        ("turns: 5", "missing key candidate"),
        ("candidate: {engine: vllm}", "missing key candidate.model"),
        (CANDIDATE + "turns: many", "turns: Expected `int`"),
        (CANDIDATE + "turns: 0", "turns: Expected `int` >= 1"),
        (CANDIDATE + "sets: [sinlge]", "sets: 'sinlge' is none of single, tuples_3"),
        (CANDIDATE + "scheduler: {pacing: fast}", "scheduler.pacing: Invalid enum value 'fast'"),
        ("candidate: {model: a, sampling: {temperature: -1}}", "candidate.sampling.temperature"),
        ("- a", "not a mapping"),
        ("a: [", "while parsing"),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path, text, says):
    with pytest.raises(BadInput) as error:
        load(write(tmp_path, text), [])
    message = str(error.value)
    assert "run.yaml: " in message and says in message and "\n" not in message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["synthesis.activites=3"], "unknown key synthesis.activites"),
        (["synthesis.activities=0"], "synthesis.activities: Expected `int` >= 1"),
        (["synthesis.near=7"], "synthesis.near: Expected `float` <= 1"),
        (["model.modle=b"], "unknown key model.modle"),
        (["turns=3"], "unknown key turns"),
    ],
)
def test_a_mistake_in_a_synthesis_is_named_too(words, says):
    with pytest.raises(BadInput, match=f"command line: {says}"):
        load(None, ["model.model=a", "personas=p.jsonl", *words], SynthesisConfig)


def test_a_config_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match="none.yaml: no such config"):
        load(tmp_path / "none.yaml", [])


def test_settings_on_the_command_line_stand_over_the_file(tmp_path):
    config = load(write(tmp_path, CANDIDATE + "turns: 5"), ["turns=7", "candidate.sampling.max_tokens=64"])
    assert (config.turns, config.candidate.sampling.max_tokens) == (7, 64)


def test_an_unknown_key_on_the_command_line_is_named():
    with pytest.raises(BadInput, match="command line: unknown key candidate.replica"):
        load(None, ["candidate.model=a", "candidate.replica=2"])


def test_the_judge_is_greedy_unless_told_otherwise():
    assert load(None, ["candidate.model=a", "judge.model=b"]).judge.sampling.temperature == 0.0
    assert (
        load(None, ["candidate.model=a", "judge.model=b", "judge.sampling.temperature=1"]).judge.sampling.temperature
        == 1.0
    )


def test_a_known_model_brings_its_settings_and_the_config_stands_over_them():
    words = ["candidate.model=openai/gpt-oss-20b", "judge.model=openai/gpt-oss-120b", "judge.reasoning_parser=qwen3"]
    config = load(None, words)
    assert (config.candidate.reasoning_parser, config.judge.reasoning_parser) == ("openai_gptoss", "qwen3")
    assert load(None, ["candidate.model=no/body"]).candidate.reasoning_parser is None


def test_one_pool_serves_both_when_only_sampling_and_number_differ():
    config = load(None, ["candidate.model=a", "judge.model=a", "judge.sampling.max_tokens=9", "judge.replicas=3"])
    assert one_pool(config.candidate, config.judge)
    config = load(None, ["candidate.model=a", "judge.model=a", "judge.max_model_len=9000"])
    assert not one_pool(config.candidate, config.judge)
