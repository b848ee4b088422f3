#!/usr/bin/env bash
# Packs what `cerberank bench gpu` needs on a GPU machine without a network: gpu_kit.sh OUT [PYTHON-VERSION]
#
# OUT gets wheels of the packages below for Linux on x86-64, a wheel of this project and a tokenizer. The machine itself
# must have PyTorch with CUDA, transformers, sentence-transformers, accelerate, tensorboard, onnx, onnxruntime, tokenizers,
# safetensors, matplotlib, httpx, h11, click, anyio, prometheus-client, uvloop, fsspec, filelock and tqdm.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
python_version=${2:-3.12}
missing=(
    annotated-types fastapi httptools opentelemetry-api pydantic pydantic-core pydantic-settings python-dotenv
    python-json-logger starlette typing-extensions typing-inspection uvicorn
)
most_kilobytes=$((60 * 1024)) # what such a machine takes, with some room for the command's own files

rm -rf "$out"
mkdir -p "$out"
pinned=()
for name in "${missing[@]}"; do
    # The lock writes some names with an underscore.
    pinned+=("$(grep -iE "^${name//-/[-_]}==" requirements/dev.txt)")
done
platforms=()
for platform in manylinux_2_28 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${platform}_x86_64")
done
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python_version" --implementation cp \
    "${platforms[@]}" --dest "$out" "${pinned[@]}"
python3 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$out" .
cp models/checkpoints/cerberank-mini/tokenizer.json "$out/"
kilobytes=$(du -sk "$out" | cut -f1)
if ((kilobytes > most_kilobytes)); then
    echo "$out takes $kilobytes KB, more than $most_kilobytes KB" >&2
    exit 1
fi
cat <<END
$out: $(find "$out" -name '*.whl' | wc -l) wheels, $kilobytes KB, for Python $python_version. On the GPU machine, where $out lies:

    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target /tmp/cerberank $out/*.whl
    export PYTHONPATH=/tmp/cerberank PYTHONUNBUFFERED=1
    python3 -m cerberank_models bench gpu --minutes 9 --tokenizer $out/tokenizer.json --out gpu-figures
END
