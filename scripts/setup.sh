#!/usr/bin/env bash
# Makes .venv with the locked packages of requirements-dev.lock and this project; does nothing when it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
locked=.venv/locked.sha256 linked=.venv/linked.sha256
same() { [ "$(cat "$1" 2>/dev/null)" = "$(sha256sum < "$2")" ]; }
if ! same $locked requirements-dev.lock; then
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slackwater needs Python 3.11 or newer")'
  echo "── Python packages into .venv (locked, with hashes)"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  [ -x .venv/bin/uv ] || .venv/bin/python -m pip install -q --disable-pip-version-check uv
  .venv/bin/uv pip sync -q --python .venv/bin/python --require-hashes requirements-dev.lock  # uv is in the lock too
  rm -f $linked
  sha256sum < requirements-dev.lock > $locked
fi
if ! same $linked pyproject.toml; then
  .venv/bin/uv pip install -q --python .venv/bin/python --no-deps -e .
  sha256sum < pyproject.toml > $linked
fi
