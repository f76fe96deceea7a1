"""Introductions: drawn, rendered, read back, and recovered from the release."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sequor import introductions, released
from sequor.errors import BadInput
from sequor.introductions import GAP, KINDS, PLACEHOLDER
from sequor.regimes import Change
from sequor.types import Constraint, Dialogue, UserTurn

RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
needs_release = pytest.mark.skipif(
    not (RELEASE / "testsets").is_dir(), reason=f"no released data at {RELEASE}; name it in SEQUOR_RELEASE"
)
OURS = introductions.load()
A, B, C = (Constraint(f"c-{text}", text) for text in ("Be brief", "Use {braces} and {{ tags }}", "1. Number things"))


def test_ours_has_six_each_to_start_and_replace_and_five_each_to_add():
    assert [len(OURS[kind]) for kind in KINDS] == [6, 6, 6, 6, 5, 5]


def test_no_template_stands_for_two_kinds():
    every = [template for kind in KINDS for template in OURS[kind]]
    assert len(set(every)) == len(every)


def test_one_stands_in_the_line_and_several_below_it():
    assert introductions.render("Only: {constraints}", ["Be brief"]) == "Only: Be brief"
    assert introductions.render("All:\n{constraints}", ["x", "y"]) == "All:\n1. x\n2. y"


def test_braces_in_a_constraint_stay_text():
    assert introductions.render("Only {constraints}!", ["a {constraints} {{b}}"]) == "Only a {constraints} {{b}}!"


def test_introductions_lead_only_the_turns_that_change_something():
    plan = (Change(1, "start", (A,)), Change(3, "add", (B, C)))
    prompts = introductions.introduce(plan, ["one", "two", "three"], OURS, Random(0))
    assert prompts[0].endswith(f"{A.text}\n\n\none")
    assert prompts[1] == "two"
    assert prompts[2].endswith(f"\n1. {B.text}\n2. {C.text}\n\n\nthree")


@given(st.randoms(), st.lists(st.sampled_from(["add", "replace"]), max_size=60))
def test_a_kind_never_has_the_same_template_twice_in_a_row(rng, kinds):
    plan = [Change(turn, kind, (A,)) for turn, kind in enumerate(kinds, 1)]
    prompts = introductions.introduce(plan, ["task"] * len(plan), OURS, rng)
    for kind in ("add", "replace"):
        mine = [prompt for prompt, drawn in zip(prompts, kinds, strict=True) if drawn == kind]
        assert all(a != b for a, b in zip(mine, mine[1:], strict=False))


def test_a_kind_with_a_single_template_repeats_it():
    single = {kind: OURS[kind][:1] for kind in KINDS}
    plan = [Change(turn, "replace", (A,)) for turn in (1, 2)]
    assert len(set(introductions.introduce(plan, ["t", "t"], single, Random(0)))) == 1


@given(st.data())
def test_what_is_rendered_can_be_read_back(data):
    kind = data.draw(st.sampled_from(KINDS))
    template = data.draw(st.sampled_from(OURS[kind]))
    pool = [A.text, B.text, C.text, "Write in\nlines"]
    most = 1 if kind.endswith("one") else 4
    texts = data.draw(st.lists(st.sampled_from(pool), unique=True, min_size=min(most, 2), max_size=most))
    readings = introductions.read(introductions.render(template, texts), OURS, frozenset(pool))
    assert readings == [(kind, template, tuple(texts))]


@pytest.mark.parametrize(
    "listed", ["1. Be brief\n3. x", "2. x\n1. Be brief", "Be brief\n2. x", "1. Be brief\n\n2. x", "1.Be brief"]
)
def test_wrong_numbering_is_not_read(listed):
    introduction = OURS["start_several"][0].replace(PLACEHOLDER, listed)
    assert introductions.read(introduction, OURS, frozenset({"Be brief", "x"})) == []


def test_introduction_and_task_are_parted_at_three_newlines():
    assert introductions.split(f"Do: x{GAP}task\n\nmore") == ("Do: x", "task\n\nmore")
    assert introductions.split("task\n\nmore") == (None, "task\n\nmore")


def written(folder: Path, **changes: object) -> Path:
    text = introductions.to_yaml({**OURS, **changes})
    path = folder / "templates.yaml"
    path.write_text(text, "utf-8")
    return path


def test_a_template_file_is_read_as_it_was_written(tmp_path):
    changed = ('Ümlaut, "quotes":\n{constraints}', "{constraints}")
    assert introductions.load(written(tmp_path, add_several=changed)) == {**OURS, "add_several": changed}


@pytest.mark.parametrize(
    ("templates", "fault"),
    [
        (["no placeholder"], "template 1 must hold {constraints} exactly once"),
        (["{constraints}", "{constraints} {constraints}"], "template 2 must hold {constraints} exactly once"),
        (["a\n\n\n{constraints}"], "template 1 holds three newlines"),
        (["{constraints}", "{constraints}"], "the same template twice"),
        ([3], "template 1 is no text"),
        ([], "expected a list of at least one template"),
    ],
)
def test_a_bad_template_names_file_and_key(tmp_path, templates, fault):
    path = written(tmp_path, replace_one=templates)
    with pytest.raises(BadInput) as caught:
        introductions.load(path)
    assert str(caught.value).startswith(f"{path}: replace_one: {fault}")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"start_one: ['{constraints}']", "start_several: expected a list"),
        (b"begin: ['{constraints}']", "begin: no kind of introduction"),
        (b"- a", "expected a mapping"),
        (b"", "expected a mapping"),
        (b"a: [", "no valid YAML"),
        (b"a: \xff", "no valid YAML"),
    ],
)
def test_a_bad_template_file_is_told_in_one_line(tmp_path, content, fault):
    path = tmp_path / "t.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=fault) as caught:
        introductions.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="cannot be read"):
        introductions.load(tmp_path / "missing.yaml")


def dialogue(*turns: tuple[str, tuple[Constraint, ...]]) -> Dialogue:
    return Dialogue("everything", "d", tuple(UserTurn(prompt, now) for prompt, now in turns))


def test_a_template_is_recovered_by_taking_the_last_occurrence_out():
    rule = Constraint("r", "rule")
    (found,) = introductions.introductions(dialogue((f"One rule: rule{GAP}task", (rule,))), {})
    assert (found.kind, found.template) == ("start_one", "One rule: {constraints}")


def test_the_pools_text_is_taken_where_the_dialogues_is_not_in_the_introduction():
    given_as, pooled = Constraint("r", "Write Dialogue"), {"r": "Write dialogue"}
    (found,) = introductions.introductions(dialogue((f"Do: Write dialogue{GAP}t", (given_as,))), pooled)
    assert found.texts == ("Write dialogue",)


def test_recovering_tells_what_is_missing():
    with pytest.raises(BadInput, match="start_several"):
        introductions.recover([dialogue((f"Do: {A.text}{GAP}t", (A,)))], [A])
    with pytest.raises(BadInput, match="everything/d: turn 1: the constraints in force change without"):
        introductions.recover([dialogue(("t", (A,)))], [A])
    with pytest.raises(BadInput, match="turn 2: the introduction does not give"):
        introductions.recover([dialogue((f"Do: {A.text}{GAP}t", (A,)), (f"Do: x{GAP}t", (B,)))], [A, B])


@needs_release
def test_every_released_introduction_is_rendered_again_to_its_bytes(tmp_path):
    sets = [released.load_test_set(RELEASE, name, turns=None) for name in released.test_sets_in(RELEASE)]
    dialogues = [dialogue for found in sets for dialogue in found.dialogues]
    constraints = released.load_constraints(RELEASE)
    templates = introductions.recover(dialogues, constraints)
    assert [len(templates[kind]) for kind in KINDS] == [6, 6, 6, 6, 5, 5]
    pool = {constraint.id: constraint.text for constraint in constraints}
    rendered, with_arity = 0, set()
    for found in dialogues:
        for introduced in introductions.introductions(found, pool):
            task = introductions.split(found.turns[introduced.turn - 1].prompt)[1]
            again = introductions.render(introduced.template, introduced.texts) + GAP + task
            assert again.encode() == found.turns[introduced.turn - 1].prompt.encode()
            assert introduced.template in templates[introduced.kind]
            rendered += 1
            with_arity.add((introduced.template, len(introduced.texts)))
    assert rendered == sum(GAP in turn.prompt for found in dialogues for turn in found.turns) == 14_234
    assert len(with_arity) == 46
    path = tmp_path / "released.yaml"
    path.write_text(introductions.to_yaml(templates), "utf-8")
    assert introductions.load(path) == templates
    assert not {t for kind in KINDS for t in templates[kind]} & {t for kind in KINDS for t in OURS[kind]}
