# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The scripts in this folder source this file from the root of the repository. Variables:
#   RUN        the Python command, e.g. "uv run python" (.venv/bin/python if it exists, else python)
#   CONDA_ENV  the conda environment to run Python in, if RUN is not set
#   HF_HOME    the folder for files from the Hub ($SCRATCH/hf_home if SCRATCH is set)
if [ -n "${CONDA_ENV:-}" ]; then
  : "${RUN:=conda run --no-capture-output -n $CONDA_ENV python}"
elif [ -x .venv/bin/python ]; then
  : "${RUN:=.venv/bin/python}"
fi
: "${RUN:=python}"
if [ -z "${HF_HOME:-}" ] && [ -n "${SCRATCH:-}" ]; then
  HF_HOME=$SCRATCH/hf_home
  export HF_HOME
fi
# Since 22.05, srun does not inherit --cpus-per-task from sbatch: each task would get one core.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  export SRUN_CPUS_PER_TASK
fi
# OpenMP's default, one thread per core in every process, would compete with the decoding workers.
: "${OMP_NUM_THREADS:=1}"
export RUN OMP_NUM_THREADS
