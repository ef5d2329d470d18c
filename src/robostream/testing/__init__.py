# SPDX-License-Identifier: Apache-2.0
"""Test servers on one machine: a file server, and a proxy that injects network faults.

Both need only the standard library. Each runs in a process of its own and exits with the process
that started it.

http_message.py  HTTP/1.1 messages, and the proxy's log of requests and responses
faults.py        which requests fail and how: a function of a seed and the request
proxy.py         the proxy process: latency, bandwidth, request limit, faults
servers.py       the file server; starts both in processes, and controls the proxy
"""

from robostream.testing.faults import Fault, Script, mixed_faults
from robostream.testing.http_message import Exchange
from robostream.testing.servers import Proxy, serve_files, start_proxy
