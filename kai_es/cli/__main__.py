"""`python -m kai_es.cli` is `kai-es`."""

import sys

from kai_es.cli.main import main

sys.exit(main())
