# SPDX-License-Identifier: Apache-2.0
"""Stores on other machines, one file for each kind.

server.py        what all of them share: connections, pace and counts
web_store.py     plain HTTP servers
hub_store.py     dataset repos and buckets of the Hugging Face Hub, by range
hub.py           the same repos: their refs, and downloading files
s3_keys.py       who we are to S3, and signatures that say so
s3_store.py      buckets of S3
fsspec_store.py  everything else that fsspec knows
"""
