"""`python -m kai_es.cli`."""

import sys

from kai_es.cli import main

sys.exit(main())
