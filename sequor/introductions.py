"""How a user's words give constraints: the introductions before a task (paper, section 3.1 and appendix D).

1. Six kinds: start, replace and add, each for one constraint and for several.
2. A prompt that gives constraints is the introduction, three newlines, the task. One constraint stands in the
   template's line; several stand numbered, one a line: "1. ", "2. " ...
3. Templates are drawn at random, never the one that its kind had the last time in the dialogue. (The release keeps to
   that in Replace and Add; its Everything draws freely, and one in six times repeats itself.)
4. Constraints are put in as they are: braces in them are text.
5. The wording of `prompts/introductions.yaml` is ours. Another file of the same form is a setting; `recover` and
   `to_yaml` make one from released dialogues.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Literal, get_args

import yaml
from msgspec import Struct

from sequor.errors import BadInput
from sequor.regimes import Change, ChangeKind
from sequor.types import Constraint, Dialogue, UserTurn

Kind = Literal["start_one", "start_several", "replace_one", "replace_several", "add_one", "add_several"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Templates = Mapping[str, tuple[str, ...]]
"""For each kind its templates, each with PLACEHOLDER once."""

PLACEHOLDER = "{constraints}"
GAP = "\n\n\n"
"""Between introduction and task. Stands in no introduction, constraint or task."""


class Introduced(Struct, frozen=True):
    """An introduction read back: `render(template, texts)` is its text."""

    turn: int
    kind: Kind
    template: str
    texts: tuple[str, ...]


def load(path: Path | None = None) -> Templates:
    """The templates of a file, or ours. Raises BadInput, naming file and key."""
    source = path or files("sequor.prompts").joinpath("introductions.yaml")
    try:
        found = yaml.safe_load(source.read_bytes())
    except OSError as error:
        raise BadInput(f"{source}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; thousands of brackets
        raise BadInput(f"{source}: no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{source}: expected a mapping from kind to templates: {', '.join(KINDS)}")
    for unknown in found.keys() - set(KINDS):
        raise BadInput(f"{source}: {unknown}: no kind of introduction; there are {', '.join(KINDS)}")
    return {kind: _checked(found.get(kind), f"{source}: {kind}") for kind in KINDS}


def _checked(templates: object, where: str) -> tuple[str, ...]:
    if not isinstance(templates, list) or not templates:
        raise BadInput(f"{where}: expected a list of at least one template")
    for number, template in enumerate(templates, 1):
        if not isinstance(template, str):
            raise BadInput(f"{where}: template {number} is no text")
        if template.count(PLACEHOLDER) != 1:
            raise BadInput(f"{where}: template {number} must hold {PLACEHOLDER} exactly once")
        if GAP in template:
            raise BadInput(f"{where}: template {number} holds three newlines, which part introduction and task")
    if len(set(templates)) < len(templates):
        raise BadInput(f"{where}: the same template twice")
    return tuple(templates)


def to_yaml(templates: Templates) -> str:
    """A template file that `load` reads."""
    return yaml.safe_dump(
        {kind: list(templates[kind]) for kind in KINDS}, allow_unicode=True, sort_keys=False, width=999
    )


def kind_of(change: ChangeKind, count: int) -> Kind:
    return f"{change}_{'one' if count == 1 else 'several'}"  # type: ignore[return-value]


def body(texts: Sequence[str]) -> str:
    """What stands in the placeholder's place."""
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def render(template: str, texts: Sequence[str]) -> str:
    before, _, after = template.partition(PLACEHOLDER)
    return before + body(texts) + after


def split(prompt: str) -> tuple[str | None, str]:
    """Introduction and task. The introduction is None in a turn that gives no constraint."""
    introduction, gap, task = prompt.partition(GAP)
    return (introduction, task) if gap else (None, prompt)


def introduce(plan: Iterable[Change], tasks: Sequence[str], templates: Templates, rng: Random) -> list[str]:
    """The prompts of a dialogue: the tasks, those with a change led by an introduction."""
    prompts = list(tasks)
    last: dict[str, str] = {}
    for change in plan:
        kind = kind_of(change.kind, len(change.given))
        others = [template for template in templates[kind] if template != last.get(kind)]
        last[kind] = rng.choice(others or templates[kind])  # a kind with a single template has no choice
        introduction = render(last[kind], [constraint.text for constraint in change.given])
        prompts[change.turn - 1] = introduction + GAP + prompts[change.turn - 1]
    return prompts


def changes_of(turns: Iterable[UserTurn]) -> Iterator[tuple[int, ChangeKind, tuple[Constraint, ...]]]:
    """Turn, kind and constraints given, by what the data says is in force. An add keeps what was, in its order."""
    before: tuple[Constraint, ...] = ()
    for number, turn in enumerate(turns, 1):
        now = turn.in_force
        ids, kept = [c.id for c in now], [c.id for c in before]
        if not before:
            yield number, "start", now
        elif ids[: len(kept)] != kept:
            yield number, "replace", now
        elif len(ids) > len(kept):
            yield number, "add", now[len(kept) :]
        before = now


def recover(dialogues: Iterable[Dialogue], constraints: Iterable[Constraint]) -> Templates:
    """The templates of released dialogues, most used first, found by taking the known texts out of the introductions.

    A constraint may stand in its introduction as the dialogue has it or as the pool has it (in the release the letter
    case differs for a few). Raises BadInput when an introduction holds neither, or when a kind never occurs.
    """
    pool = {constraint.id: constraint.text for constraint in constraints}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for dialogue in dialogues:
        for introduced in introductions(dialogue, pool):
            found[introduced.kind][introduced.template] += 1
    for kind in KINDS:
        if not found[kind]:
            raise BadInput(f"no introduction of the kind {kind} in these dialogues; read more of them, Everything too")
    return {kind: tuple(sorted(found[kind], key=lambda text: (-found[kind][text], text))) for kind in KINDS}


def introductions(dialogue: Dialogue, pool: Mapping[str, str]) -> Iterator[Introduced]:
    """Each change of a dialogue with the template behind its introduction. `pool`: id -> text."""
    for turn, change, given in changes_of(dialogue.turns):
        introduction, _ = split(dialogue.turns[turn - 1].prompt)
        where = f"{dialogue.key}: turn {turn}"
        if introduction is None:
            raise BadInput(f"{where}: the constraints in force change without an introduction")
        for texts in ([c.text for c in given], [pool.get(c.id, c.text) for c in given]):
            # The last place where they stand: a short constraint may also occur among the template's own words.
            before, hit, after = introduction.rpartition(body(texts))
            if hit:
                yield Introduced(turn, kind_of(change, len(given)), before + PLACEHOLDER + after, tuple(texts))
                break
        else:
            raise BadInput(f"{where}: the introduction does not give the constraints that come into force")


def read(introduction: str, templates: Templates, texts: frozenset[str]) -> list[tuple[Kind, str, tuple[str, ...]]]:
    """Every reading (kind, template, constraints) of an introduction by the templates and constraint texts known."""
    found: list[tuple[Kind, str, tuple[str, ...]]] = []
    for kind in KINDS:
        for template in templates[kind]:
            before, _, after = template.partition(PLACEHOLDER)
            if len(introduction) < len(before) + len(after):
                continue
            if introduction.startswith(before) and introduction.endswith(after):
                inner = introduction[len(before) : len(introduction) - len(after)]
                given = (inner,) if kind.endswith("one") else _numbered(inner)
                if given and texts.issuperset(given):
                    found.append((kind, template, given))
    return found


def _numbered(listed: str) -> tuple[str, ...]:
    """The texts of "1. ...", "2. ..." in lines of their own; () when they are not numbered so."""
    found: list[str] = []
    rest = listed
    for number in range(1, listed.count("\n") + 2):
        if not rest.startswith(f"{number}. "):
            return ()
        text, _, rest = rest.removeprefix(f"{number}. ").partition(f"\n{number + 1}. ")
        found.append(text)
        if not rest:
            return tuple(found)
        rest = f"{number + 1}. {rest}"
    return ()
