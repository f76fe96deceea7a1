"""Settings: every mistake is one line that names file and key."""

import os
from pathlib import Path

import pytest

from cluster import weights
from jobs.config import SynthesisConfig, load, one_pool, override
from jobs.curation import KINDS, words_to_config
from jobs.fingerprint import fingerprint
from jobs.known import known_settings, parallel_size, with_known
from sequor.errors import BadInput
from sequor.prompts import render as prompts
from sequor.run_folder import refuse_difference


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
        (
            "candidate: {model: a, engine: api, chat_template: t.jinja}",
            "candidate.chat_template: an endpoint's template is its own affair",
        ),
        (
            CANDIDATE + "judge: {model: b}\nmore_judges: [{model: c, engine: api, chat_template: t.jinja}]",
            "more_judges[0].chat_template: an endpoint's template is its own affair",
        ),
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


def test_a_replica_takes_as_many_gpus_as_its_weights_need():
    sizes = {80: 4, 140: 2}
    memory = {None: 4, 39.4: 4, 79.3: 4, 79.6: 4, 139.8: 2, 178.4: 2}  # GiB as A100, H100, H200 and B200 report them
    assert {gib: parallel_size(sizes, gib) for gib in memory} == memory
    assert with_known({"model": "google/gemma-3-4b-it"})["engine_args"] == {"limit_mm_per_prompt": {"image": 0}}
    args = with_known({"model": "meta-llama/Llama-3.3-70B-Instruct", "engine_args": {"tensor_parallel_size": 8}})
    assert args["engine_args"] == {"tensor_parallel_size": 8}


@pytest.mark.parametrize(
    ("name", "kind"), [("rate", "rate"), ("tuples", "tuples"), ("gold", "gold"), ("judges", "judge-judges")]
)
def test_the_papers_configs_name_models_that_are_known(name, kind):
    config = words_to_config([f"configs/{name}.yaml"] + ["in"] * (kind != "gold"), KINDS[kind])
    engines = {**config.judges, **config.answerers}.values()
    assert engines and all(known_settings(engine.model) for engine in engines)


def test_judges_are_told_apart_by_their_models():
    words = ["candidate.model=a", "judge.model=b", "more_judges=[c, {model: d, replicas: 2}]"]
    config = load(None, words)
    assert {role: judge.model for role, judge in config.judges.items()} == {"judge": "b", "judge2": "c", "judge3": "d"}
    assert {judge.sampling.temperature for judge in config.judges.values()} == {0.0}
    assert config.roles("candidate", "judge") == ("candidate", "judge", "judge2", "judge3")
    assert config.roles("candidate") == ("candidate",) and config.engine("judge3").replicas == 2
    with pytest.raises(BadInput, match=r"more_judges: b judges already"):
        load(None, ["candidate.model=a", "judge.model=b", "more_judges=[b]"])
    with pytest.raises(BadInput, match=r"more_judges\[0\].sampling.choices: 'maybe' is no verdict"):
        load(None, [*words[:2], "more_judges=[{model: c, sampling: {choices: [maybe]}}]"])
    with pytest.raises(BadInput, match="more_judges: there is no judge before them"):
        load(None, ["candidate.model=a", "more_judges=[c]"])


def test_one_pool_serves_both_when_only_sampling_and_number_differ():
    config = load(None, ["candidate.model=a", "judge.model=a", "judge.sampling.max_tokens=9", "judge.replicas=3"])
    assert one_pool(config.candidate, config.judge)
    config = load(None, ["candidate.model=a", "judge.model=a", "judge.max_model_len=9000"])
    assert not one_pool(config.candidate, config.judge)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sets=[single,add_5,single]"], "sets: 'single' is named twice"),
        (["sets=[]"], "sets: no test set is named"),
        (['judge.sampling.choices=["yes","no"]'], "judge.sampling.choices: 'yes' is no verdict for parser strict/2"),
        (
            ['judge.sampling.choices=["Final verdict: yes","**Final verdict:** yes"]'],
            "judge.sampling.choices: every choice is satisfied; both must be there",
        ),
    ],
)
def test_what_could_never_be_scored_is_refused(words, says):
    with pytest.raises(BadInput) as error:
        load(None, ["candidate.model=a", "judge.model=b", *words])
    assert says in str(error.value)


def test_null_is_as_good_as_left_out():
    raw = {"candidate": {"model": "a"}, "judge": None}
    override(raw, "judge.sampling.max_tokens=9")
    assert raw["judge"] == {"sampling": {"max_tokens": 9}}


SCRIPTED = ["candidate.engine=scripted", "candidate.model=a", "judge.engine=scripted", "judge.model=b"]


@pytest.mark.parametrize(
    "word",
    [
        "candidate.sampling.temperature=0.5",
        "candidate.sampling.max_tokens=99",
        "candidate.sampling.top_k=5",
        "judge.sampling.choices=['Final verdict: yes', 'Final verdict: no']",
        "candidate.engine_args.dtype=bfloat16",
        "candidate.engine_args.load_format=dummy",
        "candidate.script=x:y",
        "judge.reasoning_parser=qwen3",
        "seed=1",
        "turns=2",
    ],
)
def test_whatever_can_change_a_result_changes_the_fingerprint_also_where_it_was_left_out(word):
    files = {role: weights.ModelFiles("p", "d") for role in ("candidate", "judge")}
    before, after = (fingerprint(load(None, [*SCRIPTED, *more]), [], files) for more in ([], [word]))
    with pytest.raises(BadInput, match="another configuration"):
        refuse_difference(Path("run"), before, after)
    with pytest.raises(BadInput, match="another configuration"):
        refuse_difference(Path("run"), after, before)


# Old answers under a new prompt, template or way of asking.
def test_prompts_templates_and_ways_of_asking_are_part_of_the_fingerprint(tmp_path, monkeypatch):
    files = {role: weights.ModelFiles("p", "d") for role in ("candidate", "judge")}
    template = tmp_path / "t.jinja"

    def differs(words: list[str], more: list[str], change=lambda: None) -> bool:
        before = fingerprint(load(None, [*SCRIPTED, *words]), [], files)
        change()
        after = fingerprint(load(None, [*SCRIPTED, *words, *more]), [], files)
        try:
            refuse_difference(Path("run"), before, after)
        except BadInput:
            return True
        return False

    template.write_text("{{ messages }}")
    own = [f"candidate.chat_template={template}"]
    assert differs(own, [], lambda: template.write_text("{{ messages[0] }}"))
    assert not differs(own, [], lambda: os.utime(template, (1, 1)))
    api = ["candidate.engine=api"]
    for word in ("extra_body={reasoning: {effort: high}}", "context_tokens=4096", "send_seed=false", "tokenizer=a/b"):
        assert differs(api, [f"candidate.api.{word}"]), word
    assert not differs(api, ["candidate.api.concurrency=3"])
    source = prompts.source
    for name in ("judge", "completion"):

        def reworded(asked: str, name: str = name) -> str:
            return source(asked) + "!" * (asked == name)

        with monkeypatch.context() as patch:
            assert differs(["task_completion=true"], [], lambda: patch.setattr(prompts, "source", reworded)), name  # noqa: B023


def test_what_only_changes_the_speed_does_not():
    files = {role: weights.ModelFiles("p", "d") for role in ("candidate", "judge")}
    words = ["candidate.replicas=9", "judge.engine_args.max_num_seqs=7", "scheduler.pacing=rounds"]
    before, after = (fingerprint(load(None, [*SCRIPTED, *more]), [], files) for more in ([], words))
    refuse_difference(Path("run"), before, after)


def test_a_checkpoint_trained_on_is_another_model_and_a_readme_is_none(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(10_000_000))
    digest = weights.folder_digest(tmp_path)
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / "trainer_log.txt").write_text("loss")
    assert weights.folder_digest(tmp_path) == digest
    for change in ("model.safetensors", "config.json", "chat_template.jinja", "tokenizer.json"):
        before = weights.folder_digest(tmp_path)
        (tmp_path / change).write_bytes(b"\1" * 10_000_000 if "model" in change else b"{ }")
        assert weights.folder_digest(tmp_path) != before
