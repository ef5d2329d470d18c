#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmark streaming from every source, in every mode, with every decoder, each in its own job. A
# last job writes the report:
#   REPO_ID=me/data BUCKET=hf://buckets/me/data WARM_BUCKET=hf://buckets/me/warm \
#     sh slurm/run_streaming_matrix.sh [flags of benchmark_streaming.py]
# Variables and defaults (see also slurm/environment.sh):
#   REPO_ID                    the dataset on the Hub (required); ROOT: its folder or URL, instead
#   BUCKET, WARM_BUCKET        URLs with data/ and videos/ for the bucket sources
#   SOURCES, MODES, DECODES    (hub bucket warmed_bucket; single sarm; cpu cuda)
#   OUT_DIR                    parent of this matrix's new folder (benchmarks/streaming/results)
#   NUM_BATCHES, BATCH_SIZE, PREFETCH     (200, 64, 2)
#   CPU_WORKERS, GPU_WORKERS   worker processes with CPU decoding and with GPU decoding (8, 2)
#   CPU_BUFFER, GPU_BUFFER     episodes mixed at a time (64, 32)
#   MAX_SHARDS                 accepted for LeRobot (hub 16, else as many as workers)
#   SERIAL                     1: one job after the other, so that they do not share the network (1)
#   TIME, MEM, GPUS            of each job (01:00:00, 64G, 1)
#   ACCOUNT, PARTITION, QOS    passed to sbatch
set -eu
cd "$(dirname "$0")/.."
. slurm/environment.sh
: "${REPO_ID:?want the name of a dataset on the Hub}"
: "${SOURCES:=hub bucket warmed_bucket}" "${MODES:=single sarm}" "${DECODES:=cpu cuda}"
: "${OUT_DIR:=benchmarks/streaming/results}" "${SERIAL:=1}" "${GPUS:=1}"

data_of() { # SOURCE: print the URL of its data/ and videos/; nothing for the Hub
  case $1 in
    hub) ;;
    bucket) echo "${BUCKET:?want the URL of the bucket, or SOURCES without it}" ;;
    warmed_bucket) echo "${WARM_BUCKET:?want the URL of the warmed bucket, or SOURCES without it}" ;;
    *) echo "want SOURCES of hub, bucket, warmed_bucket, found $1" >&2 && return 2 ;;
  esac
}

# Check all sources before the first job is submitted.
for source in $SOURCES; do data_of "$source" >/dev/null; done
mkdir -p "$OUT_DIR"
folder=$(mktemp -d "$(cd "$OUT_DIR" && pwd)/matrix-$(date -u +%Y%m%d-%H%M%S)-XXXX")
chmod 755 "$folder"

submit() { # NAME AFTER WORKERS [arguments of sbatch] SCRIPT [its arguments]: print the job id
  name=$1 after=$2 workers=$3
  shift 3
  job=$(sbatch --parsable --job-name="$name" --output="$folder/$name.log" \
    --nodes=1 --ntasks=1 --cpus-per-task=$((workers + 4)) --time="${TIME:-01:00:00}" \
    ${after:+"--dependency=afterany$after"} ${ACCOUNT:+"--account=$ACCOUNT"} \
    ${PARTITION:+"--partition=$PARTITION"} ${QOS:+"--qos=$QOS"} "$@") || return
  echo "${job%%;*}" # sbatch may append the name of a federated cluster
}

all='' last=''
for source in $SOURCES; do
  data=$(data_of "$source")
  for mode in $MODES; do
    for decode in $DECODES; do
      name=${source}_${mode}_${decode}
      workers=${CPU_WORKERS:-8} pool=${CPU_BUFFER:-64}
      [ "$decode" = cpu ] || workers=${GPU_WORKERS:-2} pool=${GPU_BUFFER:-32}
      shards=$workers
      [ "$source" != hub ] || shards=16
      gpus=--gpus=$GPUS
      [ "$GPUS" != 0 ] || gpus=
      echo "its job never began" >"$folder/$name.failed"
      # shellcheck disable=SC2086 # RUN may be several words, gpus none
      job=$(submit "$name" "$last" "$workers" --mem="${MEM:-64G}" $gpus \
        slurm/matrix_job.sh "$folder/$name.failed" $RUN benchmarks/streaming/benchmark_streaming.py \
        --repo_id "$REPO_ID" ${ROOT:+--root "$ROOT"} ${data:+--data_files_root "$data"} \
        --source "$source" --mode "$mode" --video_decode_device "$decode" \
        --batch_size "${BATCH_SIZE:-64}" --num_workers "$workers" \
        --prefetch_factor "${PREFETCH:-2}" --episode_pool_size "$pool" \
        --max_num_shards "${MAX_SHARDS:-$shards}" --num_batches "${NUM_BATCHES:-200}" \
        --out_dir "$folder" "$@")
      echo "$job $name"
      all=$all:$job
      [ "$SERIAL" != 1 ] || last=:$job
    done
  done
done
job=$(submit report "$all" 0 \
  --wrap="exec $RUN benchmarks/streaming/summarize_results.py '$folder'")
echo "$job report, when all have ended: $folder/report.log"
