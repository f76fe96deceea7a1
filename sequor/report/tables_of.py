"""Which tables there are (paper, tables 5-7; the rest is ours)."""

from collections.abc import Iterator, Mapping

from sequor.report import paper
from sequor.report.analysis import Analysis
from sequor.report.tables import Table
from sequor.report.tables_constraints import by_category, by_count, first_break, hardness, recovery, window
from sequor.report.tables_models import (
    beside_paper,
    change,
    completion,
    judges,
    main,
    outcomes,
    overview,
    pairs,
    token_counts,
    truth,
)


def all_tables(analysis: Analysis, categories: Mapping[str, str], compare: bool) -> Iterator[Table]:
    if analysis.judged:
        yield from _of_judged(analysis, categories, compare)
    yield token_counts(analysis)
    yield outcomes(analysis)


def _of_judged(analysis: Analysis, categories: Mapping[str, str], compare: bool) -> Iterator[Table]:
    yield overview(analysis)
    yield main(analysis)
    yield change(analysis, "drop", "table-5-last-minus-first", "Last turn minus first turn")
    yield change(analysis, "worst_minus_best", "table-6-worst-minus-best", "Worst turn minus best turn")
    if compare:
        yield beside_paper(analysis, "drop", paper.LAST_MINUS_FIRST, "paper-table-5", "Last turn minus first turn")
        yield beside_paper(
            analysis, "worst_minus_best", paper.WORST_MINUS_BEST, "paper-table-6", "Worst turn minus best turn"
        )
    if analysis.pairs:
        yield pairs(analysis)
    yield by_count(analysis)
    yield recovery(analysis)
    yield first_break(analysis)
    beside = truth(analysis), judges(analysis), completion(analysis)
    for maybe in (by_category(analysis, categories), window(analysis), *beside):
        if maybe:
            yield maybe
    yield hardness(analysis, categories)
