"""`python -m cerberank_models` is the `cerberank` program."""

import sys

from cerberank_models.cli import main

sys.exit(main())
