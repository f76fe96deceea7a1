"""check: what a run needs and what the model will really see, before a GPU is asked for. Starts nothing."""

from rich.console import Console

from cluster import weights
from cluster.conversation import Message
from cluster.history import Template
from cluster.machine import GIB, Machine, this_machine
from cluster.replicas import gpus_of
from cluster.settings import ApiSettings, EngineSettings
from cluster.weights import ModelFiles
from jobs.config import RunConfig
from jobs.data import load_test_sets
from jobs.models import models
from jobs.plan import Assumed, replica
from jobs.pools import engines
from jobs.preflight import check_key, load_template, preflight
from sequor.judging import questions
from sequor.types import Dialogue

REASONING = {
    "all": "shows it with every answer of a history",
    "last": "shows it with the last answer alone: older turns change, and the prefix cache helps less",
    "none": "leaves it out all the same",
    "refused": "refuses it: WARNING: behind a first answer with reasoning every turn would be a template_error",
}
"""What becomes of `reasoning_history: as-template`, by `Template.shows_reasoning`."""


def check(config: RunConfig, console: Console) -> None:
    """Raises BadInput for whatever would stop the run."""
    test_sets = load_test_sets(config)
    roles = config.roles("candidate", "judge")
    found = models(config, *roles)
    preflight(config, found, test_sets)
    for role in roles:
        check_key(config.engine(role))
    turns = [turn for test_set in test_sets for dialogue in test_set.dialogues for turn in dialogue.turns]
    dialogues = sum(len(test_set.dialogues) for test_set in test_sets)
    asked = sum(len(turn.in_force) + config.task_completion for turn in turns) * max(1, len(config.judges))
    machine = this_machine()
    console.print(f"{len(test_sets)} test sets, {dialogues:,} dialogues, {len(turns):,} turns, {asked:,} judgements")
    console.print(f"this machine: {machine}")
    _show_gpus(config, roles, machine, console)
    for role in roles:
        _show(role, config.engine(role), found[role], test_sets[0].dialogues[0], console)
        if machine.gpus:
            assumed = Assumed(gpu_memory_gib=min(gpu.memory_gib for gpu in machine.gpus))
            _, memory = replica(role, config, found[role], test_sets, assumed)
            if memory is not None:
                cache = f"KV cache about {memory.cache / GIB:.1f} GiB = {memory.tokens:,} tokens"
                console.print(f"fits: {memory.gpus} GPU, weights {memory.weights / GIB:.1f} GiB, {cache}")


def _show_gpus(config: RunConfig, roles: tuple[str, ...], machine: Machine, console: Console) -> None:
    wanted = engines(config, roles)
    each = [settings.replicas * gpus_of(settings) for settings in wanted.values()]
    needed = max(each) if config.order == "phases" else sum(each)
    note = ""
    if needed > len(machine.gpus):
        note = "; more than this machine has: a cluster's address is needed (ray_address)"
        if config.order == "together" and max(each) <= len(machine.gpus):
            note = "; more than this machine has: order=phases would do, one after the other"
    pools = ", ".join(f"{name} {s.replicas} x {gpus_of(s):g}" for name, s in wanted.items())
    console.print(f"GPUs asked for: {needed:g} ({pools}, {config.order}){note}")


def _show(role: str, settings: EngineSettings, files: ModelFiles, dialogue: Dialogue, console: Console) -> None:
    console.rule(f"{role}: {settings.model}", align="left")
    if settings.engine == "api":
        console.print(
            f"{files.digest}, key from {(settings.api or ApiSettings()).key_env}; its template is its own affair"
        )
        return
    if settings.engine == "scripted":
        console.print(f"scripted: {settings.script}; no model, no template")
        return
    context, size = settings.max_model_len or weights.context_tokens(files), weights.weight_bytes(files)
    console.print(
        f"files {files.path} ({files.digest}), weights {f'{size / GIB:.1f} GiB' if size else 'not on this machine'}"
    )
    console.print(f"context {context or 'of the model'} tokens, of them {settings.sampling.max_tokens} for the answer")
    template, tokenizer = load_template(role, settings, files)
    for line in findings(template, settings):
        console.print(f"- {line}")
    console.print("what the model sees:", style="bold")
    shown = tokenizer.decode(template.render(_example(role, settings, dialogue)))
    if settings.reasoning_parser is None and _opens_a_thought(shown):
        console.print("WARNING: a thought opens at its end, and without a reasoning_parser it is judged as the answer")
    console.print(shown)


def _opens_a_thought(prompt: str) -> bool:
    _, opened, behind = prompt.rpartition("<think>")
    return bool(opened) and "</think>" not in behind


def _example(role: str, settings: EngineSettings, dialogue: Dialogue) -> tuple[Message, ...]:
    """The first two turns of a dialogue, or a question to the judge, with a made-up answer."""
    if role != "candidate":
        return (Message("user", questions(dialogue, 1, "(the answer)", settings.model)[0].prompt),)
    first, second = dialogue.turns[0].prompt, dialogue.turns[min(1, len(dialogue.turns) - 1)].prompt
    return Message("user", first), Message("assistant", "(the first answer)"), Message("user", second)


def findings(template: Template, settings: EngineSettings) -> list[str]:
    """What is true of the chat template, in sentences."""
    lines = [
        "history grows token-exact: only the new user turn is rendered"
        if template.append_only
        else "the template changes earlier turns: every prompt is rendered afresh, and the prefix cache helps less"
    ]
    if template.trims:
        lines.append("outer white space of an answer is lost in a history; such answers are rendered afresh")
    if template.double_bos:
        lines.append("WARNING: encoding this template's text with special tokens doubles the BOS token; here it is not")
    if settings.reasoning_history == "as-template":
        lines.append(f"what the model thought is handed to the template, which {REASONING[template.shows_reasoning]}")
    if not template.system_role:
        lines.append("no system role: a system text would go in front of the first user text")
    if template.facts()["dated"]:
        lines.append("the template shows today's date: a run that is continued tomorrow goes on under another prompt")
    return lines
