# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Hub on loopback: the routes huggingface_hub uses, over folders given to it.

Large files are redirected to another host, with an address that is signed and may expire, as on
the real Hub. A token sent to that host is refused, as object stores do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.servers.hub_content import (
    Blob,
    Files,
    Repo,
    bucket_info,
    path_entries,
    repo_info,
    tree,
)
from tests.servers.hub_uploads import HubWriter
from tests.servers.signatures import Signer

_PAGE_ENTRIES = 20  # few, so that small datasets are listed in several pages


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the Hub; its kind is the name of a route."""

    kind: str
    method: str
    path: str
    range: str | None
    status: int


@dataclass(slots=True)
class Hub:
    """The content of a running Hub, in memory, and its requests.

    Attributes:
        url: The address for HF_ENDPOINT.
        repos: Dataset repos by their id.
        buckets: Buckets by their id: repos with one commit.
        write_token: Only requests that carry it may change the Hub; None if all may.
        signer: Signs the addresses of large files, and says for how long they hold.
        requests: All requests so far, in the order they were answered.
    """

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    buckets: dict[str, Repo] = field(default_factory=dict)
    write_token: str | None = None
    signer: Signer = field(default_factory=Signer)
    requests: list[Request] = field(default_factory=list)

    def add_repo(self, repo_id: str, *, token: str | None = None, gated: bool = False) -> Repo:
        """Add an empty dataset repo.

        With a token, only requests that carry it see the repo; if it is gated, all see that it is
        there, and its files are for those with the token.
        """
        self.repos[repo_id] = Repo(token=token, gated=gated)
        return self.repos[repo_id]

    def add_bucket(self, bucket_id: str, folder: Path, *, token: str | None = None) -> None:
        """Add a bucket with the files of a folder."""
        self.buckets[bucket_id] = Repo(token=token)
        self.buckets[bucket_id].commit(folder)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many requests of each kind were made for each path."""
        return Counter((request.kind, request.path) for request in self.requests)

    def kinds(self) -> Counter[str]:
        """Return how many requests of each kind were made."""
        return Counter(request.kind for request in self.requests)

    def downloads(self, name: str) -> list[str]:
        """Return the files of a repo or bucket whose content was sent, once per transfer."""
        marks = [f"/datasets/{name}/resolve/", f"/buckets/{name}/resolve/", f"/lfs/{name}/"]
        sent = [r.path for r in self.requests if r.method == "GET" and r.status in (200, 206)]
        # After the mark comes the revision (or the digest) and then the path; buckets have none.
        return [
            path[len(mark) :] if mark.startswith("/buckets") else path[len(mark) :].split("/", 1)[1]
            for path in sent
            for mark in marks
            if path.startswith(mark)
        ]


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Run a Hub on a free port of 127.0.0.1, in a thread of its own, and yield it."""
    hub = Hub()
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(_make_app(hub), access_log=None, shutdown_timeout=1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

    thread = threading.Thread(target=loop.run_forever, name="loopback-hub", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result()
        hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield hub
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


_HUB = web.AppKey("hub", Hub)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _make_app(hub: Hub) -> web.Application:
    app = web.Application(middlewares=[_record])
    app[_HUB] = hub
    writer = HubWriter(hub.repos, lambda request: hub.write_token in (None, _token(request)))
    dataset, bucket = "/api/datasets/{owner}/{name}", "/api/buckets/{owner}/{name}"
    app.add_routes(
        [
            web.get(dataset, _repo_info, name="info"),
            web.get(dataset + "/refs", _repo_refs, name="refs"),
            web.get(dataset + "/revision/{revision}", _repo_info, name="revision"),
            web.get(dataset + "/tree/{revision}", _repo_tree, name="tree"),
            web.get(dataset + "/tree/{revision}/{path:.*}", _repo_tree, name="tree-below"),
            web.post(dataset + "/paths-info/{revision}", _repo_paths, name="paths-info"),
            web.get(
                "/datasets/{owner}/{name}/resolve/{revision}/{path:.*}", _resolve, name="resolve"
            ),
            web.get("/lfs/{owner}/{name}/{digest}/{path:.*}", _large_file, name="lfs"),
            web.get(bucket, _bucket_info, name="bucket-info"),
            web.get(bucket + "/tree", _bucket_tree, name="bucket-tree"),
            web.get(bucket + "/tree/{path:.*}", _bucket_tree, name="bucket-tree-below"),
            web.post(bucket + "/paths-info", _bucket_paths, name="bucket-paths-info"),
            web.get(
                "/buckets/{owner}/{name}/resolve/{path:.*}", _bucket_file, name="bucket-resolve"
            ),
            *writer.routes(),
        ]
    )
    return app


@web.middleware
async def _record(request: web.Request, handler: _Handler) -> web.StreamResponse:
    status = 500
    try:
        response = await handler(request)
        status = response.status
        return response
    except web.HTTPException as error:
        status = error.status
        raise
    finally:
        kind = request.match_info.route.name or "unknown"
        wanted = request.headers.get("Range")
        asked = Request(kind, request.method, request.path, wanted, status)
        request.app[_HUB].requests.append(asked)


async def _repo_info(request: web.Request) -> web.Response:
    sha, files = _commit(request)
    return web.json_response(repo_info(_id(request), sha, files))


async def _repo_refs(request: web.Request) -> web.Response:
    return web.json_response(_repo(request).refs())


async def _repo_tree(request: web.Request) -> web.Response:
    return _tree_page(request, _commit(request)[1])


async def _repo_paths(request: web.Request) -> web.Response:
    form = await request.post()
    paths = [str(path) for path in form.getall("paths", [])]
    return web.json_response(path_entries(_commit(request)[1], paths))


async def _resolve(request: web.Request) -> web.Response:
    sha, files = _commit(request)
    if _repo(request).gated and not _has_token(request, _repo(request)):
        raise web.HTTPForbidden(headers=_error("GatedRepo", _id(request)))
    path = request.match_info["path"]
    blob = files.get(path)
    if blob is None:
        raise _not_found("EntryNotFound", path)
    headers = {"X-Repo-Commit": sha, "ETag": blob.etag}
    if not blob.lfs:
        return _content(request, blob, headers)
    # Large files lie on another host, as on the real Hub: clients drop their token there.
    address = f"/lfs/{_id(request)}/{blob.sha256}/{path}"
    query = request.app[_HUB].signer.sign(address)
    headers |= {
        "Location": f"http://localhost:{request.url.port}{address}?{query}",
        "X-Linked-Etag": blob.etag,
        "X-Linked-Size": str(len(blob.content)),
    }
    return web.Response(status=302, headers=headers)


async def _large_file(request: web.Request) -> web.Response:
    if "Authorization" in request.headers:
        raise web.HTTPBadRequest(text="Only one auth mechanism allowed")
    refused = request.app[_HUB].signer.refuse(request.path, request.query)
    if refused:
        raise web.HTTPForbidden(text=refused)
    digest, path = request.match_info["digest"], request.match_info["path"]
    commits = request.app[_HUB].repos[_id(request)].commits.values()
    blob = next(files[path] for files in commits if path in files and files[path].sha256 == digest)
    return _content(request, blob, {"ETag": blob.etag})


async def _bucket_info(request: web.Request) -> web.Response:
    return web.json_response(bucket_info(_id(request), _bucket(request)))


async def _bucket_tree(request: web.Request) -> web.Response:
    return _tree_page(request, _bucket(request))


async def _bucket_paths(request: web.Request) -> web.Response:
    wanted = (await request.json())["paths"]
    files = _bucket(request)
    return web.json_response(path_entries(files, [path for path in wanted if path in files]))


async def _bucket_file(request: web.Request) -> web.Response:
    path = request.match_info["path"]
    blob = _bucket(request).get(path)
    if blob is None:
        raise _not_found("EntryNotFound", path)
    return _content(request, blob, {"ETag": blob.etag})


def _tree_page(request: web.Request, files: Files) -> web.Response:
    """Answer with one page of a folder's entries, and a link to the next."""
    folder = request.match_info.get("path", "").strip("/")
    recursive = request.query.get("recursive", "false").lower() in ("true", "1")
    entries = tree(files, folder, recursive=recursive)
    if folder and not entries:
        raise _not_found("EntryNotFound", folder)
    start = int(request.query.get("cursor", "0"))
    stop = start + _PAGE_ENTRIES
    headers = {}
    if stop < len(entries):
        following = request.url.update_query(cursor=str(stop))
        headers["Link"] = f'<{following}>; rel="next"'
    return web.json_response(entries[start:stop], headers=headers)


def _content(request: web.Request, blob: Blob, headers: dict[str, str]) -> web.Response:
    """Answer with a file's bytes, or the requested range."""
    size = len(blob.content)
    headers["Accept-Ranges"] = "bytes"
    if "Range" not in request.headers:
        return web.Response(body=blob.content, headers=headers)
    start, stop, _ = request.http_range.indices(size)
    if start >= stop:
        return web.Response(status=416, headers=headers | {"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return web.Response(status=206, body=blob.content[start:stop], headers=headers)


def _id(request: web.Request) -> str:
    return f"{request.match_info['owner']}/{request.match_info['name']}"


def _repo(request: web.Request) -> Repo:
    return _seen(request, request.app[_HUB].repos)


def _seen(request: web.Request, repos: dict[str, Repo]) -> Repo:
    """Return the repo or bucket of a request, if the caller has access."""
    repo = repos.get(_id(request))
    if repo is None or not (repo.gated or _has_token(request, repo)):
        raise _not_found("RepoNotFound", _id(request))
    return repo


def _has_token(request: web.Request, repo: Repo) -> bool:
    return repo.token in (None, _token(request))


def _token(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def _commit(request: web.Request) -> tuple[str, Files]:
    """Return the commit of a request, and its files."""
    repo = _repo(request)
    revision = request.match_info.get("revision", "main")
    sha = repo.resolve(revision)
    if sha is None:
        raise _not_found("RevisionNotFound", revision)
    return sha, repo.commits[sha]


def _bucket(request: web.Request) -> Files:
    bucket = _seen(request, request.app[_HUB].buckets)
    return bucket.commits[bucket.branches["main"]]


def _not_found(code: str, what: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(headers=_error(code, what))


def _error(code: str, what: str) -> dict[str, str]:
    return {"X-Error-Code": code, "X-Error-Message": f"{code}: {what}"}
