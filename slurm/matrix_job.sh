#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One measurement of the matrix: slurm/matrix_job.sh FILE COMMAND [ARGUMENTS]
# FILE says why there is no result; success deletes it. A killed job leaves the text written at its
# start, so the report lists it too.
file=$1
shift
echo "job $SLURM_JOB_ID was killed" >"$file"
"$@"
code=$?
echo "job $SLURM_JOB_ID ended with exit code $code" >"$file"
[ "$code" != 0 ] || rm "$file"
exit "$code"
