"""Models behind an endpoint: every way in which one fails, against a real HTTP server, and a whole run."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_endpoint import KEY, completion, endpoint, refusal

from cluster import api
from cluster.api import ApiEngine, Unusable
from cluster.conversation import Exchange, Failure, Request, Response, Usage
from cluster.driver import EngineStartError
from cluster.settings import ApiSettings, EngineSettings, Sampling

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(api, "PAUSE_S", (0.01, 0.05))
    monkeypatch.setenv("TEST_KEY", KEY)


def request(user: str = "hello", *history: tuple[str, str | None]) -> Request:
    past = tuple(Exchange(*turn) for turn in history)
    return Request("a", len(past), past, user, None, seed=7)


def settings(url: str, **more) -> EngineSettings:
    sampling = more.pop("sampling", Sampling(max_tokens=100))
    return EngineSettings("m", engine="api", sampling=sampling, api=ApiSettings(url, key_env="TEST_KEY", **more))


def ask(answer, asked: Request | None = None, **more):
    """(what came of it, the server)."""

    async def run():
        async with endpoint(answer) as (server, url):
            engine = ApiEngine(settings(url, **more))
            try:
                return await engine.generate(asked or request()), server
            finally:
                await engine.close()

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_an_answer_comes_with_what_it_cost():
    outcome, server = ask(lambda body, times: completion("hi"))
    assert outcome == Response("hi", usage=Usage(30, 20, 5))
    assert server.keys == {f"Bearer {KEY}"}
    assert server.asked == [
        {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 100, "seed": 7}
    ]


def test_sampling_goes_where_the_protocol_has_it():
    sampling = Sampling(max_tokens=9, temperature=0.5, top_k=3, stop=("x",), choices=("yes", "no"))
    _, server = ask(
        lambda body, times: completion("yes"),
        sampling=sampling,
        max_tokens_field="max_completion_tokens",
        extra_body={"reasoning_effort": "low"},
    )
    assert server.asked[0] | {"messages": []} == {
        "model": "m",
        "messages": [],
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "stop": ["x"],
        "seed": 7,
        "top_k": 3,
        "structured_outputs": {"choice": ["yes", "no"]},
        "reasoning_effort": "low",
    }


def test_reasoning_is_kept_apart_and_never_sent_back():
    outcome, server = ask(
        lambda body, times: completion("hi", reasoning_content="let me think"), request("b", ("a", "first"))
    )
    assert (outcome.text, outcome.reasoning, outcome.history) == ("hi", "let me think", "rendered")
    assert [m["content"] for m in server.asked[0]["messages"]] == ["a", "first", "b"]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (lambda: completion("hi", "length"), "truncated"),
        (lambda: completion("  \n"), "empty"),
        (lambda: completion(None), "empty"),
        (lambda: completion(None, "length", reasoning="hm"), "reasoning_unfinished"),
        (lambda: completion("half", "content_filter"), "content_filter"),
        (lambda: completion(None, refusal="I will not"), "content_filter"),
        (lambda: refusal(400, "maximum context length is 4096 tokens", "context_length_exceeded"), "context_overflow"),
        (lambda: refusal(422, "no such field"), "rejected"),
        (lambda: refusal(400, "messages must alternate"), "rejected"),
        (lambda: refusal(500, "boom"), "engine_error"),
        (lambda: None, "engine_error"),
    ],
)
def test_every_other_end_is_an_outcome_of_its_own(reply, status):
    outcome, _ = ask(lambda body, times: reply(), tries=2)
    assert outcome.status == status
    if isinstance(outcome, Failure):
        assert outcome.retryable == (status == "engine_error")


@pytest.mark.parametrize(
    "first",
    [
        lambda: refusal(429, "slow down"),
        lambda: refusal(429, "slow down", Retry_After="0.2"),
        lambda: refusal(500, "boom"),
        lambda: refusal(503, "overloaded"),
        lambda: None,
    ],
)
def test_what_may_pass_is_asked_again(first):
    outcome, server = ask(lambda body, times: first() if times < 2 else completion("hi"))
    assert outcome.text == "hi" and len(server.asked) == 3


def test_what_will_never_work_is_asked_once():
    _, server = ask(lambda body, times: refusal(422, "no"))
    assert len(server.asked) == 1


def test_an_endpoint_that_stalls_is_given_up_and_asked_again():
    async def stalls(body, times):
        if times == 0:
            await asyncio.sleep(5)
        return completion("hi")

    outcome, server = ask(stalls, timeout_s=0.3)
    assert outcome.text == "hi" and len(server.asked) == 2


@pytest.mark.parametrize(
    "reply",
    [
        lambda: refusal(401, "bad key"),
        lambda: refusal(404, "no such model"),
        lambda: refusal(429, "no money", "insufficient_quota"),
    ],
)
def test_where_nothing_will_ever_be_answered_the_endpoint_is_unusable(reply):
    with pytest.raises(Unusable):
        ask(lambda body, times: reply())


def test_a_key_that_is_not_there_is_named_and_never_shown(monkeypatch):
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(EngineStartError, match="no key in the environment variable TEST_KEY"):
        ApiEngine(settings("http://127.0.0.1:9/v1"))


def test_the_window_drops_the_earliest_turns_and_more_where_the_endpoint_says_so():
    history = [(f"question {n} " + "x" * 500, "answer " + "y" * 500) for n in range(8)]
    asked = request("last", *history)
    outcome, server = ask(lambda body, times: completion("hi"), asked, context_tokens=1500)
    sent = [m["content"] for m in server.asked[0]["messages"]]
    assert (
        sent[-1] == "last" and 0 < outcome.dropped_turns < 8 and sent[0].startswith(f"question {outcome.dropped_turns}")
    )

    def short(body, times):
        tokens = sum(len(m["content"]) for m in body["messages"]) / 2
        return refusal(400, "context_length_exceeded") if tokens > 1450 else completion("hi")

    outcome, server = ask(short, asked, context_tokens=1500)
    assert outcome.text == "hi" and len(server.asked) == 2


def run(url: str, out: Path, **environment: str) -> subprocess.CompletedProcess:
    words = ["data=demo", "sets=[single,add_5]", "dialogues=3", "turns=4", "min_coverage=0"]
    for role in ("candidate", "judge"):
        words += [f"{role}.model={role}", f"{role}.engine=api"]
        words.append(f"{role}.api={{base_url: '{url}', key_env: TEST_KEY, concurrency: 4, tries: 3}}")
    command = [sys.executable, "-m", "jobs", "run", *words, "--out", str(out)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | {"TEST_KEY": KEY} | environment
    )


def tells_no_key(done: subprocess.CompletedProcess, out: Path) -> None:
    """Nor any half of it: whoever masks a key must not be taken in by a line that breaks in its middle."""
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {"run.json", "status.json", "turns.jsonl"} <= {path.name for path in files}
    told = [done.stdout.encode(), done.stderr.encode(), *(path.read_bytes() for path in files)]
    for part in (KEY, KEY[: len(KEY) // 2], KEY[len(KEY) // 2 :]):
        assert not any(part.encode() in text for text in told), part


def test_a_whole_run_against_a_moody_endpoint_is_complete_and_tells_no_key(tmp_path):
    def moody(body, times):
        if body["model"] == "judge":
            return completion("I looked.\nFinal verdict: yes")
        number = sum(m["role"] == "user" for m in body["messages"])
        if times == 0 and number == 2:
            return refusal(429, "slow down", Retry_After="0.1")
        if times == 0 and number == 3:
            return refusal(503, "overloaded", Retry_After="0.1")
        return completion("", "content_filter") if number == 4 else completion(f"answer {number}")

    async def play():
        async with endpoint(moody) as (server, url):
            return await asyncio.to_thread(run, url, tmp_path / "run"), server

    done, server = asyncio.run(play())
    assert done.returncode == 0, done.stdout + done.stderr
    turns = [json.loads(line) for line in (tmp_path / "run" / "turns.jsonl").read_text().splitlines()]
    assert len(turns) == 24 and {t["status"] for t in turns if t["turn"] == 4} == {"content_filter"}
    assert {t["status"] for t in turns if t["turn"] < 4} == {"ok"}
    assert done.stdout.strip().endswith("lost=0 repeated=0")
    assert server.most_together <= 2 * 4
    tells_no_key(done, tmp_path / "run")


def test_a_refused_key_ends_the_run_at_once_with_the_endpoints_words(tmp_path):
    async def play():
        async with endpoint(lambda body, times: refusal(401, f"bad key: {KEY}")) as (_, url):
            return await asyncio.to_thread(run, url, tmp_path / "run")

    done = asyncio.run(play())
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no replica is left" in done.stderr and "401" in done.stderr and "bad key: ***" in done.stderr
    tells_no_key(done, tmp_path / "run")


def test_a_key_that_an_endpoint_repeats_stands_in_no_record(tmp_path):
    """Behind the first answer, half of the dialogues are refused and half find it down: turns.jsonl, failures.jsonl."""

    def tells(body, times):
        messages = body["messages"]
        if body["model"] == "judge":
            return completion("I looked.\nFinal verdict: yes")
        if len(messages) == 1:
            return completion("an answer")
        if len(messages[0]["content"]) % 2:
            return refusal(422, f"not with Authorization: Bearer {KEY}")
        return refusal(503, f"overloaded, {KEY}", Retry_After="0.01")

    async def play():
        async with endpoint(tells) as (_, url):
            return await asyncio.to_thread(run, url, tmp_path / "run")

    done = asyncio.run(play())
    assert done.returncode == 3, done.stdout + done.stderr
    turns = [json.loads(line) for line in (tmp_path / "run" / "turns.jsonl").read_text().splitlines()]
    failures = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
    details = {record["detail"] for record in [*turns, *failures] if record.get("detail")}
    assert details == {
        "422: Error code: 422 - not with Authorization: Bearer ***",
        "503: Error code: 503 - overloaded, ***",
    }
    tells_no_key(done, tmp_path / "run")
