#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One measurement of the matrix: slurm/matrix_job.sh FILE COMMAND [ARGUMENTS]
# FILE gets the command's exit code. Where there is none afterwards, the job was killed.
file=$1
shift
"$@"
code=$?
echo "$code" >"$file.part" && mv "$file.part" "$file"
exit "$code"
