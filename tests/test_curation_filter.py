"""The filter: what goes, why, and that it is what MinHash says it should be."""

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from jobs import filter as verb
from jobs.curation import FilterConfig
from jobs.progress import console
from sequor.curation import filters, pipeline
from sequor.curation.candidates import Candidate, read_candidates
from sequor.curation.filters import BadWords, grams, similarity
from sequor.curation.language import COMPRESSED, Language, model_file
from sequor.curation.shards import write_shards
from sequor.errors import BadInput

SHARED = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
needs_release = pytest.mark.skipif(
    not (SHARED / "constraints").is_dir(), reason=f"no released data at {SHARED}; name it in SEQUOR_RELEASE"
)

TEXTS = (
    "Write your answer in the passive voice only",
    "Schreibe bitte immer auf Deutsch und in ganzen Sätzen",
    "Write your answer in the passive voice, only!",
    "Use at least one damned expletive in each of your paragraphs",
    "Answer in no more than 100 words and in plain English",
    "Answer in no more than 200 words and in plain English",
    "Put the string xxzzy at the end of every line you write",
    "Begin each sentence of your reply with a different letter",
)


def write(path: Path, texts=TEXTS) -> Path:
    rows = [{"id": f"c{at}", "constraint": text, "category": "style rules"} for at, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def lists(folder: Path) -> dict[str, str]:
    (folder / "words.txt").write_text("damned\nnot here\n")
    (folder / "sequences.txt").write_text("XXZZ\n")
    return {"words": str(folder / "words.txt"), "sequences": str(folder / "sequences.txt")}


def run(tmp_path: Path, **more) -> int:
    settings = lists(tmp_path) | {"input": str(write(tmp_path / "c.jsonl")), "workers": 1} | more
    return verb.filter(FilterConfig(**settings), tmp_path / "out", console())


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_goes_for_its_reason_and_keeps_what_it_came_with(tmp_path, capsys):
    assert run(tmp_path) == 0
    assert "in=8 language=1 duplicates=2 badwords=2 kept=3" in capsys.readouterr().out
    dropped = {row["id"]: row for row in read(tmp_path / "out" / "dropped.jsonl")}
    assert {id: row["reason"] for id, row in dropped.items()} == {
        "c1": "language",
        "c3": "bad word",
        "c6": "bad sequence",
    } | {id: "duplicate" for id in set(dropped) - {"c1", "c3", "c6"}}
    assert dropped["c1"]["score"] < 0.65 and "de" in dropped["c1"]["detail"]
    assert (dropped["c3"]["detail"], dropped["c6"]["detail"]) == ("damned", "xxzz")
    repeated = [row for row in dropped.values() if row["reason"] == "duplicate"]
    assert len(repeated) == 2 and all(row["score"] == 1.0 for row in repeated)  # numbers are alike
    kept = read(tmp_path / "out" / "kept.jsonl")
    assert {row["id"] for row in kept} | set(dropped) == {f"c{at}" for at in range(8)}
    assert all(row["category"] == "style rules" for row in kept + list(dropped.values()))


def test_shards_and_workers_change_nothing(tmp_path):
    run(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    run(other, shard=2, workers=2)
    for name in ("kept.jsonl", "counts.json"):
        assert (other / "out" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert sorted(map(str, read(other / "out" / "dropped.jsonl"))) == sorted(
        map(str, read(tmp_path / "out" / "dropped.jsonl"))
    )


def test_what_was_killed_between_two_steps_goes_on_with_what_is_done(tmp_path, monkeypatch):
    real, steps = pipeline._executor, []

    def killed_before_words(filtering, name, *rest):
        if name == "words":
            raise KeyboardInterrupt
        return real(filtering, name, *rest)

    monkeypatch.setattr(pipeline, "_executor", killed_before_words)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    signatures = tmp_path / "out" / "work" / "signatures" / "bucket_000" / "00000.minhash.sig"
    before = signatures.stat().st_mtime_ns

    def watched(filtering, name, *rest):
        steps.append((name, signatures.stat().st_mtime_ns))
        return real(filtering, name, *rest)

    monkeypatch.setattr(pipeline, "_executor", watched)
    assert run(tmp_path) == 0
    assert steps[3] == ("words", before)  # made by the first start, and not again
    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert counts == {"in": 8, "language": 1, "duplicates": 2, "badwords": 2, "kept": 3}


def test_a_finished_folder_shows_its_counts_and_another_setting_is_refused(tmp_path, monkeypatch, capsys):
    run(tmp_path)
    monkeypatch.setattr(pipeline, "run", lambda filtering: pytest.fail("filtered twice"))
    assert run(tmp_path) == 0
    assert capsys.readouterr().out.count("in=8") == 2
    with pytest.raises(BadInput, match=r"english_at_least: 0.65 there, 0.9 now"):
        run(tmp_path, english_at_least=0.9)


def test_without_a_word_list_it_says_so_and_can_be_done_again_with_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(filters, "WORD_LIST", "http://127.0.0.1:9/en")
    monkeypatch.setattr(verb, "WORD_LIST", "http://127.0.0.1:9/en")
    assert run(tmp_path, words=None) == 3
    out = capsys.readouterr().out
    assert "bad words are NOT filtered: http://127.0.0.1:9/en cannot be downloaded" in out and "words=FILE" in out
    assert out.splitlines()[-1] == "in=8 language=1 duplicates=2 badwords=1 kept=4"
    assert run(tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "in=8 language=1 duplicates=2 badwords=2 kept=3"


def test_a_downloaded_list_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "en"
    source.write_text("damned\n")
    monkeypatch.setattr(verb, "WORD_LIST", source.as_uri())
    assert run(tmp_path, words=None) == 0
    source.unlink()
    assert (tmp_path / "cache" / "sequor" / "badwords_en.txt").read_text() == "damned\n"


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("A damned thing", "damned"),
        ("A DAMNED, thing", "damned"),
        ("Goddamned thing", None),
        ("a damned-up river", "damned"),
        ("two  bad\nwords here", "two  bad\nwords"),
        ("prefixXYsuffix", "xy"),
        ("nothing", None),
    ],
)
def test_bad_words_are_whole_words_and_sequences_are_not(text, loss):
    found = BadWords(["damned", "two bad words", " "], ["xy", ""]).loss(text)
    assert (found.detail if found else None) == loss


def test_short_texts_are_repeated_only_when_they_are_the_same():
    assert similarity("Rewrite scientifically", "rewrite scientifically!") == 1.0
    assert similarity("300 characters", "500 characters") == 0.0
    assert similarity("in 300 characters or less", "In 500 characters, or less") == 1.0
    assert grams("!!!") == set()


def test_minhash_finds_the_pairs_that_datasketch_finds(tmp_path):
    """The same shingles, bands and rows; other hash functions. What one surely finds, the other finds; what differs are
    pairs whose chance of meeting, 1 - (1 - s^4)^50, is neither nought nor one."""
    datasketch = pytest.importorskip("datasketch")
    rng = np.random.default_rng(3)
    vocabulary = [f"word{n}" for n in range(400)]
    base = [list(rng.choice(vocabulary, 24)) for _ in range(40)]
    texts = [" ".join(words) for words in base]
    for words in base:  # near and less near copies
        for changes in (1, 3, 8):
            copy = list(words)
            for at in rng.choice(24, changes, replace=False):
                copy[at] = str(rng.choice(vocabulary))
            texts.append(" ".join(copy))
    shingles = [grams(text) for text in texts]
    ours = _pairs_of_datatrove(tmp_path, texts)
    lsh = datasketch.MinHashLSH(num_perm=200, params=(50, 4))
    hashes = []
    for at, found in enumerate(shingles):
        minhash = datasketch.MinHash(num_perm=200, seed=1)
        minhash.update_batch([gram.encode() for gram in sorted(found)])
        lsh.insert(at, minhash)
        hashes.append(minhash)
    theirs = {(a, b) for a, minhash in enumerate(hashes) for b in lsh.query(minhash) if a < b}

    def chance(pair: tuple[int, int]) -> float:
        s = filters.jaccard(shingles[pair[0]], shingles[pair[1]])
        return 1 - (1 - s**4) ** 50

    certain = {(a, b) for a in range(len(texts)) for b in range(a + 1, len(texts)) if chance((a, b)) > 1 - 1e-9}
    assert len(certain) >= 40
    assert certain <= ours and certain <= theirs
    expected = sum(chance((a, b)) for a in range(len(texts)) for b in range(a + 1, len(texts)))
    spread = sum(chance((a, b)) * (1 - chance((a, b))) for a in range(len(texts)) for b in range(a + 1, len(texts)))
    for found in (ours, theirs):
        assert abs(len(found) - expected) < 5 * spread**0.5 + 1
        assert all(chance(pair) > 1e-4 for pair in found)


def _pairs_of_datatrove(tmp_path: Path, texts: list[str]) -> set[tuple[int, int]]:
    """Every pair that shares a bucket, from the signatures as the pipeline makes them."""
    step = pipeline.Signatures(str(tmp_path / "sig"), pipeline.MINHASH, pipeline.NO_TOKENIZER)
    buckets: dict[tuple, list[int]] = {}
    for at, text in enumerate(texts):
        signature = step.get_signature(step.get_shingles(text))
        assert len(signature) == 50 and all(len(bucket) == 4 for bucket in signature)
        for number, bucket in enumerate(signature):
            buckets.setdefault((number, *bucket), []).append(at)
    return {(a, b) for members in buckets.values() for a in members for b in members if a < b}


def test_the_pipelines_clusters_are_those_of_the_pairs(tmp_path):
    texts = [
        "one two three four five six seven",
        "one two three four five six eight",
        "nine ten eleven twelve thirteen",
    ]
    (tmp_path / "out").mkdir()
    candidates = [Candidate(f"x{at}", text) for at, text in enumerate(texts)]
    shards = write_shards(tmp_path / "out", candidates, 2)
    model = str(model_file(COMPRESSED))
    os.environ.setdefault("TQDM_DISABLE", "1")
    pipeline.run(pipeline.Filtering(str(tmp_path / "out"), shards, 1, model, 0.0))
    dropped = read(tmp_path / "out" / "dropped.jsonl")
    assert [(row["reason"], row["score"]) for row in dropped] == [("duplicate", round(4 / 6, 4))]
    assert {dropped[0]["id"], dropped[0]["detail"][:2]} == {"x0", "x1"}


@needs_release
def test_the_release_passes_but_for_what_the_compressed_model_takes_for_no_english(tmp_path):
    """Every loss explained: 144 short texts below 0.65 with lid.176.ftz (the paper had lid.176.bin), and a text of two
    words that stands there twice, which a MinHash of 3-grams cannot see."""
    words = SHARED.parent / "samples" / "badwords_en.txt"
    if not words.exists():
        pytest.skip(f"no word list at {words}")
    config = FilterConfig(str(SHARED / "constraints" / "single.jsonl"), words=str(words), workers=1)
    assert verb.filter(config, tmp_path / "out", console()) == 0
    counts = msgspec.json.decode((tmp_path / "out" / "counts.json").read_bytes())
    assert counts == {"in": 1446, "language": 144, "duplicates": 1, "badwords": 0, "kept": 1301}
    others = [row for row in read(tmp_path / "out" / "dropped.jsonl") if row["reason"] != "language"]
    assert [row["constraint"].casefold() for row in others] == ["rewrite scientifically"]


@needs_release
def test_no_two_released_constraints_meet_in_the_papers_minhash(tmp_path):
    """The whole pool, also what lid.176.ftz would take out: the shingles and hash functions are the paper's."""
    texts = [c.constraint for c in read_candidates(SHARED / "constraints" / "single.jsonl")]
    long = [text for text in texts if all(gram.count(" ") == 2 for gram in grams(text))]
    assert len(long) > 1400 and _pairs_of_datatrove(tmp_path, long) == set()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no constraint"),
        ('{"constraint": " "}\n', ":1: constraint c0000001 is empty"),
        ('{"id": "a", "constraint": "b c"}\n{"id": "a", "constraint": "d"}\n', ":2: id a stands here for the second"),
        ('{"id": "a|b", "constraint": "c"}\n', "an id has no white space and no |"),
        ("{}\n", "missing required field `constraint`"),
    ],
)
def test_candidates_that_cannot_be_used_are_named_and_nothing_is_written(tmp_path, content, says):
    (tmp_path / "c.jsonl").write_text(content)
    config = FilterConfig(str(tmp_path / "c.jsonl"), words=lists(tmp_path)["words"])
    with pytest.raises(BadInput, match=says.replace("|", r"\|")):
        verb.filter(config, tmp_path / "out", console())
    assert not (tmp_path / "out").exists()


def test_other_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(BadInput, match=r"language_model: /no/lid.bin: no such file; lid.176.bin is at https"):
        run(tmp_path, language_model="/no/lid.bin")
    with pytest.raises(BadInput, match="nowhere.txt: cannot be read"):
        run(tmp_path, words="nowhere.txt")
    (tmp_path / "fake.bin").write_bytes(b"no model")
    with pytest.raises(BadInput, match="language_model"):
        Language(tmp_path / "fake.bin")
