#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Train on a streamed dataset with one process per GPU; the job requeues itself until it is done:
#   REPO_ID=me/robocasa sbatch slurm/train_streaming_robocasa.sh [flags of train_streaming_multinode.py]
# Variables and defaults (see also slurm/environment.sh):
#   REPO_ID          the dataset (required)
#   OUTPUT_DIR       for checkpoints, visible to all nodes (outputs/train/streaming_robocasa)
#   MAIN_PORT        port of the process group on the first node (derived from the job id)
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
[ -f slurm/environment.sh ] || { echo "submit this script from the root of the repository" >&2 && exit 2; }
. slurm/environment.sh
: "${REPO_ID:?want the name of a dataset on the Hub}"
requeue=75 # the program's exit code when a signal stopped it and it has saved a checkpoint

if [ -n "${MAIN_PORT:-}" ]; then export MASTER_PORT="$MAIN_PORT"; fi
export ACCELERATE_MIXED_PRECISION="${MIXED_PRECISION:-bf16}"

# Slurm signals the processes (USR1 before the time limit, TERM on preemption), not this script. If
# the script is signalled too, the job is cancelled, or Slurm requeues it itself.
is_cancelled=
trap 'is_cancelled=1' TERM

# Processes end one after the other, so the first exit must not kill the others. A process still
# running 120 s later waits for one that is gone. RUN may be several words.
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
