#!/usr/bin/env bash
# Takes out one guard of the protocol or of the operator's plan at a time, and shows that a test fails.
# MUTANTS="-k fence" make mutants, or: scripts/mutants.sh [-k WORDS] [-j N] [-v] [--list]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
# shellcheck disable=SC2086
exec .venv/bin/python -m scripts.mutants ${MUTANTS:-} "$@"
