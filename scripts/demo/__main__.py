"""`python -m scripts.demo`: see README. Environment: CONTEXT=name uses that context of your kubeconfig instead of the
harness; COMPARE=deployment plays the same with a plain Deployment afterwards and shows both side by side."""

from __future__ import annotations

import os
import sys

from kubernetes.config.config_exception import ConfigException

from scripts.demo import install, place
from scripts.demo.plan import TASKS
from scripts.demo.scenario import Stage, Told, play
from scripts.demo.screen import Screen
from scripts.demo.subjects import Plain, Pool
from scripts.demo.verdict import interrupted, judged
from tests.kit.gateway import Gateway
from tests.kit.provider import Provider
from tests.kit.storeview import StoreView


def main() -> int:
    screen = Screen()
    if os.environ.get("COMPARE", "deployment") != "deployment":
        screen.console.print(f"COMPARE={os.environ['COMPARE']}: only `deployment` can be compared with")
        return 2
    try:
        return _run(screen)
    except (install.Refused, ConfigException) as error:
        screen.console.print(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        screen.console.print("stopped; what runs is left as it is, `make demo-down` removes it")
        return 130


def _run(screen: Screen) -> int:
    if sys.argv[1:] == ["down"]:
        place.down(screen)
        return 0
    with place.cluster(screen) as (kube, reach):
        install.install(kube, screen)
        stage = Stage(kube, Gateway(reach), Provider(reach), StoreView(reach), screen)
        told = play(Pool(kube), stage)
        claims = judged(told)
        screen.table(
            f"{TASKS} renders, a rolling update, a killed worker, 3 → 5 → 2 pods: {told.seconds:.0f} s",
            ["claim", "", "evidence"],
            [(c.claim, "[green]yes[/green]" if c.holds else "[red]NO[/red]", c.evidence) for c in claims],
        )
        if os.environ.get("COMPARE") == "deployment":
            compare(told, play(Plain(kube), stage), screen)
        place.tell_how_to_look(screen)
    wrong = [c.claim for c in claims if not c.holds]
    screen.console.print(f"verdict: {'ok' if not wrong else 'not so: ' + '; '.join(wrong)}")
    return 1 if wrong else 0


def compare(pool: Told, plain: Told, screen: Screen) -> None:
    def row(what: str, ask: object) -> tuple[str, ...]:
        assert callable(ask)
        return what, str(ask(pool)), str(ask(plain))

    screen.table(
        "The same work, image, kill and scaling",
        ["", "WorkerPool", "Deployment"],
        [
            row("renders cut off by rollout and scaling", interrupted),
            row("renders cut off by the SIGKILL", lambda t: t.killed_worker_runs),
            row(f"runs for {TASKS} renders", lambda t: len(t.provider.runs)),
            row("charges", lambda t: sum(t.provider.charges_by_key.values())),
            row("seconds", lambda t: f"{t.seconds:.0f}"),
        ],
    )
    screen.note("Both run the lease-fenced worker: even on the Deployment nothing is lost or paid twice, it is cut off")
    screen.note("and run again. A worker without leases and keys would have paid for each of these runs.")


if __name__ == "__main__":
    sys.exit(main())
