# Each target is one line that calls a readable script; every script does its own set-up and says what it is doing.
.PHONY: demo demo-down test check mutants
demo: ; @scripts/demo.sh
demo-down: ; @scripts/demo.sh down
test: ; @scripts/test.sh
check: ; @scripts/check.sh
mutants: ; @scripts/mutants.sh
