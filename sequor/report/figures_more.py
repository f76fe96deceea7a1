"""Figures that neither paper nor release has."""

from collections.abc import Iterator, Mapping

from sequor.report.analysis import Analysis
from sequor.report.figure_parts import Figure
from sequor.report.figures_constraints import by_age, by_category, by_count, by_window, difficulty
from sequor.report.figures_losses import failures, recovery, survival
from sequor.report.figures_models import bounds, completion, differences, judges, ranking


def more_figures(analysis: Analysis, categories: Mapping[str, str]) -> Iterator[Figure]:
    if not analysis.judged:
        return
    if len(analysis.judged) > 1 and analysis.ranking:
        yield ranking(analysis)
        if any(p.test_set == "all" for p in analysis.pairs):
            yield differences(analysis)
    yield bounds(analysis)
    yield by_count(analysis)
    yield by_age(analysis)
    for maybe in (by_category(analysis, categories), by_window(analysis)):
        if maybe:
            yield maybe
    yield survival(analysis)
    yield failures(analysis)
    yield recovery(analysis)
    for maybe in (difficulty(analysis, categories), completion(analysis), judges(analysis)):
        if maybe:
            yield maybe
