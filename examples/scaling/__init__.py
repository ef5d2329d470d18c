# SPDX-License-Identifier: Apache-2.0
"""Training on any number of processes and nodes, killed and resumed exactly.

options.py       TrainOptions: the flags of the program
processes.py     the processes of a run: how they find each other and what they tell each other
preemption.py    being told to stop by a signal
files.py         files that are on the disk when they are said to be, logs that can be taken back
feed.py          Feed: where batches come from
stream_feed.py   batches streamed in the one order all processes share
map_feed.py      batches of frames drawn at random from a downloaded dataset
receipts.py      proof of what was trained on
progress.py      losses, samples per second, time spent on waiting for data
learner.py       the policy, its optimizer and its schedule
checkpoint.py    checkpoints that are there whole or not at all
training.py      the training loop
train_streaming_multinode.py  the program
measure_gpu.py   a program that measures how well training is fed
"""
