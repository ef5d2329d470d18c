# SPDX-License-Identifier: Apache-2.0
"""`python -m robostream`: the command line."""

import sys

from robostream.cli.main import main

sys.exit(main())
