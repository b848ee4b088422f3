"""`python -m cerberank` is the `cerberank` program."""

import sys

from cerberank.cli import main

sys.exit(main())
