# SPDX-License-Identifier: Apache-2.0
"""A copy of a dataset whose colour videos are encoded anew: the same frames at the same times.

spec.py      RecodeSpec: how the videos shall be encoded
survey.py    which files are encoded, which are taken as they are; refuses what cannot be done
frames.py    the frames of a video file, one after the other
encode.py    one video file from another
check.py     whether a copy shows what its original shows, and when
jobs.py      files encoded by several processes at a time
place.py     a file that stays as it is, in the copy too
workshop.py  the folder aside in which a copy grows, so that an interrupted run can go on
recoding.py  recode_dataset: the whole job
"""
