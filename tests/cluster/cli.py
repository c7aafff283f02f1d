"""The command line: one line of work per command, so that a person and a script use what the tests use."""

import argparse
import os
import sys
from pathlib import Path

from tests.cluster import cgroups, lifecycle, netns, toolchain
from tests.cluster.layout import Layout
from tests.cluster.shell import ClusterError


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return int(args.work(args) or 0)
    except (ClusterError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, help: str, work: object) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.add_argument("--instance", default=os.environ.get("SLACKWATER_INSTANCE", "demo"), help="default: demo")
        sub.set_defaults(work=work)
        return sub

    up = command("up", "start a fresh cluster", lambda a: lifecycle.up(Layout(a.instance), a.nodes))
    up.add_argument("--nodes", type=int, default=3)
    command("down", "remove everything of the instance", lambda a: lifecycle.down(Layout(a.instance)))
    command("build", "build the servers into the cache", lambda _: print(toolchain.binaries()))
    kubectl = command("kubectl", "kubectl in the cluster; options of ours come first", _kubectl)
    kubectl.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def _kubectl(args: argparse.Namespace) -> int:
    lay = Layout(args.instance)
    wrapper = lay.root / "kubectl"
    if not wrapper.exists():
        raise ClusterError(f"{lay.instance} is not up")
    os.execv(wrapper, [str(wrapper), *args.rest])
