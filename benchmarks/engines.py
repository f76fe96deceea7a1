"""The real engine: Sequor against what users do without it (contenders.py), and against the engine's own limit.

    python benchmarks/engines.py [--data ../shared/sequor-release] [--dialogues 21] [--turns 8] [--answer-tokens 24]
                                 [--sets single] [--part against|limit] [--others rounds,client,lockstep,ray-data]

Same machine, embedded model, dialogues (so many of each test set), settings and token budgets, greedily;
every answer has the same length. The KV cache of the first part holds a third of what all dialogues need at their
ends; in the second, against the limit, it holds all. Seconds begin when the engine is ready. Prints a Markdown table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster.embedded import embedded_model
from cluster.engine import FEW_CORES
from cluster.machine import physical_cores, this_machine
from jobs.config import load
from jobs.data import load_test_sets
from sequor.types import Dialogue

HERE = Path(__file__).parent
KV_BYTES = 30 * 2 * 3 * 64 * 4
"""Of a token: 30 layers, key and value, 3 heads of 64, float32."""
CONTEXT = 2048
ENGINE = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 64,
    "max_model_len": CONTEXT,
}
"""Of every contender."""
NEEDED_BEHIND = 16
"""Tokens of the chat template a turn, about."""


class Bench:
    def __init__(self, chosen: argparse.Namespace, work: Path):
        self.chosen, self.folder, self.engine = chosen, work, dict(ENGINE)
        work.mkdir(parents=True, exist_ok=True)
        self.model = embedded_model()
        words = ["candidate.model=embedded", f"data={chosen.data}", f"dialogues={chosen.dialogues}"]
        self.words = [*words, f"turns={chosen.turns}", f"sets=[{chosen.sets}]"]
        sets = load_test_sets(load(None, self.words))
        self.dialogues: list[Dialogue] = [dialogue for test_set in sets for dialogue in test_set.dialogues]
        texts = [turn.prompt for dialogue in self.dialogues for turn in dialogue.turns]
        self.needed = sum(map(len, texts)) // 4 + len(texts) * (chosen.answer_tokens + NEEDED_BEHIND)
        """KV tokens of all dialogues at their ends."""
        self.short, self.ample = max(CONTEXT + 64, self.needed // 3), 2 * self.needed + CONTEXT

    def ours(self, pacing: str, kv_tokens: int) -> dict[str, Any]:
        """`sequor respond`, everything on disk. Also leaves the answers."""
        out = self.folder / f"{pacing}-{kv_tokens}"
        tokens = self.chosen.answer_tokens
        sampling = {"max_tokens": tokens, "min_tokens": tokens, "temperature": 0}
        engine = {name: value for name, value in self.engine.items() if name != "max_model_len"}
        engine["kv_cache_memory_bytes"] = kv_tokens * KV_BYTES
        words = [*self.words, f"candidate.max_model_len={CONTEXT}", f"scheduler.pacing={pacing}"]
        words += [f"candidate.sampling.{name}={value}" for name, value in sampling.items()]
        words += [f"candidate.engine_args.{name}={json.dumps(value)}" for name, value in engine.items()]
        _run([sys.executable, "-m", "jobs", "respond", *words, "--out", str(out)])
        pool = json.loads((out / "status.json").read_bytes())["pools"]["candidate"]
        self.records = [json.loads(line) for line in (out / "turns.jsonl").read_text().splitlines()]
        return pool | {"seconds": pool["ready_s"]}

    def other(self, how: str, kv_tokens: int) -> dict[str, Any]:
        work, target = self.folder / f"{how}.json", self.folder / f"{how}-result.json"
        given = {
            "model": str(self.model),
            "dialogues": [[turn.prompt for turn in dialogue.turns] for dialogue in self.dialogues],
            "answers": self._answers() if how == "limit" else [],
            "answer_tokens": self.chosen.answer_tokens,
            "engine": self.engine | {"kv_cache_memory_bytes": kv_tokens * KV_BYTES},
        }
        work.write_text(json.dumps(given))
        _run([sys.executable, str(HERE / "contenders.py"), how, str(work), str(target)])
        return json.loads(target.read_bytes())

    def _answers(self) -> list[list[str]]:
        """Of the last run of ours."""
        said = {(r["test_set"], r["dialogue"], r["turn"]): r["answer"] or "" for r in self.records}
        numbers = range(1, self.chosen.turns + 1)
        return [[said[d.test_set, d.id, number] for number in numbers] for d in self.dialogues]


def _run(command: list[str]) -> None:
    """Its output only where it failed."""
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, env=os.environ | QUIET)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
if not this_machine().gpus and physical_cores() < FEW_CORES:
    # as ours sets it for itself (cluster/engine.py): every contender computes on the same cores, in one process
    QUIET |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(physical_cores())}


def row(name: str, kv_tokens: int, found: dict[str, Any], ours: float, ideal: int) -> str:
    cells = [name, f"{kv_tokens:,}", f"{found['seconds']:.1f}", f"{found['seconds'] / ours:.2f}"]
    cells += [f"{found['output_tokens'] / found['seconds']:.1f}"]
    if found["cached_tokens"] is None:
        cells += ["not told"] * 3
    else:
        prefilled = found["prompt_tokens"] - found["cached_tokens"]
        hit = found["cached_tokens"] / found["prompt_tokens"]
        cells += [f"{prefilled:,}", f"{prefilled / ideal:.2f}", f"{100 * hit:.1f}%"]
    return f"| {' | '.join(cells)} |"


def against(bench: Bench) -> None:
    """A short cache: ours against the others."""
    kv = bench.short
    ours = bench.ours("continuous", kv)
    ideal, seconds = ours["ideal_prefill_tokens"], ours["seconds"]
    print(row("ours, continuous", kv, ours, seconds, ideal), flush=True)
    found = {}
    for how, name in OTHERS.items():
        if how not in bench.chosen.others.split(","):
            continue
        found[how] = bench.ours("rounds", kv) if how == "rounds" else bench.other(how, kv)
        assert found[how]["output_tokens"] == ours["output_tokens"], found
        print(row(name, kv, found[how], seconds, ideal), flush=True)
    ratios = [f"ours_vs_{how}={played['seconds'] / seconds:.2f}" for how, played in found.items()]
    print(f"\n{' '.join(ratios)} prefill_over_ideal={(ours['prompt_tokens'] - ours['cached_tokens']) / ideal:.2f}")


def limit(bench: Bench) -> None:
    """An ample cache, and fewer running at once than there are dialogues, as in any long run: ours against the
    engine's limit."""
    kv = bench.ample
    bench.engine["max_num_seqs"] = max(1, 3 * len(bench.dialogues) // 4)
    ours = bench.ours("continuous", kv)
    ideal = ours["ideal_prefill_tokens"]
    print(row("ours, continuous", kv, ours, ours["seconds"], ideal), flush=True)
    found = bench.other("limit", kv)
    assert found["output_tokens"] == ours["output_tokens"], found
    print(row("limit: LLM.generate on ids", kv, found, ours["seconds"], ideal), flush=True)
    print(f"\nof_the_limit={found['seconds'] / ours['seconds']:.2f}")


HEAD = "| how | KV tokens | seconds | against ours | output tokens/s | prefilled | prefill/ideal | hit rate |"
OTHERS = {
    "rounds": "ours, rounds",
    "client": "client with a semaphore",
    "lockstep": "LLM.chat in lockstep",
    "ray-data": "Ray Data's LLM processor, engine starts included",
}
PARTS = {"against": against, "limit": limit}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", default=os.environ.get("SEQUOR_RELEASE"))
    arguments.add_argument("--sets", default="single", help="with commas")
    arguments.add_argument("--part", choices=PARTS, help="one of the two; left out, both")
    for name, default in (("dialogues", 21), ("turns", 8), ("answer-tokens", 24)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument(
        "--others", default="rounds,client,lockstep", help=f"with commas: {', '.join(OTHERS)} (starts an engine a turn)"
    )
    chosen = arguments.parse_args()
    released = HERE.parents[1] / "shared" / "sequor-release"
    chosen.data = chosen.data or (str(released) if released.exists() else "demo")
    begun = time.monotonic()
    print(f"`python {' '.join(sys.argv)}` on {this_machine()}, Python {sys.version.split()[0]}\n")
    with tempfile.TemporaryDirectory() as folder:
        for part in [chosen.part] if chosen.part else PARTS:
            print(f"\n{HEAD}")
            print("|---|---|---|---|---|---|---|---|", flush=True)
            PARTS[part](Bench(chosen, Path(folder) / part))
    print(f"\nThe whole took {(time.monotonic() - begun) / 60:.1f} minutes, engines' starts included.")


if __name__ == "__main__":
    main()
