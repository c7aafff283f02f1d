#!/usr/bin/env bash
# Format, lint, types and the direction of imports; seconds, no services.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
say() { printf '── %s\n' "$*"; }
say "ruff format"; .venv/bin/ruff format --check .
say "ruff";        .venv/bin/ruff check .
say "mypy";        .venv/bin/mypy
say "imports";     .venv/bin/lint-imports
