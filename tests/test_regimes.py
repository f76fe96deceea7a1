"""Plans of constraints: rules that hold for every plan, and the distributions of the release's Everything."""

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sequor.errors import BadInput
from sequor.regimes import (
    Deck,
    Plan,
    in_force,
    parse_name,
    plan_add,
    plan_everything,
    plan_replace,
    plan_single,
    plan_tuples,
    random_change_turns,
)
from sequor.types import TEST_SETS, Constraint, ConstraintTuple, Regime

CHI_SQUARE_AT_1_PERCENT = {1: 6.635, 2: 9.210, 4: 13.277, 8: 20.090, 9: 21.666}
"""Degrees of freedom -> what chance alone exceeds once in a hundred times."""


def pool(singles: int, tuples: int, size: int = 3, seed: int = 0) -> tuple[list[Constraint], list[ConstraintTuple]]:
    rng = Random(seed)
    found = [Constraint(f"c{i}", f"do {i}") for i in range(singles)]
    return found, [ConstraintTuple(f"t{i}", tuple(rng.sample(found, size))) for i in range(tuples)]


@st.composite
def pools(draw):
    singles = draw(st.integers(1, 12))
    size = draw(st.integers(1, min(singles, 5)))
    return pool(singles, draw(st.integers(1, 6)), size, draw(st.integers(0, 99)))


def compatible(constraints: Iterable[Constraint], tuples: list[ConstraintTuple]) -> bool:
    ids = {c.id for c in constraints}
    return len(ids) == 1 or any(ids <= {c.id for c in t.constraints} for t in tuples)


def assert_sound(plan: Plan, turns: int, limit: int, tuples: list[ConstraintTuple]) -> None:
    assert [change.kind == "start" for change in plan] == [True] + [False] * (len(plan) - 1)
    assert plan[0].turn == 1 and plan[-1].turn <= turns
    assert all(a.turn < b.turn for a, b in zip(plan, plan[1:], strict=False))
    found = in_force(plan, turns)
    assert len(found) == turns
    for now in found:
        assert 1 <= len(now) <= limit
        assert len({c.id for c in now}) == len(now)
        assert compatible(now, tuples)
    for change in plan:
        if change.kind == "replace":
            assert not set(change.given) & set(found[change.turn - 2])


@given(
    pools(),
    st.integers(1, 80),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from(["paper", "release"]),
    st.randoms(),
)
def test_everything_keeps_its_rules_for_any_pool_turns_step_and_limit(pool, turns, longest, limit, rhythm, rng):
    singles, tuples = pool
    try:
        plan = plan_everything(
            Deck(singles, rng), Deck(tuples, rng), turns, rng, longest=longest, limit=limit, rhythm=rhythm
        )
    except BadInput as error:  # only where a replace may find nothing else to give
        assert "no constraint and no tuple" in str(error)
        assert len(singles) <= 5
        return
    assert_sound(plan, turns, limit, tuples)
    gaps = [b.turn - a.turn for a, b in zip(plan, plan[1:], strict=False)]
    assert all(gap <= longest * (1 if rhythm == "paper" else 2) for gap in gaps)


@given(pools(), st.integers(1, 80), st.integers(1, 30), st.integers(1, 6), st.randoms())
def test_regular_regimes_keep_their_rules_for_any_pool_turns_step_and_limit(pool, turns, step, limit, rng):
    singles, tuples = pool
    regular = list(range(1, turns + 1, step))
    assert_sound(plan_single(Deck(singles, rng)), turns, 1, tuples)
    assert_sound(plan_tuples(Deck(tuples, rng)), turns, len(tuples[0].constraints), tuples)
    added = plan_add(Deck(tuples, rng), turns, step, limit, rng)
    assert_sound(added, turns, limit, tuples)
    assert [c.turn for c in added] == regular[: min(limit, len(tuples[0].constraints))]
    if len(singles) < len(regular):
        with pytest.raises(BadInput, match="Replace"):
            plan_replace(Deck(singles, rng), turns, step)
        return
    replaced = plan_replace(Deck(singles, rng), turns, step)
    assert_sound(replaced, turns, 1, tuples)
    assert [c.turn for c in replaced] == regular
    assert len({c.given[0].id for c in replaced}) == len(replaced)


def test_a_deck_deals_every_card_before_any_comes_again():
    deck = Deck(pool(10, 0)[0], Random(3))
    first, second = [[deck.draw() for _ in range(10)] for _ in range(2)]
    assert len(set(first)) == len(set(second)) == 10
    assert first != second


def test_empty_decks_are_bad_input():
    nothing = Deck([], Random(0))
    for attempt in (
        lambda: plan_single(nothing),
        lambda: plan_tuples(nothing),
        lambda: plan_replace(nothing, 10, 5),
        lambda: plan_add(nothing, 10, 5, 3, Random(0)),
        lambda: plan_everything(nothing, nothing, 10, Random(0)),
    ):
        with pytest.raises(BadInput):
            attempt()


def test_names_of_the_release_and_of_other_steps_are_read():
    assert [parse_name(name)[1] for name in TEST_SETS] == [0, 3, 5, 10, 5, 10, 0]
    assert parse_name("replace_7") == (Regime.REPLACE, 7)
    for name in ("replace", "replace_0", "single_1", "add_x", "", "everything\n", "add_-5"):
        with pytest.raises(BadInput, match="is no test set"):
            parse_name(name)


def test_papers_rhythm_changes_after_every_step_and_releases_after_every_second():
    gaps = {
        rhythm: [
            b - a
            for seed in range(200)
            for turns in [random_change_turns(50, 5, rhythm, Random(seed))]
            for a, b in zip(turns, turns[1:], strict=False)
        ]
        for rhythm in ("paper", "release")
    }
    assert set(gaps["paper"]) == set(range(1, 6))
    assert set(gaps["release"]) == set(range(1, 11))


# What the release's Everything shows in turns 1 to 50 of its 200 dialogues.
RELEASED_GAPS = {1: 40, 2: 118, 3: 160, 4: 223, 5: 300, 6: 297, 7: 218, 8: 162, 9: 93, 10: 64}
RELEASED_FIRST_GAPS = {1: 40, 2: 48, 3: 37, 4: 39, 5: 36}
RELEASED_STARTS = {1: 127, 2: 30, 3: 43}
RELEASED_KINDS = {"replace": 1176, "add": 499}
RELEASED_TRANSITIONS = {
    (1, "add", 2): 104,
    (1, "add", 3): 105,
    (1, "replace", 1): 412,
    (1, "replace", 2): 100,
    (1, "replace", 3): 109,
    (2, "add", 3): 290,
    (3, "replace", 1): 377,
    (3, "replace", 2): 89,
    (3, "replace", 3): 89,
}
RELEASED_TURNS_IN_FORCE = {1: 4801, 2: 1747, 3: 3452}


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    singles, tuples = pool(1446, 948)
    rngs = [Random(f"{seed}/{dialogue}") for seed in range(10) for dialogue in range(200)]
    return [plan_everything(Deck(singles, rng), Deck(tuples, rng), 50, rng) for rng in rngs]


def transitions(plan: Plan) -> list[tuple[int, str, int]]:
    """In force before a change, its kind, in force after it."""
    counts = [len(now) for now in in_force(plan, 50)]
    return [(counts[c.turn - 2], c.kind, counts[c.turn - 1]) for c in plan[1:]]


def assert_agree(released: Mapping, ours: Counter) -> None:
    """Chi-square test of homogeneity, released against ours, at 1%."""
    assert set(ours) == set(released)
    total_released, total_ours = sum(released.values()), ours.total()
    statistic = 0.0
    for key in released:
        both = released[key] + ours[key]
        for count, total in ((released[key], total_released), (ours[key], total_ours)):
            expected = both * total / (total_released + total_ours)
            statistic += (count - expected) ** 2 / expected
    assert statistic < CHI_SQUARE_AT_1_PERCENT[len(released) - 1]


def test_everything_changes_in_the_rhythm_of_the_release(plans):
    gaps = [[b.turn - a.turn for a, b in zip(plan, plan[1:], strict=False)] for plan in plans]
    assert_agree(RELEASED_GAPS, Counter(gap for found in gaps for gap in found))
    assert_agree(RELEASED_FIRST_GAPS, Counter(found[0] for found in gaps))


def test_everything_adds_and_replaces_as_the_release_does(plans):
    assert_agree(RELEASED_STARTS, Counter(len(plan[0].given) for plan in plans))
    assert_agree(RELEASED_KINDS, Counter(change.kind for plan in plans for change in plan[1:]))
    assert_agree(RELEASED_TRANSITIONS, Counter(step for plan in plans for step in transitions(plan)))


def test_everything_has_as_many_in_force_as_the_release(plans):
    # Turns of a dialogue are not independent, so dialogues are compared: their mean number of turns with 1, 2, 3.
    per_dialogue = [Counter(len(now) for now in in_force(plan, 50)) for plan in plans]
    for number, turns in RELEASED_TURNS_IN_FORCE.items():
        ours = [counts[number] for counts in per_dialogue]
        error = pstdev(ours) * (1 / 200 + 1 / len(ours)) ** 0.5
        assert abs(turns / 200 - fmean(ours)) < 2.576 * error
