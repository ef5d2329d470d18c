# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the scripts of this folder, from the root of the repository. What may be set before:
#   RUN        how Python is run: "uv run python", say (.venv/bin/python if it is there, else python)
#   CONDA_ENV  the conda environment to run Python in, if RUN is not set
#   HF_HOME    where files from the Hub are kept ($SCRATCH/hf_home where there is a SCRATCH)
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
# Since 22.05 srun does not take the cores of a task over from sbatch: it would give each one core.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  export SRUN_CPUS_PER_TASK
fi
# A thread per core in every process would fight the workers that decode.
: "${OMP_NUM_THREADS:=1}"
export RUN OMP_NUM_THREADS
