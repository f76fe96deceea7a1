"""Several candidates against one pool of judges, through real Ray with scripted models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.config import folder_name, load_all
from sequor.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
CONFIG = """
data: demo
dialogues: 2
turns: 6
sets: [single, add_5]
candidates:
  - alpha
  - {model: beta/b, sampling: {max_tokens: 99}}
  - {model: j, script: "sequor.scripts:judge"}
candidate: {engine: scripted, script: "sequor.scripts:candidate"}
judge: {model: j, engine: scripted, script: "sequor.scripts:judge"}
"""


def write(tmp_path, text: str = CONFIG) -> Path:
    (tmp_path / "c.yaml").write_text(text)
    return tmp_path / "c.yaml"


def sequor(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jobs", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_each_candidate_has_what_all_share_and_its_own(tmp_path):
    found = load_all(write(tmp_path), ["turns=4"])
    assert list(found) == ["alpha", "beta--b", "j"]
    assert {config.candidate.engine for config in found.values()} == {"scripted"}
    assert [config.candidate.sampling.max_tokens for config in found.values()] == [4096, 99, 4096]
    assert {config.turns for config in found.values()} == {4}
    assert list(load_all(write(tmp_path), [], only="beta/b")) == ["beta--b"]


def test_a_known_models_settings_stand_below_what_all_share(tmp_path):
    text = "candidates: [openai/gpt-oss-20b]\ncandidate: {reasoning_parser: qwen3}\njudge: {model: j}\n"
    assert load_all(write(tmp_path, text), [])["openai--gpt-oss-20b"].candidate.reasoning_parser == "qwen3"


@pytest.mark.parametrize(
    ("candidates", "says"),
    [
        ("[]", "candidates: not a list of models"),
        ("alpha", "candidates: not a list of models"),
        ("[alpha, {modle: b}]", r"candidates\[1\]: neither a model's name"),
        ("[a/b, A--b]", r"candidates\[1\]: a second A--b"),
        ("[a, {model: b, replica: 3}]", "unknown key candidate.replica"),
    ],
)
def test_a_faulty_list_is_named(tmp_path, candidates, says):
    with pytest.raises(BadInput, match=f"c.yaml: {says}"):
        load_all(write(tmp_path, f"candidates: {candidates}\njudge: {{model: j}}\n"), [])


def test_a_models_name_becomes_one_part_of_a_path():
    names = ["Qwen/Qwen3-4B", "/data/my models/x", "~/a", "../b", "ünï/c d", "/"]
    assert [folder_name(name) for name in names] == [
        "Qwen--Qwen3-4B",
        "data--my_models--x",
        "a",
        "b",
        "ünï--c_d",
        "model",
    ]


def scores(folder: Path) -> list[bytes]:
    return [(folder / "scores" / name).read_bytes() for name in ("turns.csv", "sets.csv", "outcomes.csv")]


@pytest.mark.ray
def test_a_run_is_the_same_in_company_and_alone_and_a_broken_candidate_fails_alone(tmp_path):
    broken = CONFIG.replace("  - alpha\n", '  - alpha\n  - {model: broken, script: "no:where"}\n')
    done = sequor("run", write(tmp_path, broken), "-o", tmp_path / "all")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "broken is given up: engine broken-0.0: script 'no:where': No module named 'no'" in done.stdout
    for name in ("alpha", "beta--b", "j"):
        folder = tmp_path / "all" / name
        assert json.loads((folder / "status.json").read_bytes())["state"] == "complete"
        assert folder.joinpath("turns.jsonl").read_bytes().count(b"\n") == 24
        lines = folder.joinpath("judgements.jsonl").read_text().splitlines()
        keys = [tuple(json.loads(line)[k] for k in ("test_set", "dialogue", "turn", "constraint")) for line in lines]
        assert len(keys) == len(set(keys)) > 24
    assert json.loads((tmp_path / "all" / "broken" / "status.json").read_bytes())["state"] == "failed"
    done = sequor("run", tmp_path / "c.yaml", "--model", "beta/b", "-o", tmp_path / "one")
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(tmp_path / "one" / "beta--b") == scores(tmp_path / "all" / "beta--b")


@pytest.mark.ray
def test_a_campaign_goes_on_where_it_stopped_and_judges_may_come_last(tmp_path):
    config = write(tmp_path)
    done = sequor("respond", config, "-o", tmp_path / "all", "--model", "alpha")
    assert done.returncode == 0, done.stdout + done.stderr
    done = sequor("run", config, "order=phases", "-o", tmp_path / "all")
    assert done.returncode == 0, done.stdout + done.stderr
    done = sequor("run", config, "-o", tmp_path / "all")
    assert done.returncode == 0 and done.stdout.count("nothing is left to play") == 3
    assert "lost=0 repeated=0" in done.stdout


def test_the_papers_table_is_a_run_for_each_of_its_open_candidates():
    """SPEC of the benchmark: ten models with weights to be had, one judge, the model's own sampling."""
    found = load_all(ROOT / "configs" / "paper.yaml", [])
    assert len(found) == 10
    assert {config.judge.model for config in found.values()} == {"openai/gpt-oss-120b"}
    assert all(config.candidate.sampling.temperature is None for config in found.values())
    known = {path.stem for path in (ROOT / "configs" / "models").glob("*.yaml")}
    assert len(known) >= 12


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "models").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_known_models_file_is_a_config(path):
    model = next(line.partition(": ")[2] for line in path.read_text().splitlines() if line.startswith("model: "))
    found = load_all(None, [f"candidate.model={model}", "judge.model=j"])[""]
    parser = found.candidate.reasoning_parser
    vllm = pytest.importorskip("vllm.reasoning", reason="needs vLLM, whose parsers are named")
    assert parser is None or parser in vllm.ReasoningParserManager.list_registered()
