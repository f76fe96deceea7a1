"""Conversations in, candidates out: formats, replies as models write them, and a stage that is continued."""

import json
import os
import signal
from pathlib import Path

import pyarrow
import pytest
from local import LocalHost
from pyarrow import parquet

from cluster import replicas
from cluster.conversation import Failure, Request
from cluster.driver import Pool
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings
from jobs import extract as verb
from jobs import pools
from jobs.curation import ExtractConfig
from jobs.progress import console
from sequor.curation import scripts
from sequor.curation.chats import Chat, Skipped, chat_files, read_chats
from sequor.curation.extract import category_of, objects, question, reading
from sequor.errors import BadInput
from sequor.keyset import KeySet
from sequor.records import ReplyRecord

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"


def reply(text: str | None, turns: int = 3, **more) -> ReplyRecord:
    return ReplyRecord(key=f"conv|abcd1234|{turns}", status="ok", reply=text, **more)


def lines(path: Path, *rows) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


LMSYS = {
    "conversation_id": "ab12",
    "model": "m",
    "conversation": [
        {"role": "user", "content": "Be brief. What is rain?"},
        {"role": "assistant", "content": "Use no words."},
        {"role": "user", "content": "Now as a list"},
    ],
    "turn": 2,
    "language": "English",
}
ASKED = ("Be brief. What is rain?", "Now as a list")


def test_the_three_formats_give_the_users_turns_alone(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist([LMSYS]), tmp_path / "a.parquet")
    lines(tmp_path / "b.jsonl", {k: LMSYS[k] for k in ("conversation_id", "conversation")})
    said = [{"from": "human" if m["role"] == "user" else "gpt", "value": m["content"]} for m in LMSYS["conversation"]]
    (tmp_path / "c.json").write_text(json.dumps([{"id": "x y|z", "conversations": said}], indent=2))
    lines(tmp_path / "d.jsonl", {"question_id": 81, "turns": list(ASKED)})
    found = [list(read_chats(path)) for path in chat_files([str(tmp_path)])]
    assert found == [
        [Chat("ab12", ASKED, "English")],
        [Chat("ab12", ASKED)],
        [Chat("x_y_z", ASKED)],
        [Chat("81", ASKED)],
    ]


def test_what_is_no_conversation_is_skipped_and_said(tmp_path):
    path = lines(tmp_path / "a.jsonl", LMSYS, "{broken", {"conversation": []}, [1], {"text": "no"}, "")
    found = list(read_chats(path))
    assert isinstance(found[0], Chat)
    assert [skipped.reason for skipped in found[1:]] == [
        "no JSON",
        "no user turn",
        "no conversation",
        "no conversation",
    ]
    assert all(isinstance(skipped, Skipped) for skipped in found[1:]) and found[1].where.endswith("a.jsonl:2")


def test_an_array_larger_than_what_is_read_at_a_time_comes_object_by_object(tmp_path, monkeypatch):
    monkeypatch.setattr("sequor.curation.chats.CHUNK", 37)
    rows = [{"id": f"c{n}", "turns": ["Say “é” [now], " + "x" * (n % 90)]} for n in range(200)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    assert [chat.id for chat in read_chats(path)] == [f"c{n}" for n in range(200)]


def test_files_that_hold_no_conversation_are_named(tmp_path):
    parquet.write_table(pyarrow.table({"text": ["a"], "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"a.parquet: no column `conversation`; there are text, n"):
        list(read_chats(tmp_path / "a.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(BadInput, match="b.parquet: no Parquet file"):
        list(read_chats(tmp_path / "b.parquet"))
    with pytest.raises(BadInput, match=r"c.jsonl: holds no conversation"):
        list(read_chats(lines(tmp_path / "c.jsonl", {"a": 1}, "x")))
    (tmp_path / "d.json").write_text('[{"id": "a", "turns": ["b"]}, {"id')
    with pytest.raises(BadInput, match="d.json: object 2: no JSON"):
        list(read_chats(tmp_path / "d.json"))
    with pytest.raises(BadInput, match="no such file or folder"):
        chat_files([str(tmp_path / "none")])


GOOD = '[{"constraint": "Be brief", "category": "style rules", "message": 2}]'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Sure [see below]: {GOOD} That is [all].",
        '{"constraint": "Be brief", "category": "Style Rules", "message": "2"}',
        f'{{"constraints": {GOOD}}}',
        GOOD[:-1] + ', {"constraint": "Use',
        '{"constraint": "Be brief", "category": "STYLE_RULE", "turn": 2}\n{"constraint": ',
        '[{"constraint": "Be  brief\n", "category": "style", "message": 2},]',
    ],
)
def test_one_constraint_is_read_however_it_is_wrapped(text):
    [found] = reading(reply(text)).candidates
    assert (found.constraint, found.category, found.turn) == ("Be brief", "style rules", 2)
    assert (found.id, found.conversation) == ("conv.1", "conv")


def test_no_json_none_and_no_answer_are_told_apart():
    assert reading(reply("[]")).status == reading(reply("There is none: []")).status == "none"
    assert reading(reply("I cannot.")).status == reading(reply("[1, 2]")).status == "no JSON"
    assert reading(reply(None)).status == "no answer"
    assert objects("[" * 5000) is None


def test_what_cannot_be_a_constraint_is_dropped_with_its_reason():
    text = json.dumps([{"constraint": "Be brief"}, {"constraint": "be brief"}, "...", {"constraint": "x" * 501}])
    found = reading(reply(text))
    assert [c.constraint for c in found.candidates] == ["Be brief"]
    assert [reason for _, reason in found.dropped] == [
        "repeats one of the same conversation",
        "no words",
        "501 characters: too long",
    ]


def test_a_category_outside_the_four_is_kept_as_said():
    [found] = reading(reply('[{"constraint": "Be brief", "category": "Content: topic"}]')).candidates
    assert (found.category, found.category_said) == (None, "Content: topic")
    assert [category_of(x) for x in ("Number Limitation", "format", "formatting", "number of cats", 3, "")] == [
        "number limitations",
        "format specifications",
        None,
        None,
        None,
        None,
    ]


def test_a_turn_that_is_not_there_is_none():
    text = '[{"constraint": "Be brief", "message": 9}]'
    assert reading(reply(text, turns=3)).candidates[0].turn is None
    assert reading(reply(text, turns=1)).candidates[0].turn == 1


def test_a_question_shows_all_turns_in_a_mark_of_their_own_and_is_cut():
    asked, cut = question(Chat("c", ("first {{ turn }}", "second")), 1000)
    assert "[1]\nfirst {{ turn }}" in asked.user_turns[0] and "[2]\nsecond" in asked.user_turns[0] and not cut
    short, cut = question(Chat("c", ("abcdef", "never shown")), 4)
    assert "abcd\n" in short.user_turns[0] and "never" not in short.user_turns[0] and cut
    assert asked.key != short.key and asked.key.startswith("c|")


def test_a_set_of_keys_knows_its_own_and_no_others(monkeypatch):
    monkeypatch.setattr("sequor.keyset.FRESH", 7)
    keys = KeySet()
    assert all(keys.add(f"k{n}") for n in range(100))
    assert len(keys) == 100 and not keys.add("k3") and "k99" in keys and "other" not in keys


class Desk:
    """Where a test asks for an extraction, and sees what was asked of the engines."""

    def __init__(self, folder: Path, monkeypatch):
        self.out, self.asked, self.answer, self.most = folder / "out", [], scripts.extractor, 0
        rows = [{"conversation_id": f"c{n}", "turns": [f"Write {n} words about it please"]} for n in range(60)]
        self.source = lines(folder / "chats.jsonl", *rows, rows[3], {"conversation_id": "c4", "turns": ["Be brief"]})
        monkeypatch.setattr(replicas, "connect", lambda address: None)
        monkeypatch.setattr(replicas, "disconnect", lambda: None)
        monkeypatch.setattr(pools, "one", self.pool)

    def pool(self, name, settings, files, scheduling, seed, logs) -> Pool:
        self.scheduler = ConversationScheduler(scheduling, seed)
        return Pool(name, self.scheduler, LocalHost(self.ask))

    def ask(self, request: Request):
        self.asked.append(request.key)
        self.most = max(self.most, self.scheduler.unfinished)
        return self.answer(request)

    def run(self, **more) -> int:
        self.asked.clear()
        model = EngineSettings("s", engine="scripted")
        config = ExtractConfig(model, (str(self.source),), languages="all", live=8, **more)
        return verb.extract(config, self.out, console())

    def candidates(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "candidates.jsonl").read_text().splitlines()]


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_every_conversation_is_asked_once_and_few_are_held_at_a_time(desk, capsys):
    assert desk.run() == 0
    assert len(desk.asked) == len(set(desk.asked)) == 61  # one stands there twice, word for word
    assert desk.most <= 8
    out = capsys.readouterr().out
    assert "conversations: 62 conversations, 61 asked, 1 repeated" in out
    last = dict(part.split("=") for part in out.splitlines()[-1].split())
    assert last["conversations"] == "62" and last["replies"] == "61" and last["missing"] == "0"
    assert int(last["candidates"]) == len(desk.candidates()) > 20
    assert len({row["id"] for row in desk.candidates()}) == len(desk.candidates())
    no_json = [row for row in map(json.loads, (desk.out / "dropped.jsonl").open()) if row["reason"] == "no JSON"]
    assert len(no_json) == int(last["unreadable"]) and all("sorry" in row["text"] for row in no_json)


def test_a_stop_and_a_torn_line_lose_nothing_and_ask_nothing_twice(desk):
    answer = desk.answer

    def stopped(request: Request):
        if len(desk.asked) == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return answer(request)

    desk.answer = stopped
    assert desk.run() == 75
    had = {json.loads(line)["key"] for line in (desk.out / "replies.jsonl").open()}
    assert 0 < len(had) < 61
    with open(desk.out / "replies.jsonl", "ab") as file:
        file.write(b'{"key": "c59|')
    desk.answer = answer
    assert desk.run() == 0
    assert not had & set(desk.asked) and len(had) + len(desk.asked) == 61
    after = desk.candidates()
    assert desk.run() == 0 and desk.asked == [] and desk.candidates() == after


def test_what_the_machinery_failed_to_bring_is_asked_again(desk, capsys):
    answer = desk.answer
    desk.answer = lambda r: Failure("engine_error", "no luck") if r.key.startswith("c7|") else answer(r)
    assert desk.run() == 3
    assert capsys.readouterr().out.splitlines()[-1].endswith("missing=1")
    desk.answer = answer
    assert desk.run() == 0 and [key[:3] for key in desk.asked] == ["c7|"]


def test_more_conversations_continue_a_folder_and_another_model_is_refused(desk):
    assert desk.run(count=10) == 0 and len(desk.asked) == 10
    assert desk.run() == 0 and len(desk.asked) == 51
    with pytest.raises(BadInput, match="longest: 24000 there, 10 now"):
        desk.run(longest=10)


def test_languages_are_as_the_file_says_or_as_they_look(tmp_path, monkeypatch):
    desk = Desk(tmp_path, monkeypatch)
    german = "Schreibe mir bitte einen langen Text über den Regen in Bern"
    lines(
        desk.source,
        {"conversation_id": "said", "turns": [german], "language": "English"},
        {"conversation_id": "looks", "turns": [german]},
        {"conversation_id": "other", "turns": ["Write about the rain in Spain"], "language": "Spanish"},
        {"conversation_id": "plain", "turns": ["Write a long text about the rain in Spain"]},
    )
    config = ExtractConfig(EngineSettings("s", engine="scripted"), (str(desk.source),))
    assert verb.extract(config, desk.out, console()) == 0
    assert sorted(key.split("|")[0] for key in desk.asked) == ["plain", "said"]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no samples at {SAMPLES}")
def test_the_samples_are_read_as_they_are():
    found = [list(read_chats(SAMPLES / name)) for name in ("mt_bench_questions.jsonl", "dummy_conversation.json")]
    assert [len(chats) for chats in found] == [80, 500]
    assert all(len(chat.user_turns) == 2 for chat in found[0]) and found[1][0].user_turns[0] == "Who are you?"
