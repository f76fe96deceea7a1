"""A real HTTP server that speaks OpenAI's chat protocol and misbehaves on demand."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

KEY = "sk-secret-of-the-tests-0123456789"
Answer = Callable[[dict, int], "web.Response | None"]


def completion(text: str | None, finish_reason: str = "stop", **message) -> web.Response:
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text, **message}}
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 5,
        "total_tokens": 35,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return web.json_response(body)


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> web.Response:
    error = {"error": {"message": message, "type": "error", "code": code}}
    return web.json_response(error, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


class Endpoint:
    """`answer(body, times)` -> response, or None to drop the connection. `times`: how often this was asked before."""

    def __init__(self, answer: Answer):
        self._answer = answer
        self.asked: list[dict] = []
        self.keys: set[str] = set()
        self.together = self.most_together = 0
        self._times: Counter[str] = Counter()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers.get("Authorization", ""))
        name = json.dumps(body["messages"])
        times, self._times[name] = self._times[name], self._times[name] + 1
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            await asyncio.sleep(0.01)
            answer = self._answer(body, times)
            if asyncio.iscoroutine(answer):
                answer = await answer
        finally:
            self.together -= 1
        if answer is None:
            request.transport.close()
            return web.Response()
        return answer


@asynccontextmanager
async def endpoint(answer: Answer) -> AsyncIterator[tuple[Endpoint, str]]:
    """The server and its base URL, on loopback."""
    server = Endpoint(answer)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield server, f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()
