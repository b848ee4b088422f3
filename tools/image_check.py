"""Builds an image and serves from it, without Docker: `python -m tools.image_check cpu|gpu [EXTRAS]`, as root.

Every instruction of the Dockerfile is carried out as written; `RUN` and `CMD` run in a separate root, where a clean
Python environment replaces the base image. Then the container's command runs as the image's user, on a read-only root
and without capabilities. The health check of the image must succeed, a question must be answered, and SIGTERM must end
the process.

The gpu image runs on the CPU here, with the default backend and precision of a GPU; its other settings are unchanged.
It serves checkpoints that `cerberank import` and `train distil` write from tiny random networks.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import transformers

from cerberank_models.backends.registry import usual_backend, usual_precision
from cerberank_models.checkpoint.bundled import BUNDLED
from tools.dockerfile import Instruction, Stage, inherited, read_dockerfile
from tools.process import ROOT

EXAMPLE = ROOT / "docs" / "example"
CONTAINER = Path(__file__).with_name("container.sh")
PREFIX = Path(sys.base_prefix)
ETC = (
    "group",
    "gshadow",
    "hosts",
    "login.defs",
    "nsswitch.conf",
    "passwd",
    "pip.conf",
    "resolv.conf",
    "shadow",
    "ssl",
    "xdg",
)
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
OVERRIDES = {
    "gpu": {
        "CERBERANK_DEVICE": "cpu",
        "CERBERANK_BACKEND": usual_backend("cuda"),
        "CERBERANK_PRECISION": usual_precision(usual_backend("cuda"), "cuda"),
    },
    "cpu": {},
}
MOUNTED = Path("checkpoints", "current")
"""The folder from which the gpu image reads its checkpoint."""
ASK = """
import json, urllib.request as u
body = json.dumps({"question": "How tall is it?", "candidates": ["It is 330 metres tall.", "It was built in 1889."]})
answer = json.load(u.urlopen(u.Request("http://127.0.0.1:8000/v1/rank", body.encode()), timeout=60))
print(answer["model"], [round(result["score"], 3) for result in answer["results"]])
"""
SERVE = """
"$@" & service=$!
tries=0
until {health} 2>/dev/null; do
    tries=$((tries + 1)); [ $tries -lt 100 ] || {{ echo "never healthy"; exit 1; }}
    kill -0 $service || exit 1
    sleep 0.3
done
echo "healthy, as user $(id -u), capabilities $(grep CapEff /proc/self/status | cut -f2)"
touch /opt/cerberank/written 2>/dev/null && {{ echo "the root can be written"; exit 1; }}
python -c '{ask}' || exit 1
kill -TERM $service; wait $service; code=$?
echo "ended with $code"; exit $code
"""


class Image:
    """An image while it is built."""

    def __init__(self, root: Path, arguments: Mapping[str, str] = MappingProxyType({})) -> None:
        """`root` is the folder of the image's files; `arguments` are the values of `--build-arg`."""
        self.root = root
        self.folder = "/"
        self.user = "0:0"
        self.arguments = arguments
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}

    def run(self, *command: str, access: str = "write", options: tuple[str, ...] = (), **more: str) -> None:
        """Run `command` in the image. Raises CalledProcessError."""
        variables = [f"{name}={value}" for name, value in {**_pip_settings(), **self.environment, **more}.items()]
        inside = ["env", "-i", f"--chdir={self.folder}", *variables, *command]
        outside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *options, str(CONTAINER)]
        subprocess.run([*outside, str(self.root), str(PREFIX), access, self.user, *inside], check=True)

    def carry_out(self, instruction: Instruction, built: dict[str, Image]) -> None:
        """Carry out one instruction."""
        match instruction.keyword:
            case "RUN":
                sys.stderr.write(f"RUN {instruction.value}\n")
                self.run("/bin/sh", "-ec", instruction.value)
            case "COPY":
                *sources, target = instruction.words
                stage = instruction.options.get("from")
                context = ROOT if stage is None else built[stage].root
                for source in sources:
                    self._copy(context / source.lstrip("/"), target)
            case "WORKDIR":
                self.folder = instruction.value
                (self.root / self.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "ARG":
                name, _, value = instruction.words[0].partition("=")
                self.environment[name] = self.arguments.get(name, value)
            case "ENV":
                for word in instruction.words:
                    name, _, value = word.partition("=")
                    self.environment[name] = value.replace("$PATH", self.environment["PATH"])
            case "USER":
                self.user = instruction.value

    def _copy(self, source: Path, target: str) -> None:
        place = self.root / (Path(self.folder) / target).as_posix().lstrip("/")
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
            return
        place = place / source.name if target.endswith("/") else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)


def _pip_settings() -> dict[str, str]:
    """This machine's settings of pip as environment variables, so that pip uses the same index in the image."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings["PIP_" + name.rpartition(".")[2].upper().replace("-", "_")] = value.strip("'")
    return settings


def base_image(root: Path) -> Image:
    """An image that replaces python:3.11-slim: this machine's system and a Python without packages."""
    (root / "etc").mkdir(parents=True)
    for name in ETC:
        source, place = Path("/etc") / name, root / "etc" / name
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True)
        elif source.exists():
            shutil.copy2(source, place)
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    image = Image(root)
    image.run(str(PREFIX / "bin" / "python3"), "-m", "venv", "/usr/local")
    return image


def build(target: str, stages: dict[str, Stage], scratch: Path, arguments: Mapping[str, str]) -> Image:
    """Build the target's image and all stages that it needs; `arguments` are the values of `--build-arg`."""
    built: dict[str, Image] = {}

    def make(name: str) -> Image:
        if name in built:
            return built[name]
        if name not in stages:
            return base_image(scratch / "base")
        stage, root = stages[name], scratch / name
        base = make(stage.base)
        for instruction in stage.instructions:
            if "from" in instruction.options:
                make(instruction.options["from"])
        subprocess.run(["cp", "-a", "--reflink=auto", str(base.root), str(root)], check=True)
        image = Image(root, arguments)
        image.folder = base.folder
        image.user = base.user
        image.environment = dict(base.environment)
        for instruction in stage.instructions:
            image.carry_out(instruction, built)
        built[name] = image
        return image

    return make(target)


def main(target: str, extras: str = "") -> None:
    """Build and test one image. Raises CalledProcessError if a command fails."""
    stages = read_dockerfile(ROOT / "Dockerfile")
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        image = build(target, stages, Path(folder), {"EXTRAS": extras})
        (image.root / "tmp").chmod(0o1777)
        check = inherited(target, "HEALTHCHECK", stages).words
        script = SERVE.format(health=subprocess.list2cmdline(check), ask=ASK)
        command = inherited(target, "CMD", stages).words
        for checkpoint in made_by_verbs(Path(folder)) if target == "gpu" else (None,):
            if checkpoint is not None:
                sys.stderr.write(f"serving what {checkpoint.parent.name} wrote\n")
                shutil.rmtree(image.root / MOUNTED, ignore_errors=True)
                shutil.copytree(checkpoint, image.root / MOUNTED)
            image.run(
                "/bin/sh", "-c", script, "serve", *command, access="read-only", options=("--net",), **OVERRIDES[target]
            )


def made_by_verbs(scratch: Path) -> tuple[Path, Path]:
    """The folders of an imported and a distilled checkpoint, both written by `cerberank` with its defaults."""
    source, imported, distilled = (scratch / name for name in ("source", "import", "distil"))
    save_cross_encoder(source)
    imported.mkdir()
    _verb("import", source, imported / "checkpoint")
    _verb(
        *("train", "distil", "--recipe", "tiny", "--base", source),
        *("--train", f"jsonl:{EXAMPLE / 'train.jsonl'}", "--dev", f"jsonl:{EXAMPLE / 'dev.jsonl'}"),
        *("--max-length", 32, "--question-length", 12, "--steps", 2, "--evaluate-every", 2, "--out", distilled),
    )
    return imported / "checkpoint", distilled / "checkpoint"


def save_cross_encoder(folder: Path) -> None:
    """Save four narrow ELECTRA layers with random weights and the bundled tokenizer, for `from_pretrained`."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(BUNDLED / "tokenizer.json"),
        model_input_names=["input_ids", "attention_mask", "token_type_ids"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep")},
    )
    config = transformers.ElectraConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.ElectraForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _verb(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "cerberank", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
