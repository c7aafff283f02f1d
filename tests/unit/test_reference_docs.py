"""docs/reference.md names every word of the resource, its pods and its figures, as the code has them, and no other."""

from __future__ import annotations

import re

import pytest

from slackwater.cli.exits import Exit
from slackwater.shutdown import ExitCode
from slackwater_operator import names
from slackwater_operator.names import RECALLABLE, Cause, Condition, Reason
from tests.unit import reference

TEXT = (reference.ROOT / "docs" / "reference.md").read_text()
METRICS = reference.metrics()


def section(heading: str) -> str:
    """What stands below this heading, down to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading}"
    return found[1]


def rows(heading: str) -> list[list[str]]:
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def words(heading: str, column: int = 0) -> list[str]:
    """The names in this column; what is no name (a pointer to another list) is left out."""
    return [row[column].strip("`") for row in rows(heading) if row[column].startswith("`")]


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_has_a_row_with_its_type_default_and_limit(part: str) -> None:
    wanted = [[f"`{f.path}`", f.type, f.default, f.limit] for f in reference.fields() if f.path.startswith(f"{part}.")]
    assert [row[:4] for row in rows(part.title())] == wanted


def test_every_condition_has_a_section() -> None:
    found = re.findall(r"^### (.*)$", TEXT, re.MULTILINE)
    assert found == [*Condition, "Refusals", "Kept for later", *METRICS]


@pytest.mark.parametrize("condition", list(Condition))
def test_a_condition_s_reasons_are_those_that_it_can_answer(condition: str) -> None:
    found = words(condition)
    assert len(set(found)) == len(found)
    assert set(found) == reference.reasons_by_condition()[condition]
    assert {row[1] for row in rows(condition)} <= {"True", "False"}


def test_refusals_are_the_errors_reasons() -> None:
    assert sorted(words("Refusals")) == sorted(reference.refusals())


def test_every_reason_is_documented_and_what_nothing_answers_is_called_so() -> None:
    kept = set(re.findall(r"`(\w+)`", section("Kept for later")))
    assert kept == reference.unused_reasons()
    found = kept | set(words("Refusals")) | {word for one in Condition for word in words(one)}
    assert found == set(Reason)


def test_causes_and_which_of_them_are_called_off() -> None:
    assert words("Causes") == list(Cause)
    assert {row[0].strip("`") for row in rows("Causes") if row[1] == "yes"} == RECALLABLE


@pytest.mark.parametrize(
    ("heading", "prefix", "others"), [("Labels", "LABEL_", ()), ("Annotations", "ANNOTATION_", names.AUTOSCALER_KEEP)]
)
def test_labels_and_annotations(heading: str, prefix: str, others: tuple[str, ...]) -> None:
    ours = {value for name, value in vars(names).items() if name.startswith(prefix)}
    assert sorted(words(heading)) == sorted(ours | set(others))


def test_annotations_that_nothing_writes_are_called_so() -> None:
    text = "\n".join(p.read_text() for p in reference.OPERATOR.glob("*.py") if p.name != "names.py")
    unwritten = {v for n, v in vars(names).items() if n.startswith("ANNOTATION_") and n not in text}
    assert {row[0].strip("`") for row in rows("Annotations") if "nothing writes it" in row[2]} == unwritten


def test_event_reasons_and_their_types() -> None:
    found = {row[0].strip("`"): row[1] for row in rows("Events")}
    assert found == reference.event_reasons()


@pytest.mark.parametrize("part", list(METRICS))
def test_metrics_with_type_and_labels(part: str) -> None:
    wanted = {m.name: [m.type, " ".join(f"`{label}`" for label in m.labels)] for m in METRICS[part]}
    assert {row[0].strip("`"): row[1:3] for row in rows(part)} == wanted


@pytest.mark.parametrize("part", list(METRICS))
def test_metrics_that_nothing_counts_are_called_so(part: str) -> None:
    called = {row[0].strip("`") for row in rows(part) if "Not counted yet" in row[3]}
    assert called == {m.name for m in METRICS[part] if not m.counted}


def test_every_row_says_what_it_means() -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)[1:]
    assert [row[0] for heading in headings for row in rows(heading) if len(row[-1]) < 8] == []


def test_exit_codes_are_on_their_page() -> None:
    assert "](exit-codes.md)" in TEXT
    own, _, _ = (reference.ROOT / "docs" / "exit-codes.md").read_text().partition("\n## ")
    interrupted = 130  # a shell's way to say SIGINT
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", own, re.MULTILINE)}
    assert codes == {*map(int, Exit), *map(int, ExitCode), interrupted}


def test_what_to_do_is_said_for_every_reason_that_a_rollout_may_hang_at() -> None:
    guide = (reference.ROOT / "docs" / "operations.md").read_text()
    table = guide.partition("## When a rollout hangs")[2].partition("\n## ")[0].partition("| Reason |")[2]
    first = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table.partition("\n\n")[0], re.MULTILINE)
    found = {word for cell in first for word in re.findall(r"\w+", cell)}
    assert found == {*words("Progressing"), *words("Refusals")} - {Reason.COMPLETE}


def test_what_to_do_is_said_for_every_reason_that_stalls() -> None:
    runbooks = (reference.ROOT / "docs" / "runbooks.md").read_text()
    part = runbooks.partition("### SlackwaterPoolStalled")[2].partition("\n#")[0]
    found = set(re.findall(r"^\| `(\w+)`", part, re.MULTILINE))
    assert found == {*words("Refusals"), Reason.INVALID_SPEC} - {Reason.API_UNAVAILABLE}
