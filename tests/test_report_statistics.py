"""Intervals, differences and ranks: against cases worked out by hand, and against scipy's bootstrap."""

import numpy as np
import pytest
from scipy import stats

from sequor.report import statistics
from sequor.report.statistics import borda, estimate, holm, interval, kappa, ranks, ratios, two_sided, weights

IDS = tuple(f"persona_{n}" for n in range(40))


def test_a_resample_draws_as_many_dialogues_as_there_are():
    drawn = weights(IDS, 100)
    assert drawn.shape == (100, 40) and (drawn.sum(axis=1) == 40).all()


def test_the_same_dialogues_are_drawn_together_and_others_apart():
    assert (weights(IDS, 50) == weights(IDS, 50)).all()
    assert not (weights(IDS, 50) == weights(IDS[::-1], 50)).all()
    assert not (weights(IDS, 50) == weights(IDS, 50, seed=1)).all()


def test_a_ratio_of_sums_by_hand():
    """Two dialogues; drawn once each, twice the first, twice the second."""
    drawn = np.array([[1, 1], [2, 0], [0, 2]], np.float32)
    hits, tries = np.array([[1, 0], [0, 0]]), np.array([[1, 1], [1, 0]])
    found = ratios(drawn, hits, tries)
    assert found[:, 0].tolist() == [0.5, 1, 0]
    assert found[:2, 1].tolist() == [0, 0] and np.isnan(found[2, 1])


def test_the_interval_of_a_mean_is_scipys_percentile_bootstrap():
    passed = (np.random.default_rng(3).random((40, 5)) < [0.95, 0.8, 0.5, 0.3, 0.1]).astype(float)
    low, high = interval(ratios(weights(IDS, 20_000), passed, np.ones_like(passed)))
    for turn in range(5):
        ours = stats.bootstrap(
            (passed[:, turn],), np.mean, n_resamples=20_000, method="percentile", vectorized=True, rng=1
        ).confidence_interval
        assert (low[turn], high[turn]) == pytest.approx((ours.low, ours.high), abs=0.026)  # one dialogue of forty


def test_the_interval_of_a_paired_difference_is_scipys():
    rng = np.random.default_rng(5)
    one = rng.random((40, 10))
    other = one - 0.1 + 0.05 * rng.random((40, 10))
    drawn = weights(IDS, 20_000)
    ours = estimate(
        one.mean() - other.mean(),
        ratios(drawn, one, np.ones_like(one)).mean(axis=1) - ratios(drawn, other, np.ones_like(one)).mean(axis=1),
    )
    found = stats.bootstrap(
        (one.mean(axis=1), other.mean(axis=1)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        rng=1,
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((found.low, found.high), abs=4e-4)
    assert ours.high - ours.low < 0.02  # unpaired it would be ten times as wide


def test_dialogues_are_drawn_not_turns():
    """Fifty turns that are all alike within a dialogue tell as much as one: the interval must not shrink."""
    once = (np.arange(40) < 20).astype(float)[:, None]
    often = np.repeat(once, 50, axis=1)
    drawn = weights(IDS, 5000)
    one = interval(ratios(drawn, once, np.ones_like(once))[:, 0])
    fifty = interval(ratios(drawn, often, np.ones_like(often)).mean(axis=1))
    assert fifty == pytest.approx(one, abs=1e-6)


def test_resamples_without_anything_decided_are_left_out():
    samples = np.array([[np.nan, 0.5], [0.2, 0.5], [0.4, np.nan]])
    low, high = interval(samples)
    assert low[0] == pytest.approx(0.205) and high[0] == pytest.approx(0.395) and low[1] == high[1] == 0.5
    assert np.isnan(interval(np.full((3, 1), np.nan))[0]).all()


def test_borda_by_hand():
    """Three models, two sets: A wins both; B and C tie on the first, C is second on the second."""
    scores = np.array([[0.9, 0.9], [0.5, 0.1], [0.5, 0.2]])
    points = borda(scores)
    assert points.tolist() == [4.0, 0.5, 1.5]
    assert ranks(points).tolist() == [1, 3, 2]


def test_equal_points_share_the_better_rank():
    assert ranks(np.array([3.0, 3.0, 1.0])).tolist() == [1, 1, 3]


def test_borda_of_many_resamples_is_borda_of_each():
    scores = np.random.default_rng(0).random((7, 4, 3))
    assert (borda(scores) == np.stack([borda(one) for one in scores])).all()


def test_p_by_hand():
    assert two_sided(np.array([1.0] * 99)) == pytest.approx(0.02)
    assert two_sided(np.array([-1.0, 1.0, 2.0])) == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_kappa_by_hand():
    """20 both yes, 5 only the first, 10 only the second, 15 both no: 0.7 agree, 0.5 by chance."""
    first = np.array([1] * 20 + [1] * 5 + [0] * 10 + [0] * 15, bool)
    second = np.array([1] * 20 + [0] * 5 + [1] * 10 + [0] * 15, bool)
    assert kappa(first, second) == pytest.approx(0.4)
    assert np.isnan(kappa(np.ones(3, bool), np.ones(3, bool)))


def test_a_mean_over_what_is_known():
    assert statistics.mean_of_known(np.array([[1.0, np.nan], [np.nan, np.nan]]))[0] == 1.0
