# SPDX-License-Identifier: Apache-2.0
"""A network that fails, on one machine: a file server, and a proxy between a server and a reader.

Both need the standard library alone. Each runs in a process of its own, and ends with the process
that started it.

message.py  HTTP/1.1 requests and answers, as far as these servers need them
script.py   what the proxy does to which answers: a function of a seed and the request
journal.py  what the proxy did, request by request, and how it adds up
limits.py   a bandwidth all connections share, and a limit of requests per second
answers.py  what faults make of an answer
proxy.py    the proxy's process
files.py    the process that serves a folder's files, by range
start.py    starting both, and talking to the proxy
"""

from robostream.bench.network.journal import Exchange, counts
from robostream.bench.network.script import Fault, Script, mixed_faults
from robostream.bench.network.start import Proxy, serve_files, start_proxy

__all__ = [
    "Exchange",
    "Fault",
    "Proxy",
    "Script",
    "counts",
    "mixed_faults",
    "serve_files",
    "start_proxy",
]
