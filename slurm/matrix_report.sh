#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The report on a matrix: slurm/matrix_report.sh FOLDER
# Summarises the results in a folder, then says which jobs have none; fails if there is such a job.
set -u
folder=$1
. slurm/environment.sh
code=0
$RUN benchmarks/streaming/summarize_results.py "$folder" || code=1
while read -r job name; do
  ended=$(cat "$folder/$name.exit" 2>/dev/null) || ended="no exit code: it was killed"
  [ "$ended" != 0 ] || continue
  echo "FAILED: $name, job $job ($ended), see $folder/$name.log"
  code=1
done <"$folder/jobs.txt"
exit "$code"
