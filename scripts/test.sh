#!/usr/bin/env bash
# The whole test suite, in tiers from quick to slow; the last line is pytest's own.
# TIERS="check unit …" runs some only; extra arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
tiers=${TIERS:-check unit property integration cluster e2e faults}
for tier in $tiers; do
  case " check unit property integration cluster e2e faults " in *" $tier "*) ;; *) echo "TIERS: no tier is called $tier" >&2; exit 2 ;; esac
done
say() { printf '\n── %s (%s s since start)\n' "$*" "$SECONDS"; }
case " $tiers " in *" cluster "*|*" e2e "*|*" faults "*) say "packages of the host"; scripts/host-packages.sh ;; esac
say "set-up"; scripts/setup.sh
case " $tiers " in *" check "*) say "check"; scripts/check.sh ;; esac
paths=()
for tier in unit property integration cluster e2e faults; do
  case " $tiers " in *" $tier "*) [ -d "tests/$tier" ] && paths+=("tests/$tier") ;; esac
done
[ ${#paths[@]} -gt 0 ] || exit 0
say "pytest ${paths[*]}"
exec .venv/bin/pytest --durations=15 "${paths[@]}" "$@"
