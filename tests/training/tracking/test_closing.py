"""The last words of a training command: what lies where, and commands that exist."""

from __future__ import annotations

from pathlib import Path

from cerberank.cli import COMMANDS

from cerberank_training.tracking.closing import closing


def test_the_next_commands_are_given_and_exist() -> None:
    """With forms they serve the checkpoint itself; without, `export` comes first and its folder is served."""
    for forms, served in ((("int8",), "'my runs/a/checkpoint'"), ((), "'my runs/a/exported'")):
        text = closing(Path("my runs/a/checkpoint"), name="m", figures="MAP 1", forms=forms, train="jsonl:t.jsonl")
        first, *steps = text.splitlines()
        assert "; extended" not in first
        assert first == f"my runs/a/checkpoint: m, MAP 1; weights{', ONNX int8' if forms else ''}"
        commands = [line.split(":", 1)[1].strip() for line in steps]
        assert len(commands) == (3 if forms else 4)
        assert ("--backend torch" in commands[0]) == (not forms)
        assert f"cerberank store push {served} STORE --label stable" in commands
        assert commands[-1] == f"CERBERANK_CHECKPOINT={served} cerberank serve"
        for command in commands:
            words = command.split()
            first = words.index("cerberank") + 1
            assert {" ".join(words[first : first + size]) for size in (1, 2)} & {each.name for each in COMMANDS}
        assert any("cerberank export" in command for command in commands) == (not forms)
