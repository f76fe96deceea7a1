"""A model hub on loopback: what `huggingface_hub` asks of one, about one repository, by real HTTP."""

from collections import Counter
from hashlib import sha256
from pathlib import Path

from aiohttp import web

REPOSITORY = "sequor-tests/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves `folder` as `REPOSITORY`, of which there is one commit, until `status` says that it refuses."""

    def __init__(self, folder: Path):
        self._files = {path.name: path for path in folder.iterdir() if path.is_file()}
        self.status = 200
        self.downloaded: Counter[str] = Counter()

    def app(self) -> web.Application:
        app = web.Application()
        about = f"/api/models/{REPOSITORY}"
        for path in (about, about + "/revision/{revision}"):
            app.router.add_get(path, self._about)
        app.router.add_get(about + "/tree/{revision}", self._tree)
        app.router.add_get(f"/{REPOSITORY}/resolve/{{revision}}/{{name:.+}}", self._file)
        app.router.add_get(about + "/tree/{revision}/{folder:.+}", self._no_entry)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        return app

    async def _about(self, request: web.Request) -> web.Response:
        if self.status != 200:
            return web.json_response({"error": "out of order"}, status=self.status)
        if request.match_info.get("revision", "main") not in ("main", COMMIT):
            return self._missing("RevisionNotFound")
        siblings = [{"rfilename": name} for name in self._files]
        return web.json_response({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})

    async def _tree(self, request: web.Request) -> web.Response:
        return web.json_response(
            [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": self._etag(path)}
                for name, path in self._files.items()
            ]
        )

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = self._files.get(request.match_info["name"])
        if path is None:
            return self._missing("EntryNotFound")
        headers = {"ETag": f'"{self._etag(path)}"', "X-Repo-Commit": COMMIT}
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(path.stat().st_size)})
        self.downloaded[path.name] += 1
        return web.Response(body=path.read_bytes(), headers=headers)

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._missing("RepoNotFound")

    async def _no_entry(self, request: web.Request) -> web.Response:
        return self._missing("EntryNotFound")

    @staticmethod
    def _etag(path: Path) -> str:
        return sha256(path.read_bytes()).hexdigest()[:40]

    @staticmethod
    def _missing(code: str) -> web.Response:
        return web.json_response({"error": code}, status=404, headers={"X-Error-Code": code})
