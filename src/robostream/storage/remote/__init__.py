# SPDX-License-Identifier: Apache-2.0
"""Files on other machines: asking politely, again where it failed, and never taking a part.

traffic.py        what was asked of servers, and how it went
rate_limit.py         how fast all processes of this machine may ask one server
retry.py          asking again after a failure that passes
connections.py    HTTP connections that stay open
answers.py        what an HTTP answer means
http_file.py      one file behind HTTP, redirects remembered
remote_source.py  the bytes of a remote file
"""
