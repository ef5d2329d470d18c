#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Train on two nodes with eight GPUs each: sbatch examples/tutorials/slurm_job.sh /shared/my_dataset
#SBATCH --job-name=robostream-tutorial
#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=12
#SBATCH --output=%x-%j.out
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # since Slurm 22.05, srun does not inherit it
export MASTER_PORT="${MAIN_PORT:-29500}"

# torch.distributed needs these variables; the loader itself reads Slurm's own.
# shellcheck disable=SC2016
srun sh -c 'export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"
  export MASTER_ADDR="$SLURM_LAUNCH_NODE_IPADDR"
  exec python "$@"' sh examples/tutorials/ddp.py "$@"
