"""The command line: one line of work per command, so that a person and a script use what the tests use."""

import argparse
import inspect
import os
import sys
from collections.abc import Callable

from tests.cluster import api, images, lifecycle, netns, toolchain, units
from tests.cluster.cluster import Cluster
from tests.cluster.faults import Faults
from tests.cluster.layout import Layout
from tests.cluster.pool import Image
from tests.cluster.shell import ClusterError

FAULTS = sorted(n for n, f in inspect.getmembers(Faults, inspect.isfunction) if n[0] != "_" and n != "blocked")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        args.work(args)
    except (ClusterError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str, work: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=what)
        sub.add_argument("--instance", default=os.environ.get("SLACKWATER_INSTANCE", "demo"), help="default: demo")
        sub.set_defaults(work=work)
        return sub

    up = command("up", "start a fresh cluster", _up)
    up.add_argument("--bare", action="store_true", help="without our images")
    up.add_argument("--nodes", type=int, default=3)
    command("down", "remove everything of the instance", lambda a: lifecycle.down(Layout(a.instance)))
    command("status", "what of the instance there is", _status)
    command("build", "build the servers into the cache", lambda _: print(toolchain.binaries()))
    command("images", "build our images into the cache", lambda _: print(*images.ours(), sep="\n"))
    command("load", "build our images and bring them to the nodes", _load)
    kubectl = command("kubectl", "kubectl in the cluster; options of ours come first", _kubectl)
    kubectl.add_argument("rest", nargs=argparse.REMAINDER)
    fault = command("fault", "break something, or mend it", _fault)
    fault.add_argument("--namespace", default="slackwater")
    fault.add_argument("name", choices=FAULTS)
    fault.add_argument("args", nargs="*", help="a node; or a pod (or deploy/NAME), and a container or a Service")
    return parser


def _up(args: argparse.Namespace) -> None:
    ours: list[Image] = [] if args.bare else images.ours()
    lifecycle.up(Layout(args.instance), args.nodes, ours)


def _load(args: argparse.Namespace) -> None:
    Cluster.attach(args.instance).load_images(images.ours())


def _kubectl(args: argparse.Namespace) -> None:
    wrapper = str(Cluster.attach(args.instance).layout.root / "kubectl")
    os.execv(wrapper, [wrapper, *args.rest])


def _fault(args: argparse.Namespace) -> None:
    getattr(Cluster.attach(args.instance).faults_in(args.namespace), args.name)(*args.args)


def _status(args: argparse.Namespace) -> None:
    lay = Layout(args.instance)
    found = units.names(lay)
    print(f"{lay.instance}: {len(found)} units, {len(netns.existing(lay))} networks, files in {lay.root}")
    ready = api.ready_nodes(lay) if lay.netns_path("cp").exists() else set()
    for unit in found:
        host, _, name = unit.partition(".")
        note = f"  ({host} is {'Ready' if host in ready else 'not Ready'})" if name == "kubelet" else ""
        print(f"  {unit:28} {'runs' if units.running(lay, unit) else 'is off'}{note}")
