"""What the code knows and docs/reference.md must say: the resource's fields, reasons by condition, events, metrics."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from slackwater import metrics as worker_metrics
from slackwater.gateway.metrics import Metrics as GatewayMetrics
from slackwater_operator import conditions, errors
from slackwater_operator import metrics as operator_metrics
from slackwater_operator.names import Condition, Reason

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "workerpool.yaml"
OPERATOR = Path(conditions.__file__).parent
_DURATION = "^([0-9]{1,7}(h|m|s))+$"


class Field(NamedTuple):
    path: str
    type: str
    default: str
    limit: str


def fields() -> Iterator[Field]:
    """Every field below spec and status, as a row of the page."""
    root = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        yield from _below(part, root["properties"][part])


def _below(path: str, schema: dict[str, Any]) -> Iterator[Field]:
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        required = name in schema.get("required", ())
        yield Field(here, _type(child), "required" if required else _default(child), _limit(child))
        yield from _below(here, child)
        items = child.get("items", {})
        if _limit(items):
            yield Field(f"{here}[]", _type(items), "", _limit(items))
        yield from _below(f"{here}[]", items)


def _type(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "number or %"
    if schema.get("pattern") == _DURATION:
        return "duration"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema["type"])


def _default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`".replace('"', "") if "default" in schema else ""


def _limit(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " ".join(f"`{word}`" for word in schema["enum"])
    match _type(schema) if schema else "":
        case "duration":
            return "1s to 168h"
        case "number or %":
            return "0 to 10000, 0% to 100%"
        case "integer":
            return _range(schema, "minimum", "maximum", "")
        case "string":
            return _range(schema, "minLength", "maxLength", " characters")
        case "array":
            return _range(schema, "minItems", "maxItems", " items")
        case "object":
            return _range(schema, "minProperties", "maxProperties", " keys")
        case _:
            return ""


def _range(schema: dict[str, Any], low: str, high: str, what: str) -> str:
    if high not in schema:
        return f"at least {schema[low]}{what}" if low in schema else ""
    return f"{schema[low]} to {schema[high]}{what}" if low in schema else f"at most {schema[high]}{what}"


def reasons_by_condition() -> dict[str, set[str]]:
    """The words that conditions.py itself can answer with, by the condition; what was refused comes on top."""
    tree = ast.parse(Path(conditions.__file__).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    main = functions["conditions"]
    local = {
        t.id: n.value for n in main.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    }
    answers = next(n.value for n in main.body if isinstance(n, ast.AnnAssign) and isinstance(n.value, ast.Dict))
    found = {}
    for key, value in zip(answers.keys, answers.values, strict=True):
        assert isinstance(key, ast.Attribute)
        follow = {} if key.attr == "RECONCILING" else local
        names = set(_words(value, {**functions, **follow}))
        found[str(Condition[key.attr])] = {str(Reason[name]) for name in names}
    found["Stalled"].add(str(errors.InvalidSpec.reason))  # of a spec that has no other status
    return found


def _words(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """Reason.X wherever it is an answer, not where it is compared with."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
        yield node.attr
    if isinstance(node, ast.Name) and node.id in known:
        yield from _words(known[node.id], {k: v for k, v in known.items() if k != node.id})
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Compare):
            yield from _words(child, known)


def refusals() -> set[str]:
    """What an act can be put off for."""

    def tree(kind: type[errors.ApiError]) -> Iterator[type[errors.ApiError]]:
        yield kind
        for below in kind.__subclasses__():
            yield from tree(below)

    return {str(kind.reason) for kind in tree(errors.ApiError)} | {str(Reason.REFUSED)}


def unused_reasons() -> set[str]:
    text = "\n".join(p.read_text() for p in OPERATOR.glob("*.py") if p.name != "names.py")
    return {str(reason) for reason in Reason if f"Reason.{reason.name}" not in text}


def event_reasons() -> dict[str, str]:
    """Reason → type, of every event that acting tells of."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((OPERATOR / "act.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Told":
            reason = node.args[0]
            assert isinstance(reason, ast.Constant), "an event's reason is written out"
            kind = "Warning" if any(k.arg == "warning" for k in node.keywords) else "Normal"
            assert found.setdefault(str(reason.value), kind) == kind
    return found


class Metric(NamedTuple):
    name: str
    type: str
    labels: tuple[str, ...]
    counted: bool

    @property
    def series(self) -> set[str]:
        """The names that a query may use."""
        if self.type == "histogram":
            return {f"{self.name}_{part}" for part in ("bucket", "sum", "count")}
        return {self.name}


def metrics() -> dict[str, list[Metric]]:
    return {
        "Operator": _of(operator_metrics.REGISTRY, OPERATOR, vars(operator_metrics)),
        "Worker": _of(worker_metrics.REGISTRY, ROOT / "worker" / "slackwater", vars(worker_metrics)),
        "Gateway": _of(GatewayMetrics().registry, ROOT, {}),
    }


def _of(registry: CollectorRegistry, where: Path, module: dict[str, Any]) -> list[Metric]:
    sources = "\n".join(p.read_text() for p in where.rglob("*.py") if p.name != "metrics.py") if module else ""
    own = (where / "metrics.py").read_text() if module else ""
    spelled = {id(value): name for name, value in module.items()}
    found = []
    for one in registry._collector_to_names:
        if not isinstance(one, MetricWrapperBase):
            continue
        variable = spelled.get(id(one), "")
        used = not module or f"metrics.{variable}." in sources or f"{variable}." in own
        name = one._name + ("_total" if one._type == "counter" else "")
        found.append(Metric(name, str(one._type), tuple(one._labelnames), used))
    return found
