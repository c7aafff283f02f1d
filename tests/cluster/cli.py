"""The command line: one line of work per command, so that a person and a script use what the tests use."""

import argparse
import os
import sys

from tests.cluster import images, lifecycle, toolchain
from tests.cluster.cluster import Cluster
from tests.cluster.layout import Layout
from tests.cluster.pool import Image
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

    def command(name: str, what: str, work: object) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=what)
        sub.add_argument("--instance", default=os.environ.get("SLACKWATER_INSTANCE", "demo"), help="default: demo")
        sub.set_defaults(work=work)
        return sub

    up = command("up", "start a fresh cluster", lambda a: lifecycle.up(Layout(a.instance), a.nodes, _images(a)))
    up.add_argument("--bare", action="store_true", help="without our images")
    up.add_argument("--nodes", type=int, default=3)
    command("down", "remove everything of the instance", lambda a: lifecycle.down(Layout(a.instance)))
    command("build", "build the servers into the cache", lambda _: print(toolchain.binaries()))
    command(
        "images", "build our images into the cache", lambda _: [print(i.tag, i.digest) for i in images.ours()] and 0
    )
    command("load", "build our images and bring them to the nodes", _load)
    kubectl = command("kubectl", "kubectl in the cluster; options of ours come first", _kubectl)
    kubectl.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def _images(args: argparse.Namespace) -> list[Image]:
    return [] if args.bare else images.ours()


def _load(args: argparse.Namespace) -> None:
    Cluster.attach(args.instance).load_images(images.ours())


def _kubectl(args: argparse.Namespace) -> int:
    lay = Layout(args.instance)
    wrapper = lay.root / "kubectl"
    if not wrapper.exists():
        raise ClusterError(f"{lay.instance} is not up")
    os.execv(wrapper, [str(wrapper), *args.rest])
