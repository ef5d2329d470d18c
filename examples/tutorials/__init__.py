# SPDX-License-Identifier: Apache-2.0
"""The programs of the tutorials (docs/tutorials).

laptop.py  a small network trained on one machine: cameras, sizes, windows and episodes chosen
ddp.py     the same on all GPUs; slurm_job.sh starts it on a cluster
remote.py  datasets on the Hub and in S3, fetched once
resume.py  a run that may be stopped at any moment and continues exactly
"""
