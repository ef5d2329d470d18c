# SPDX-License-Identifier: Apache-2.0
"""What is in a dataset or in a batch, for the eye: contact sheets, curves, a page.

contact_sheet.py  thumbnails, and sheets of them
charts.py         curves, histograms and ranges as HTML that fits any width
gather.py         reads what is shown of an episode and of the dataset
inspect_page.py   the page
explain.py        which frames, files and bytes made a batch of a run
"""
