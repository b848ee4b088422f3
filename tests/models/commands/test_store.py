from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cerberank.cli import main
from tools.versions import edit, versions_of

from cerberank_models.checkpoint.folder import read_checkpoint

MODEL = "random-tiny"


@pytest.fixture
def made(tiny_checkpoint: Path, tmp_path: Path) -> dict[str, Path]:
    return versions_of(tiny_checkpoint, tmp_path, ["1", "2"])


def test_a_checkpoint_goes_in_gets_labels_and_comes_out(
    made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verbs push, label, list and pull a checkpoint."""
    store = str(tmp_path / "store")
    assert main(["store", "push", str(made["1"]), store, "--label", "stable"]) == 0
    assert main(["store", "push", str(made["2"]), store]) == 0
    assert main(["store", "label", store, MODEL, "canary", "2"]) == 0
    assert main(["store", "label", store, MODEL, "stable", "2"]) == 0
    assert main(["store", "label", store, MODEL, "canary", "--remove"]) == 0
    remains = [tmp_path / f".pulled.{each}" for each in ("killed", "young")]
    for folder in remains:
        folder.mkdir()
    os.utime(remains[0], (0, 0))
    assert main(["store", "pull", store, MODEL, str(tmp_path / "pulled")]) == 0
    assert [folder.exists() for folder in remains] == [False, True], "a pull removes what killed ones left"
    assert capsys.readouterr().out.splitlines() == [
        f"{MODEL}@1 is in {store}",
        f"{MODEL}@stable: nothing -> 1",
        "no service has confirmed yet that it serves the version; --wait SECONDS --url URL waits for this",
        f"{MODEL}@2 is in {store}",
        f"{MODEL}@canary: nothing -> 2",
        f"{MODEL}@stable: 1 -> 2",
        f"{MODEL}@canary: 2 -> nothing",
        f"{MODEL}@2 is in {tmp_path / 'pulled'}",
    ]
    assert read_checkpoint(tmp_path / "pulled").manifest.version == "2"


def test_the_list_shows_versions_with_their_labels(
    made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list has one line per version for people, one JSON object per version for programs.

    Figures of dev sets without a name are not comparable, and the list says so.
    """
    store, figure = str(tmp_path / "store"), "dev_map[dev.jsonl:5f2a1c9b/300]"
    edit(made["1"], metrics={"dev_map": 70.5})
    edit(made["2"], metrics={figure: 81.25})
    for checkpoint in made.values():
        main(["store", "push", str(checkpoint), store])
    main(["store", "label", store, MODEL, "stable", "2"])
    main(["store", "label", store, MODEL, "shadow", "2"])
    capsys.readouterr()
    assert main(["store", "list", store]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{MODEL}@1  ")
    assert first.endswith("  -  dev_map[unnamed set]=70.5")
    assert second.endswith(f"  stable,shadow  {figure}=81.25")
    assert main(["store", "list", store, MODEL, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["version"], row["labels"], row["metrics"]) for row in rows] == [
        ("1", [], {"dev_map": 70.5}),
        ("2", ["stable", "shadow"], {figure: 81.25}),
    ]
    (tmp_path / "empty").mkdir()
    assert main(["store", "list", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["store", "push", "nowhere", "STORE"], "nowhere has no manifest.json"),
        (["store", "pull", "STORE", MODEL, "x"], "has no label stable; its versions: none"),
        (["store", "pull", "STORE", "../etc@1", "x"], "'../etc' is not a model name"),
        (["store", "list", "STORE", ".."], "'..' is not a model name"),
        (["store", "list", "nowhere://x"], "nowhere://x"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the verb and the reason, no traceback."""
    assert main([str(tmp_path / "store") if part == "STORE" else part for part in arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"cerberank store {arguments[1]}: ")
    assert message in error
    assert error.count("\n") == 1


def test_the_verbs_need_neither_torch_nor_fsspec(made: dict[str, Path], tmp_path: Path) -> None:
    """Push to a folder with both made unimportable; a URL then names the extra."""
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnxruntime', 'fsspec'): sys.modules[name] = None\n"
        "from cerberank.cli import main\n"
        f"assert main(['store', 'push', {str(made['1'])!r}, {str(tmp_path / 'store')!r}]) == 0\n"
        "sys.exit(main(['store', 'list', 'memory://x']))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "'fsspec' is not installed; run in the checkout: pip install '.[url]'" in result.stderr
