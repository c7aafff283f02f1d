#!/usr/bin/env bash
# The main job on a real cluster, judged by the paid provider's own log. `demo.sh down` removes the cluster again.
#   CONTEXT=name       use that context of your kubeconfig instead of a cluster made here
#   COMPARE=deployment play the same with a plain Deployment too, and show both side by side
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${CONTEXT:-}" ] || { echo "── packages of the host"; scripts/host-packages.sh; }
scripts/setup.sh
exec .venv/bin/python -m scripts.demo "$@"
