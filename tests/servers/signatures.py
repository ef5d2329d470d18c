# SPDX-License-Identifier: Apache-2.0
"""Signed URLs that expire, like those of object stores."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode


@dataclass(slots=True)
class Signer:
    """Signs paths and checks signatures.

    Attributes:
        lifetime_s: For how long an address holds.
        uses: How often an address holds; None for no end.
        given: All signatures given out.
    """

    lifetime_s: float = 3600.0
    uses: int | None = None
    given: list[str] = field(default_factory=list)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    _used: Counter[str] = field(default_factory=Counter)

    def sign(self, path: str) -> str:
        """Return a new query that makes the path readable for a while."""
        expires, salt = f"{time.time() + self.lifetime_s:.3f}", secrets.token_hex(4)
        signature = self._signature(path, expires, salt)
        self.given.append(signature)
        return urlencode({"X-Expires": expires, "X-Salt": salt, "X-Signature": signature})

    def refuse(self, path: str, query: Mapping[str, str]) -> str:
        """Count a use; return why the query does not grant access, or an empty text."""
        expires, salt, signature = (
            query.get(name, "") for name in ("X-Expires", "X-Salt", "X-Signature")
        )
        if not hmac.compare_digest(signature, self._signature(path, expires, salt)):
            return "SignatureDoesNotMatch"
        self._used[signature] += 1
        is_used_up = self.uses is not None and self._used[signature] > self.uses
        if is_used_up or time.time() > float(expires):
            return "AccessDenied: Request has expired"
        return ""

    def _signature(self, path: str, expires: str, salt: str) -> str:
        text = f"{path} {expires} {salt}".encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()
