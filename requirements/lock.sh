#!/usr/bin/env bash
# Resolves pyproject.toml's extras in clean environments and writes the locks beside this file.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

freeze() { # NAME COMMENT PIP-ARGUMENTS...
    local name=$1 comment=$2
    shift 2
    python3 -m venv "$scratch/$name"
    "$scratch/$name/bin/pip" install --quiet "$@"
    {
        echo "$comment"
        # A CPU build's local version (+cpu) is not on every machine; the plain version matches it too. CUDA's libraries
        # are named by torch itself, by exact versions; nvidia-ml-py is none of them.
        "$scratch/$name/bin/pip" freeze --exclude cerberank |
            sed -e 's/^\(torch==[0-9.]*\)+.*/\1/' -e '/^nvidia-ml-py==/b' -e '/^\(nvidia-\|cuda-\|triton==\)/d'
    } >"$scratch/$name.txt"
}

# shellcheck disable=SC2016
{
    freeze serve '# Locked versions for `make serve`: everything that serving ONNX needs, no torch. Made by `make lock`.' \
        '.[serve]'
    freeze dev '# Locked versions for `make test` and `make check`. Made by `make lock`.
# No hashes: torch comes as a CPU build where pip is offered one, and from the registry elsewhere.' \
        torch==2.13.0 '.[dev]'
    freeze gpu '# Locked versions for the gpu image: PyTorch and no ONNX Runtime. Made by `make lock`.' \
        torch==2.13.0 '.[service,torch]'
    freeze build '# Locked versions of what builds the wheel in the images.' 'hatchling>=1.27'
    freeze everything '# Locked versions of the extras that an image takes by `--build-arg EXTRAS=s3,otel`: constraints, without hashes,
# because they differ by what is asked for. Made by `make lock`.' \
        --constraint "$scratch/serve.txt" '.[serve,s3,otel,nanotoken]'
}
for name in serve dev gpu; do
    cp "$scratch/$name.txt" "requirements/$name.txt"
done
grep -vxFf "$scratch/serve.txt" "$scratch/everything.txt" >requirements/extras.txt
# gpu.txt has no hashes: torch's wheel is another one for each index, with CUDA or without.
python3 requirements/hashes.py "$scratch/serve.txt" requirements/serve-image.txt
python3 requirements/hashes.py "$scratch/build.txt" requirements/build.txt
