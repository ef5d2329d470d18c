# SPDX-License-Identifier: Apache-2.0
"""Training on any number of processes and nodes, with exact resume after a kill.

options.py       TrainOptions: the flags of the program
processes.py     the processes of a run: process group, sums, downloads once per node
preemption.py    stop requests from signals
files.py         synced files, and logs that are cut back on resume
feed.py          Feed: the protocol of a source of batches
stream_feed.py   batches streamed in the order that all processes share
map_feed.py      batches of frames drawn at random from a downloaded dataset
receipts.py      receipts of the frames trained on
progress.py      losses, samples per second, time spent waiting for data
learner.py       the policy, its optimizer and its learning rate schedule
checkpoint.py    checkpoints, written atomically
validation.py    the policy's error on held-out episodes
training.py      the training loop
train_streaming_multinode.py  the program
measure_gpu.py   a program that measures training throughput and data wait
"""
