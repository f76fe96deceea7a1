"""Ways to play dialogues on vLLM without Sequor, each in a process of its own, as `engines.py` calls them.

    python benchmarks/contenders.py client|lockstep|ray-data|limit WORK.json RESULT.json

WORK.json: {"model": folder, "dialogues": [[user turn]], "answer_tokens": n, "engine": {vLLM argument: value}}, for
`limit` also "answers": [[answer]]. Seconds begin when the engine is ready and end with the last answer.

client    a coroutine a dialogue and a semaphore, over HTTP to vLLM's OpenAI server: what most evaluations are
lockstep  turn t of all dialogues in one call of `LLM.chat`, then turn t+1
ray-data  Ray Data's LLM processor, a dataset a turn. Each execution starts an engine of its own, and its seconds hold
          that: a turn needs the answers before it. Wants pandas, and on a CPU a GPU that is not there
limit     `LLM.generate` on token ids, all prompts known at once: no policy can be faster. Each turn's history is in the
          cache already; its user turn is not, and its answer is decoded behind the same context
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

IN_FLIGHT = 100
START_TIMEOUT_S = 300
PRIMED_ANSWER = 1


def history(turns: list[str], answers: list[str]) -> list[dict[str, str]]:
    """Messages up to the user turn behind the last answer."""
    messages = []
    for turn, answer in zip(turns, answers, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": turns[len(answers)]}]


def result(seconds: float, turns: int, prompt: int, cached: int | None, output: int) -> dict[str, Any]:
    """`cached` None: it does not say."""
    counts = {"turns": turns, "prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}
    return {"seconds": seconds} | counts


# a client of an HTTP server


def client(work: dict[str, Any]) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port), "--host", "127.0.0.1"]
    command += ["--model", work["model"], "--served-model-name", "m", "--enable-prompt-tokens-details"]
    for name, value in work["engine"].items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value is True else [flag, str(value)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        return asyncio.run(_converse(work, f"http://127.0.0.1:{port}/v1"))
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server left with {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit("the server did not come up")


async def _converse(work: dict[str, Any], url: str) -> dict[str, Any]:
    from openai import AsyncOpenAI

    api, semaphore, usages = AsyncOpenAI(base_url=url, api_key="none", timeout=3600), asyncio.Semaphore(IN_FLIGHT), []
    tokens = work["answer_tokens"]

    async def play(turns: list[str]) -> None:
        async with semaphore:
            answers: list[str] = []
            for _ in turns:
                reply = await api.chat.completions.create(
                    model="m",
                    messages=history(turns, answers),
                    max_tokens=tokens,
                    temperature=0,
                    extra_body={"min_tokens": tokens},
                )
                answers.append(reply.choices[0].message.content or "")
                usages.append(reply.usage)

    begun = time.perf_counter()
    await asyncio.gather(*(play(turns) for turns in work["dialogues"]))
    seconds = time.perf_counter() - begun
    cached = sum(u.prompt_tokens_details.cached_tokens or 0 if u.prompt_tokens_details else 0 for u in usages)
    return result(
        seconds, len(usages), sum(u.prompt_tokens for u in usages), cached, sum(u.completion_tokens for u in usages)
    )


# vLLM's offline engine


def lockstep(work: dict[str, Any]) -> dict[str, Any]:
    llm, params = _llm(work), _params(work["answer_tokens"])
    dialogues, answers, outputs = work["dialogues"], [[] for _ in work["dialogues"]], []
    begun = time.perf_counter()
    for turn in range(max(map(len, dialogues))):
        going = [n for n, turns in enumerate(dialogues) if turn < len(turns)]
        made = llm.chat([history(dialogues[n], answers[n]) for n in going], params, use_tqdm=False)
        for n, output in zip(going, made, strict=True):
            answers[n].append(output.outputs[0].text)
        outputs += made
    return _counted(time.perf_counter() - begun, outputs)


def ray_data(work: dict[str, Any]) -> dict[str, Any]:
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    ray.init("local", num_gpus=1, num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    sampling = {"temperature": 0, "max_tokens": work["answer_tokens"], "min_tokens": work["answer_tokens"]}
    processor = build_processor(
        vLLMEngineProcessorConfig(
            model_source=work["model"],
            engine_kwargs=work["engine"],
            batch_size=IN_FLIGHT,
            log_engine_metrics=False,  # they need ray[serve]
        ),
        preprocess=lambda row: {"messages": row["messages"], "sampling_params": sampling},
        postprocess=lambda row: {
            "dialogue": row["dialogue"],
            "text": row["generated_text"],
            "prompt": row["num_input_tokens"],
            "output": row["num_generated_tokens"],
        },
    )
    dialogues, answers, rows = work["dialogues"], [[] for _ in work["dialogues"]], []
    begun = time.perf_counter()
    for turn in range(max(map(len, dialogues))):
        going = [n for n, turns in enumerate(dialogues) if turn < len(turns)]
        asked = [{"dialogue": n, "messages": history(dialogues[n], answers[n])} for n in going]
        made = processor(ray.data.from_items(asked)).take_all()
        for row in made:
            answers[row["dialogue"]].append(row["text"])
        rows += made
    seconds = time.perf_counter() - begun
    return result(seconds, len(rows), sum(r["prompt"] for r in rows), None, sum(r["output"] for r in rows))


def limit(work: dict[str, Any]) -> dict[str, Any]:
    llm = _llm(work)
    tokenizer = llm.get_tokenizer()
    prompts, last = [], []
    for turns, answers in zip(work["dialogues"], work["answers"], strict=True):
        past: list[int] = []
        for turn in range(len(turns)):
            messages = history(turns, answers[:turn])
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            past = tokenizer.apply_chat_template(messages[:-1], return_dict=False) if turn else []
            changed = [*ids]
            changed[len(past) + 3] = changed[len(past) + 3] % 1000 + 1000  # behind it nothing is cached
            prompts.append({"prompt_token_ids": changed})
        last.append({"prompt_token_ids": past})
    llm.generate(last, _params(PRIMED_ANSWER), use_tqdm=False)
    begun = time.perf_counter()
    outputs = llm.generate(prompts, _params(work["answer_tokens"]), use_tqdm=False)
    return _counted(time.perf_counter() - begun, outputs)


def _llm(work: dict[str, Any]):
    from vllm import LLM

    return LLM(model=work["model"], **work["engine"])


def _params(tokens: int):
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens)


def _counted(seconds: float, outputs: list) -> dict[str, Any]:
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    cached = sum(output.num_cached_tokens or 0 for output in outputs)
    return result(seconds, len(outputs), prompt, cached, sum(len(output.outputs[0].token_ids) for output in outputs))


CONTENDERS = {"client": client, "lockstep": lockstep, "ray-data": ray_data, "limit": limit}

if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    how, source, target = sys.argv[1:]
    played = CONTENDERS[how](json.loads(Path(source).read_text()))
    Path(target).write_text(json.dumps(played))
