#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One measurement of the matrix: slurm/matrix_job.sh FILE COMMAND [ARGUMENTS]
# FILE says why there is no result, and goes when there is one. A job that is killed leaves the words
# it began with, so none can be missed.
file=$1
shift
echo "job $SLURM_JOB_ID was killed" >"$file"
"$@"
code=$?
echo "job $SLURM_JOB_ID ended with exit code $code" >"$file"
[ "$code" != 0 ] || rm "$file"
exit "$code"
