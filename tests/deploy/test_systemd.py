"""One host with several replicas: the units of `deploy/systemd`, and the proxy in front of them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from cerberank.cli import main
from tools.nginx import command, configure
from tools.process import installed

from cerberank_service.serve import GRACE_SECONDS
from cerberank_service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER, GUIDE = ROOT / "deploy" / "systemd", ROOT / "docs" / "one-host.md"
UNIT = (FOLDER / "cerberank@.service").read_text()
PROGRAM = "/opt/cerberank/bin/cerberank"


def value(name: str, text: str = UNIT) -> str:
    (only,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    assert isinstance(only, str)
    return only


def test_systemd_accepts_units_and_drop_ins(tmp_path: Path) -> None:
    """By systemd's own check, which says what it ignores; the program is there for it."""
    checker = installed("systemd-analyze", "systemd")
    for file in FOLDER.iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace(PROGRAM, "/bin/true"))
    drop_ins = tmp_path / "cerberank@0.service.d"
    drop_ins.mkdir()
    for name in ("numa.conf", "gpu.conf"):
        (tmp_path / name).rename(drop_ins / name)
    units = [
        str(tmp_path / name) for name in ("cerberank@0.service", "cerberank-live@0.service", "cerberank-live@0.timer")
    ]
    for unit in units:
        Path(unit).symlink_to(Path(unit.replace("@0", "@")).name)
    checked = subprocess.run([checker, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    mine = [line for line in checked.stderr.splitlines() if str(tmp_path) in line or "cerberank" in line]
    assert (checked.returncode, mine) == (0, [])


def test_its_commands_exist() -> None:
    """Each call of the program in a unit names a command, which shows its help."""
    units = [file.read_text() for file in FOLDER.glob("*.service")]
    calls = [call.split() for unit in units for call in re.findall(rf"{PROGRAM}((?: [a-z]+)+)", unit)]
    assert sorted(calls) == [["admin", "probe", "live"], ["serve"]]
    with redirect_stdout(StringIO()):
        for call in calls:
            assert main([*call, "--help"]) == 0, call


def test_its_settings_exist_and_a_stop_has_its_time(no_settings: None) -> None:
    """The variables are settings; the process is killed after the drain time and the servers' ends."""
    texts = UNIT + (FOLDER / "gpu.conf").read_text()
    names = {name.lower() for name in re.findall(r"CERBERANK_(\w+)=", texts)}
    assert names == {"port", "admin_port", "trusted_proxies", "device"}
    assert names <= set(Settings.model_fields)
    needed = sum(Settings.model_fields[name].default for name in ("lame_duck_seconds", "drain_seconds"))
    assert int(value("TimeoutStopSec")) >= needed + 3 * GRACE_SECONDS + 5


def test_the_proxy_asks_the_ports_of_the_instances(tmp_path: Path) -> None:
    """Nginx accepts the file in the place of its own, and the edits of docs/one-host.md; ports are the instances'."""
    folder = tmp_path / "nginx"
    configure(folder, 8000, [])
    shutil.copy(FOLDER / "upstream.conf", folder / "upstream.conf")
    result = subprocess.run(command(folder, "-t"), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    edits = re.findall(r"sed -i (.*) /etc/nginx/nginx.conf$", GUIDE.read_text(), re.MULTILINE)
    main_file = folder / "nginx.conf"
    shutil.copy(ROOT / "deploy" / "nginx" / "nginx.conf", main_file)
    subprocess.run(["sed", "-i", *shlex.split(edits[0]), str(main_file)], check=True)
    edited = main_file.read_text()
    assert ("pid /run/nginx.pid;" in edited, "access_log /var/log/nginx/access.log" in edited) == (True, True)
    main_file.write_text(re.sub("/run/|/var/log/nginx/|/tmp/", f"{folder}/", edited))
    result = subprocess.run(command(folder, "-t"), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    counts = re.findall(r"sed -i (.*) /etc/nginx/count.conf$", GUIDE.read_text(), re.MULTILINE)
    count_file = folder / "count.conf"
    shutil.copy(ROOT / "deploy" / "nginx" / "count.conf", count_file)
    subprocess.run(["sed", "-i", *shlex.split(counts[0]), str(count_file)], check=True)
    assert "listen 127.0.0.1:3904;" in count_file.read_text()
    ports = re.findall(r"server 127\.0\.0\.1:(\d+) max_fails=0;", (FOLDER / "upstream.conf").read_text())
    (pattern,) = re.findall(r"CERBERANK_PORT=(\S+)", UNIT)
    assert ports == [pattern.replace("%i", str(instance)) for instance in range(len(ports))]
