"""A dialogue held against the rules: are the constraints in force what its introductions say? (paper, section 3.1)

1. The introductions are read with known templates (ours, those given, and those recovered from the dialogues
   themselves) and known constraint texts, and replayed from turn 1; nothing else says what is in force.
2. A recovered template counts for the kind and wording in which it is used most, so that one wrong turn among many
   does not explain itself.
3. Constraints are those of the pool, several in force are of one compatible tuple, none is in force twice.
4. Changes come at the turns and in the kind of the set's regime.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from sequor import introductions
from sequor.errors import BadInput
from sequor.introductions import KINDS, PLACEHOLDER, Templates
from sequor.regimes import change_turns, parse_name
from sequor.types import Constraint, ConstraintTuple, Dialogue, Regime


class Finding(Struct, frozen=True):
    where: str
    """Test set/dialogue: turn, or a file."""
    what: str


class Step(Struct, frozen=True):
    """A change as the introduction tells it."""

    turn: int
    kind: str
    template: str
    count: int


class Known(Struct):
    """What the folder's dialogues are held against."""

    pool: dict[str, str]
    """Id -> text; empty when the folder has no pool."""
    variants: dict[str, set[str]]
    """Id -> its texts in pool, tuples and dialogues."""
    tuples: dict[str, set[int]]
    """Id -> the tuples it is a member of."""
    templates: Templates = field(default_factory=dict)
    texts: frozenset[str] = frozenset()


def known_of(
    constraints: Iterable[Constraint],
    tuples: Iterable[ConstraintTuple],
    dialogues: list[Dialogue],
    templates: Templates | None,
) -> Known:
    known = Known({c.id: c.text for c in constraints}, defaultdict(set), defaultdict(set))
    for id, text in known.pool.items():
        known.variants[id].add(text)
    for number, members in enumerate(tuples):
        for member in members.constraints:
            known.variants[member.id].add(member.text)
            known.tuples[member.id].add(number)
    given = {c for dialogue in dialogues for turn in dialogue.turns for c in turn.in_force}
    known.texts = frozenset(c.text for c in given).union(*known.variants.values())
    ours = introductions.load()
    known.templates = {k: tuple(dict.fromkeys(ours[k] + (templates[k] if templates else ()))) for k in KINDS}
    recovered = _recovered(dialogues, known)
    known.templates = {k: tuple(dict.fromkeys(known.templates[k] + tuple(recovered[k]))) for k in KINDS}
    return known


def _recovered(dialogues: Iterable[Dialogue], known: Known) -> Mapping[str, list[str]]:
    """Templates of this folder that are not known yet; see rule 4."""
    uses: Counter[tuple[str, str]] = Counter()
    for dialogue in dialogues:
        try:
            for found in introductions.introductions(dialogue, known.pool):
                uses[found.kind, found.template] += 1
        except BadInput:  # its replay tells what is wrong with it
            continue
    accepted: dict[str, list[str]] = defaultdict(list)
    leads = [_lead(template) for kind in KINDS for template in known.templates[kind]]
    for (kind, template), _ in sorted(uses.items(), key=lambda item: (-item[1], len(item[0][1]), item[0])):
        explained = any(lead and _lead(template).startswith(lead) for lead in leads)
        if not explained and not re.search(r"^\d+\. ", template, re.MULTILINE):
            accepted[kind].append(template)
            leads.append(_lead(template))
    return accepted


def _lead(template: str) -> str:
    return template.partition(PLACEHOLDER)[0]


def replay(dialogue: Dialogue, templates: Templates, texts: frozenset[str]) -> tuple[list[Step], list[Finding]]:
    """The changes that the introductions tell, and the turns at which the constraints in force are not theirs."""
    steps: list[Step] = []
    faults: list[Finding] = []
    before: tuple[str, ...] = ()
    for number, turn in enumerate(dialogue.turns, 1):
        now = tuple(constraint.text for constraint in turn.in_force)
        introduction, task = introductions.split(turn.prompt)
        step, what = _step(number, before, now, introduction, templates, texts)
        if not task.strip():
            what = "an introduction without a task"
        if step:
            steps.append(step)
        if what:
            faults.append(Finding(f"{dialogue.key}: turn {number}", what))
        before = now
    return steps, faults


def _step(
    turn: int,
    before: tuple[str, ...],
    now: tuple[str, ...],
    introduction: str | None,
    templates: Templates,
    texts: frozenset[str],
) -> tuple[Step | None, str | None]:
    if introduction is None:
        return None, None if now == before else "the constraints in force change without an introduction"
    readings = introductions.read(introduction, templates, texts)
    if not readings:
        return None, "the introduction is of no known wording, or its constraints are unknown or wrongly numbered"
    for kind, template, given in readings:
        after = before + given if kind.startswith("add") else given
        if after == now and kind.startswith("start") == (turn == 1):
            return Step(turn, kind, template, len(given)), None
    kind, _, given = readings[0]
    return None, f"the constraints in force do not follow from the introduction ({kind}: {' | '.join(given)})"


def shape_faults(dialogue: Dialogue, steps: list[Step], limit: int) -> Iterator[Finding]:
    """Faults against the set's regime (paper, section 3.1)."""
    regime, number = parse_name(dialogue.test_set)
    most = {Regime.TUPLES: number, Regime.ADD: limit, Regime.EVERYTHING: limit}.get(regime, 1)
    for turn, user in enumerate(dialogue.turns, 1):
        if len(user.in_force) > most or (regime is Regime.TUPLES and len(user.in_force) != most):
            yield Finding(f"{dialogue.key}: turn {turn}", f"{len(user.in_force)} constraints in force in {regime}")
            break
    turns = [step.turn for step in steps]
    regular = change_turns(len(dialogue.turns), number or 1)
    expected = {
        Regime.SINGLE: [1],
        Regime.TUPLES: [1],
        Regime.REPLACE: regular,
        Regime.ADD: regular[: len(turns)],
        Regime.EVERYTHING: turns,
    }[regime]
    if turns != expected:
        yield Finding(dialogue.key, f"changes at turns {turns}; {dialogue.test_set} has them at {expected}")
    for step in steps[1:]:
        if regime in (Regime.REPLACE, Regime.ADD) and step.kind != f"{regime}_one":
            yield Finding(f"{dialogue.key}: turn {step.turn}", f"{step.kind} in a dialogue of {regime}")


def member_faults(dialogue: Dialogue, known: Known) -> Iterator[Finding]:
    """Faults of the constraints in force: unknown, of another text than the pool's, incompatible, repeated."""
    started: list[str] = []
    for turn, _, given in introductions.changes_of(dialogue.turns):
        where, now = f"{dialogue.key}: turn {turn}", dialogue.turns[turn - 1].in_force
        started += [c.id for c in given]
        if len({c.id for c in now}) < len(now):
            yield Finding(where, "a constraint is in force twice")
        for c in given:
            if known.pool and c.id not in known.pool:
                yield Finding(where, f"the constraint {c.id} is not in the pool")
            elif known.pool and c.text not in known.variants[c.id]:
                yield Finding(where, f"the constraint {c.id} has another text than in the pool")
        if known.tuples and len(now) > 1 and not set.intersection(*(known.tuples[c.id] for c in now)):
            yield Finding(where, "the constraints in force are not of one compatible tuple")
    if parse_name(dialogue.test_set)[0] is Regime.REPLACE and len(set(started)) < len(started):
        yield Finding(dialogue.key, "a constraint comes twice in a dialogue of replace")
