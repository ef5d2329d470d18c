#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Train on a streamed dataset, one process per GPU, stopped and continued as often as it takes:
#   REPO_ID=me/robocasa sbatch slurm/train_streaming_robocasa.sh [flags of train_streaming_multinode.py]
# What may be set (see also slurm/environment.sh):
#   REPO_ID          the dataset (required)
#   OUTPUT_DIR       for checkpoints; all nodes must see it (outputs/train/streaming_robocasa)
#   MAIN_PORT        where the processes meet, on the first node (one that follows from the job's number)
#   MIXED_PRECISION  no, fp16, bf16 (bf16)
#   BATCH_SIZE, NUM_WORKERS   per process (64, 12)
#   EPISODE_POOL_SIZE, STEPS, SAVE_FREQ, LOG_FREQ   (64, 200000, 2000, 50)
#SBATCH --job-name=robostream-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -u
[ -f slurm/environment.sh ] || { echo "submit it from the root of the repository" >&2 && exit 2; }
. slurm/environment.sh
: "${REPO_ID:?want the name of a dataset on the Hub}"
requeue=75 # what the program ends with when it was told to stop and has saved

if [ -n "${MAIN_PORT:-}" ]; then export MASTER_PORT="$MAIN_PORT"; fi
export ACCELERATE_MIXED_PRECISION="${MIXED_PRECISION:-bf16}"

# Slurm tells the processes to stop (USR1 before the time limit, TERM when it preempts), not this
# script. If it ends the script too, someone cancels the job or Slurm requeues it by itself.
is_cancelled=
trap 'is_cancelled=1' TERM

# Processes end one after the other, so the first to end must not take the others along; but who is
# left after that time waits for one that is gone. RUN may be several words.
# shellcheck disable=SC2086
srun --kill-on-bad-exit=0 --wait=120 $RUN examples/scaling/train_streaming_multinode.py \
  --repo_id "$REPO_ID" --output_dir "${OUTPUT_DIR:-outputs/train/streaming_robocasa}" \
  --steps "${STEPS:-200000}" --save_freq "${SAVE_FREQ:-2000}" --log_freq "${LOG_FREQ:-50}" \
  --batch_size "${BATCH_SIZE:-64}" --num_workers "${NUM_WORKERS:-12}" \
  --episode_pool_size "${EPISODE_POOL_SIZE:-64}" --resume_from latest "$@"
code=$?
if [ "$code" = "$requeue" ] && [ -z "$is_cancelled" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
