# SPDX-License-Identifier: Apache-2.0
"""What is in a dataset or in a batch, for the eye: contact sheets, curves, a page.

views.py         thumbnails and contact sheets; reads what is shown of an episode
charts.py        curves, histograms and ranges as HTML that fits any width
inspect_page.py  the page
explain.py       which frames, files and bytes made a batch of a run
"""
