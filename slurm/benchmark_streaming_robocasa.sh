#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmark streaming on two nodes at once; one process per node reads its share of the dataset:
#   REPO_ID=me/robocasa sbatch slurm/benchmark_streaming_robocasa.sh [flags of benchmark_streaming.py]
# Variables and defaults (see also slurm/environment.sh):
#   REPO_ID            the dataset (required)
#   SOURCE             a label for the source of the data (hub)
#   OUT_DIR            results, in one folder per node (benchmarks/streaming/results)
#   MODES              (single sarm)
#   NUM_WORKERS, EPISODE_POOL_SIZE, NUM_BATCHES, BATCH_SIZE   (12, 64, 300, 64)
#SBATCH --job-name=robostream-bench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=02:00:00
#SBATCH --output=%x-%j.out
set -eu
[ -f slurm/environment.sh ] || { echo "submit this script from the root of the repository" >&2 && exit 2; }
. slurm/environment.sh
: "${REPO_ID:?want the name of a dataset on the Hub}"
OUT_DIR=${OUT_DIR:-benchmarks/streaming/results}
export OUT_DIR

# If one mode fails, the other still runs.
code=0
for mode in ${MODES:-single sarm}; do
  # RUN may be several words. The node expands it and its own number.
  # shellcheck disable=SC2016
  srun --kill-on-bad-exit=1 sh -c 'exec $RUN "$0" --out_dir "$OUT_DIR/node-$SLURM_NODEID" "$@"' \
    benchmarks/streaming/benchmark_streaming.py \
    --repo_id "$REPO_ID" --source "${SOURCE:-hub}" --mode "$mode" \
    --batch_size "${BATCH_SIZE:-64}" --num_workers "${NUM_WORKERS:-12}" \
    --episode_pool_size "${EPISODE_POOL_SIZE:-64}" --num_batches "${NUM_BATCHES:-300}" \
    "$@" || code=$?
done
exit "$code"
