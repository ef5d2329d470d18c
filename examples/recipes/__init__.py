# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/recipes: robostream in other training loops.

lightning_ddp.py  Lightning on several processes, resumed in the middle of an epoch
hf_trainer.py     the Trainer of Hugging Face's transformers
plain_jax.py      JAX, with numpy batches
log_stats.py      the loader's statistics in TensorBoard
"""
