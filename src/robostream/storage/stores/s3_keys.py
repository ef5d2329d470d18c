# SPDX-License-Identifier: Apache-2.0
"""Who we are to S3: keys from the usual places, and the signature of each request.

botocore knows the usual places (the environment, profiles, single sign-on, roles of machines and of
containers) and keeps keys fresh that expire. Requests themselves are plain HTTP: through botocore
or s3fs each costs several times the CPU time, and obstore hangs in forked processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robostream import config
from robostream.errors import AccessDeniedError, MissingExtraError

_REGION = "us-east-1"


class S3Keys:
    """Signs requests; for one bucket.

    Args:
        options: What the user gave: key, secret, token, profile, region, anon, endpoint_url.
        url: The bucket, for messages.
    """

    def __init__(self, options: Mapping[str, Any], url: str) -> None:
        try:
            from botocore.session import Session
        except ImportError as error:
            raise MissingExtraError("botocore", "s3", url) from error
        session = Session(profile=options.get("profile"))
        self._url = url
        self._is_anonymous = bool(options.get("anon"))
        self.region = options.get("region") or session.get_config_variable("region") or _REGION
        named = session.get_scoped_config().get("endpoint_url")
        self.endpoint_url: str | None = options.get("endpoint_url") or config.s3_endpoint() or named
        self._credentials = None if self._is_anonymous else _credentials(session, options)

    def sign(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that sign a request."""
        if self._is_anonymous:
            return {}
        if self._credentials is None:
            raise AccessDeniedError(
                f"{self._url}: no keys for S3 are found. Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass storage_options={'key': ..., "
                "'secret': ...}, or {'anon': True} for a public bucket."
            )
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        # A line break after a key or token, as in a file, is none of it.
        keys = self._credentials.get_frozen_credentials()
        stripped = {k: v.strip() for k, v in keys._asdict().items() if isinstance(v, str)}
        request = AWSRequest(method, url)
        S3SigV4Auth(keys._replace(**stripped), "s3", self.region).add_auth(request)
        return dict(request.headers.items())


def _credentials(session: Any, options: Mapping[str, Any]) -> Any:
    if options.get("key"):
        from botocore.credentials import Credentials

        return Credentials(options["key"], options.get("secret"), options.get("token"))
    return session.get_credentials()
