#!/usr/bin/env bash
# Installs the programs without which tests are skipped: Debian's packages, axe-core by npm, Ray by pip into the
# environment of the tests (its locked packages stay as they are). What is there is left alone; what cannot be had is
# said. Ends with 0 in any case: tests that miss a program are skipped and say so.
set -uo pipefail
cd "$(dirname "$0")/.."
python=.venv-dev/bin/python

say() { echo "test-tools: $*"; }
present() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo --non-interactive "$@"; fi; }

debian() { # PROGRAM PACKAGE [OLDEST-VERSION]
    local candidate
    candidate=$(apt-cache policy "$2" | sed -n 's/^  Candidate: //p')
    if [ -z "$candidate" ] || [ "$candidate" = "(none)" ] || dpkg --compare-versions "$candidate" lt "${3:-0}"; then
        say "$1: no package $2${3:+ from version $3 on} here"
    elif as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --quiet=2 --no-install-recommends "$2" >/dev/null 2>&1; then
        say "$1: installed Debian's $2"
    else
        say "$1: Debian's $2 cannot be installed here"
    fi
}

missing=()
# The kubectl of Debian 12 is 1.20, whose kustomize does not know the fields that deploy/kubernetes uses.
for tool in "promtool prometheus" "amtool prometheus-alertmanager" "chromium chromium" \
    "chromedriver chromium-driver" "docker-compose docker-compose" "curl curl" "nginx nginx-light" "mtail mtail" "kubectl kubernetes-client 1.24"; do
    present "${tool%% *}" || missing+=("$tool")
done
if [ "${#missing[@]}" -gt 0 ]; then
    if ! present apt-get || ! as_root true 2>/dev/null; then
        say "needs apt and the rights to install: ${missing[*]%% *}"
    elif ! as_root apt-get update --quiet=2 >/dev/null 2>&1; then
        say "apt reaches no packages, for: ${missing[*]%% *}"
    else
        # shellcheck disable=SC2086
        for tool in "${missing[@]}"; do debian $tool; done
    fi
fi

if [ ! -f node_modules/axe-core/axe.min.js ]; then
    if present npm && npm install --no-save --no-package-lock --silent axe-core@4 >/dev/null 2>&1; then
        say "axe-core: installed by npm"
    else
        say "axe-core: npm cannot install it here"
    fi
fi

if ! "$python" -c 'import ray.serve' >/dev/null 2>&1; then
    wanted=$("$python" -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print(*[each for name in ("ray", "ray-serve") for each in extras[name] if each.startswith(("ray[", "ray>"))], sep="\n")')
    if mapfile -t extras <<<"$wanted" &&
        "$python" -m pip --require-virtualenv install --quiet --constraint requirements/dev.txt "${extras[@]}" >/dev/null 2>&1; then
        say "ray: installed by pip"
    else
        say "ray: pip cannot install it here"
    fi
fi
say "done"
