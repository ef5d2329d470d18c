# SPDX-License-Identifier: Apache-2.0
"""The routes by which clients change the loopback Hub: repos, branches, tags, files, commits.

Large files are uploaded as on the real Hub, by git LFS's protocol: the client asks where each
belongs, sends those that are not there yet, and names them by their digest in the commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.servers.hub_content import Blob, Repo, is_large


@dataclass(slots=True)
class HubWriter:
    """The handlers of the routes that write.

    Attributes:
        repos: The repos that they change.
        may_write: Whether a request has the right to.
        large_files: Uploaded large files by digest, committed or not.
    """

    repos: MutableMapping[str, Repo]
    may_write: Callable[[web.Request], bool]
    large_files: dict[str, bytes] = field(default_factory=dict)

    def routes(self) -> list[web.RouteDef]:
        """The routes of huggingface_hub's uploads."""
        dataset, repo = "/api/datasets/{owner}/{name}", "/{owner}/{name}"
        return [
            web.post("/api/repos/create", self._create_repo, name="create-repo"),
            web.post("/api/validate-yaml", self._check_card, name="validate-yaml"),
            web.post(dataset + "/branch/{branch:.*}", self._create_branch, name="create-branch"),
            web.post(dataset + "/tag/{revision:.*}", self._create_tag, name="create-tag"),
            web.delete(dataset + "/tag/{tag:.*}", self._delete_tag, name="delete-tag"),
            web.post(dataset + "/preupload/{revision:.*}", self._preupload, name="preupload"),
            web.post(dataset + "/commit/{revision:.*}", self._commit, name="commit"),
            web.post(
                f"/datasets{repo}.git/info/lfs/objects/batch", self._lfs_batch, name="lfs-batch"
            ),
            web.put("/lfs-uploads/{digest}", self._lfs_upload, name="lfs-upload"),
        ]

    async def _create_repo(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        owner = wanted.get("organization") or "lab"
        repo_id = f"{owner}/{wanted['name'].rsplit('/', 1)[-1]}"
        self._check(request)
        answer = {"url": f"{request.url.origin()}/datasets/{repo_id}"}
        if repo_id in self.repos:
            return web.json_response(answer | {"error": "it exists"}, status=409)
        # Newer clients name the visibility, older ones say whether it is private.
        is_private = wanted.get("visibility") == "private" or bool(wanted.get("private"))
        self.repos[repo_id] = Repo(is_private=is_private)
        self.repos[repo_id].add_commit({}, "main")
        return web.json_response(answer)

    async def _check_card(self, request: web.Request) -> web.Response:
        content = (await request.json())["content"]
        errors = [] if content.startswith("---\n") else [{"message": "no metadata"}]
        return web.json_response({"errors": errors, "warnings": []})

    async def _create_branch(self, request: web.Request) -> web.Response:
        repo, branch = self._repo(request), request.match_info["branch"]
        if branch in repo.branches:
            raise web.HTTPConflict(headers={"X-Error-Message": "Reference already exists"})
        body = await request.json() if request.can_read_body else {}
        repo.branches[branch] = _resolve(repo, body.get("startingPoint", "main"))
        return web.json_response({})

    async def _create_tag(self, request: web.Request) -> web.Response:
        repo, tag = self._repo(request), (await request.json())["tag"]
        if tag in repo.tags:
            raise web.HTTPConflict(headers={"X-Error-Message": "Tag already exists"})
        repo.tags[tag] = _resolve(repo, request.match_info["revision"])
        return web.json_response({})

    async def _delete_tag(self, request: web.Request) -> web.Response:
        repo, tag = self._repo(request), request.match_info["tag"]
        if repo.tags.pop(tag, None) is None:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
        return web.json_response({})

    async def _preupload(self, request: web.Request) -> web.Response:
        repo = self._repo(request)
        files = repo.commits[_resolve(repo, request.match_info["revision"])]
        answers = [
            {
                "path": path,
                "uploadMode": "lfs" if is_large(path) else "regular",
                "shouldIgnore": False,
                "oid": files[path].oid if path in files else None,
            }
            for path in (entry["path"] for entry in (await request.json())["files"])
        ]
        return web.json_response({"files": answers, "commitOid": None})

    async def _lfs_batch(self, request: web.Request) -> web.Response:
        self._check(request)
        objects = [
            {"oid": entry["oid"], "size": entry["size"], **self._actions(request, entry["oid"])}
            for entry in (await request.json())["objects"]
        ]
        answer = {"transfer": "basic", "objects": objects}
        return web.json_response(answer, content_type="application/vnd.git-lfs+json")

    def _actions(self, request: web.Request, digest: str) -> dict[str, Any]:
        if digest in self.large_files:
            return {}
        href = f"{request.url.origin()}/lfs-uploads/{digest}"
        return {"actions": {"upload": {"href": href}}}

    async def _lfs_upload(self, request: web.Request) -> web.Response:
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != request.match_info["digest"]:
            raise web.HTTPBadRequest(text="the content has another digest")
        self.large_files[request.match_info["digest"]] = content
        return web.Response()

    async def _commit(self, request: web.Request) -> web.Response:
        repo, branch = self._repo(request), request.match_info["revision"]
        if branch not in repo.branches:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
        files = dict(repo.commits[repo.branches[branch]])
        for line in (await request.text()).splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif entry["key"] == "lfsFile":
                files[value["path"]] = Blob(self.large_files[value["oid"]], lfs=True)
        sha = repo.add_commit(files, branch)
        owner, name = request.match_info["owner"], request.match_info["name"]
        address = f"{request.url.origin()}/datasets/{owner}/{name}"
        return web.json_response(
            {"commitUrl": f"{address}/commit/{sha}", "commitOid": sha, "success": True}
        )

    def _check(self, request: web.Request) -> None:
        if not self.may_write(request):
            raise web.HTTPForbidden(headers={"X-Error-Message": "The token may not write here"})

    def _repo(self, request: web.Request) -> Repo:
        self._check(request)
        repo = self.repos.get(f"{request.match_info['owner']}/{request.match_info['name']}")
        if repo is None:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RepoNotFound"})
        return repo


def _resolve(repo: Repo, revision: str) -> str:
    sha = repo.resolve(revision)
    if sha is None:
        raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
    return sha
