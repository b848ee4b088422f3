from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"


def test_the_dashboard_is_what_the_code_makes(tmp_path: Path) -> None:
    """The file equals what the code generates, so it was neither edited nor forgotten."""
    made = "import sys; sys.path.insert(0, sys.argv[1]); import dashboard; sys.stdout.write(dashboard.text())"
    result = subprocess.run([sys.executable, "-c", made, str(FOLDER)], capture_output=True, text=True, check=True)
    assert result.stdout == (FOLDER / "dashboards" / "cerberank.json").read_text()
