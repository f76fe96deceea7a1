"""Append-only files: torn tails, broken middles, odd characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sequor.errors import BadInput
from sequor.records import Journal, TurnRecord


def record(n: int, answer: str = "hello") -> TurnRecord:
    return TurnRecord(test_set="single", dialogue="d", turn=n, status="ok", answer=answer)


def journal(path, *records: TurnRecord) -> Journal[TurnRecord]:
    found = Journal(path / "turns.jsonl", TurnRecord)
    found.open()
    found.append(records)
    return found


def test_what_is_appended_is_read_back(tmp_path):
    assert list(journal(tmp_path, record(1), record(2))) == [record(1), record(2)]


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    assert list(Journal(tmp_path / "none.jsonl", TurnRecord)) == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_costs_that_line_only_and_never_moves_to_the_middle(tmp_path, cut):
    journal(tmp_path, record(1), record(2), record(3)).close()
    path = tmp_path / "turns.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    whole = [record(1), record(2)] if cut > 1 else [record(1), record(2), record(3)]  # only the line end is missing
    assert list(Journal(path, TurnRecord)) == whole
    again = journal(tmp_path, record(4))
    assert list(again) == [*whole, record(4)]


def test_a_tail_torn_within_a_character_is_cut_off(tmp_path):
    journal(tmp_path, record(1), record(2, "日本語" * 50)).close()
    path = tmp_path / "turns.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("語".encode()) + 1])
    assert list(journal(tmp_path, record(3))) == [record(1), record(3)]


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path):
    journal(tmp_path, record(1), record(2, "x" * 300_000)).close()
    path = tmp_path / "turns.jsonl"
    path.write_bytes(path.read_bytes()[:-2])
    assert list(journal(tmp_path, record(3))) == [record(1), record(3)]


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    journal(tmp_path, record(1)).close()
    path = tmp_path / "turns.jsonl"
    path.write_bytes(path.read_bytes() + b'{"test_set": "single"\n' + path.read_bytes())
    with pytest.raises(BadInput, match=r"turns\.jsonl:2: "):
        list(Journal(path, TurnRecord))


@given(st.text())
def test_any_text_comes_back_as_it_was(tmp_path_factory, text):
    """U+2028, NUL, emoji, right-to-left and the rest; lone surrogates cannot come out of a decoder."""
    path = tmp_path_factory.mktemp("journal")
    assert [r.answer for r in journal(path, record(1, text))] == [text]


def test_a_line_is_readable_by_anyone(tmp_path):
    import json

    journal(tmp_path, record(1, "a\nb\u2028c")).close()
    [line] = (tmp_path / "turns.jsonl").read_bytes().split(b"\n")[:-1]
    assert json.loads(line)["answer"] == "a\nb\u2028c"
