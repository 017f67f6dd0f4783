"""Plan files under random text: places are exact, refusals are clean, and reader and schema agree."""

from __future__ import annotations

import graphlib
import itertools
import json
import random
import re
import tomllib
from importlib import resources
from typing import Any

import attrs
import jsonschema
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dispatch.plans import PlanFile, PlanFileError, PlanFormat, parse_plan, plan_schema
from dispatch.plans.nodes import Items, Node, Scalar
from dispatch.plans.toml_positions import Route, locate
from dispatch.plans.yaml_nodes import read_yaml
from tests.effort import examples

TRICKY = st.text("\"'\\[]{}=.,#:-&*!|> \n\tabé", max_size=12)
KEYS = st.one_of(st.sampled_from(["a", "b", "slices", "1", "-"]), TRICKY)
SCALARS = st.one_of(TRICKY, st.integers(-9, 9999), st.booleans(), st.datetimes(), st.floats(-9, 9))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)


# --- TOML: a writer of every style ----------------------------------------------------------------------------------


@attrs.define
class Toml:
    """Writes a table as TOML, in styles drawn at random. `items`: what stands where a list's item begins."""

    rng: random.Random
    out: list[str] = attrs.field(factory=list)
    items: dict[Route, str] = attrs.field(factory=dict)

    def table(self, route: Route, header: str, table: dict[str, Any]) -> None:
        later: dict[str, Any] = {}
        for key, value in table.items():
            if self._may_stand_below(value) and self.rng.random() < 0.6:
                later[key] = value
            else:
                self._entry((*route, key), self.key(key), value)
        for key, value in later.items():
            below = f"{header}{self.space()}.{self.space()}{self.key(key)}" if header else self.key(key)
            for index, part in enumerate(value if isinstance(value, list) else [value]):
                left, right = ("[[", "]]") if isinstance(value, list) else ("[", "]")
                self.out.append(f"{self.space()}{left}{self.space()}{below}{self.space()}{right}{self.line_end()}")
                self.table((*route, key, index) if isinstance(value, list) else (*route, key), below, part)

    def _may_stand_below(self, value: Any) -> bool:
        if isinstance(value, dict):
            return True
        return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)

    def _entry(self, route: Route, dotted: str, value: Any) -> None:
        if isinstance(value, dict) and value and self.rng.random() < 0.5:
            for key, inner in value.items():
                self._entry((*route, key), f"{dotted}{self.space()}.{self.space()}{self.key(key)}", inner)
        else:
            written = self.value(route, value)
            self.out.append(f"{self.space()}{dotted}{self.space()}={self.space()}{written}{self.line_end()}")

    def value(self, route: Route, value: Any) -> str:
        match value:
            case dict():
                entries = [
                    f"{self.space()}{self.key(key)}{self.space()}={self.space()}{self.value((*route, key), inner)}"
                    for key, inner in value.items()
                ]
                return "{" + ",".join(entries) + self.space() + "}"
            case list():
                parts = []
                for index, inner in enumerate(value):
                    self.items[(*route, index)] = self.value((*route, index), inner)
                    parts.append(self.gap() + self.items[(*route, index)] + self.gap())
                return "[" + ",".join(parts) + (self.rng.choice(["", ","]) if parts else "") + self.gap() + "]"
            case str():
                return self.text(value)
            case bool():
                return str(value).lower()
            case int() | float():
                return repr(value)
            case _:
                return str(value.isoformat(self.rng.choice([" ", "T"])))

    def text(self, text: str, *, one_line: bool = False) -> str:
        styles = [json.dumps(text, ensure_ascii=False)]
        if not re.search(r"['\n]", text):
            styles.append(f"'{text}'")
        if not one_line:
            escaped = text.replace("\\", "\\\\").replace('"""', '""\\"')
            styles.append(f'"""\n{escaped}"""')
            if "'''" not in text:
                styles.append(f"'''\n{text}'''")
        return self.rng.choice(styles)

    def key(self, key: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_-]+", key) and self.rng.random() < 0.7:
            return key
        return self.text(key, one_line=True)

    def space(self) -> str:
        return self.rng.choice(["", " ", "\t "])

    def gap(self) -> str:
        return self.rng.choice(["", " ", "\n", "\n# [slices.a] = \"'''\n\t"])

    def line_end(self) -> str:
        return self.rng.choice(["\n", "\n", " # x = [\n", "\n\n# '''\n# [a]\n"])


def written_as_toml(table: dict[str, Any], seed: int) -> tuple[str, dict[Route, str]]:
    writer = Toml(random.Random(seed))
    writer.table((), "", table)
    return "".join(writer.out), writer.items


def routes_of(data: dict[str, Any]) -> set[Route]:
    found: set[Route] = set()
    waiting: list[tuple[Route, Any]] = [((), data)]
    while waiting:
        route, value = waiting.pop()
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                found.add((*route, key))
                waiting.append(((*route, key), inner))
    return found


@settings(max_examples=examples(250))
@given(TABLES, st.integers(0, 2**32))
def test_toml_is_located_key_by_key(data: dict[str, Any], seed: int) -> None:
    text, items = written_as_toml(data, seed)
    assert tomllib.loads(text) == data
    offsets = locate(text)
    assert set(offsets) == routes_of(data)
    for route, offset in offsets.items():
        if route in items:
            assert text.startswith(items[route], offset)
        else:  # a key, or a table of an array of tables, which stands at the last key of its header
            key = next(part for part in reversed(route) if isinstance(part, str))
            written = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[\w-]+').match(text, offset)
            assert written is not None
            assert tomllib.loads(f"{written.group()} = 1") == {key: 1}


# --- YAML -----------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")  # text that YAML 1.1's writer leaves bare and 1.2 takes for one
YAML_TEXT = TRICKY.filter(lambda text: not NUMBER.fullmatch(text))
YAML_SCALARS = st.one_of(
    YAML_TEXT, st.integers(-(10**20), 10**20), st.booleans(), st.none(), st.floats(allow_nan=False)
)
YAML_DATA = st.recursive(
    YAML_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(YAML_TEXT, inner, max_size=3)
)


def plain(node: Node) -> Any:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain(inner) for inner in node.nodes]
    return {key: plain(inner) for key, inner in node.entries.items()}


@settings(max_examples=examples(200))
@given(YAML_DATA, st.sampled_from([True, False, None]), st.integers(2, 6), st.booleans())
def test_yaml_is_read_as_its_writer_meant_it(data: Any, flow: bool | None, indent: int, explicit: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, indent=indent, allow_unicode=True, explicit_start=explicit)
    assert plain(read_yaml(text)) == data
    assert read_yaml(text, yaml.SafeLoader) == read_yaml(text)  # parsers differ from build to build


@settings(max_examples=examples(100))
@given(
    st.dictionaries(st.from_regex(r"k[a-z]{1,5}", fullmatch=True), st.dictionaries(st.sampled_from("xyz"), YAML_TEXT))
)
def test_yaml_is_located_key_by_key(data: dict[str, dict[str, str]]) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=False)
    lines = text.split("\n")
    root = read_yaml(text)
    assert not isinstance(root, Scalar | Items)
    for key, node in root.entries.items():
        assert lines[node.at.line - 1][node.at.column - 1 :].startswith(key)
        assert not isinstance(node, Scalar | Items)
        for inner, value in node.entries.items():
            assert lines[value.at.line - 1][value.at.column - 1 :].startswith(inner)


# --- plans ----------------------------------------------------------------------------------------------------------

IDS = ["a", "lex", "parser", "v1.2", "7", "yes", "X_y-z"]
WORDS = st.text("abé 寸'\"#[{", min_size=1, max_size=8).map(lambda text: f"w{text}".strip())
INSTANTS = st.sampled_from(["2026-03-01T18:00:00Z", "2026-03-01T18:00:00.5+05:30"])
NAMES = st.lists(st.sampled_from(IDS), max_size=3)
SHARED = {
    "command": st.lists(WORDS, min_size=1, max_size=3) | st.sampled_from(["make", "sh -c 'x y'"]),
    "verify": st.lists(WORDS, max_size=2),
    "kind": WORDS,
    "max_attempts": st.integers(1, 9),
    "grace_s": st.integers(0, 99) | st.floats(0, 99),
    "quiet_limit_s": st.integers(0, 99),
    "env": st.dictionaries(st.sampled_from("AB"), WORDS | st.integers(0, 9), max_size=2),
    "paths": st.lists(st.sampled_from(["src/**", "*.py", "a/[b-d]?"]), max_size=2) | st.just("docs"),
    "hotspots": st.lists(WORDS, max_size=2) | WORDS,
    "urgency": st.sampled_from(["low", "normal", "high", "urgent"]),
    "deadline": INSTANTS,
    "provenance": WORDS,
}
OWN = {"title": WORDS, "prompt": TRICKY, "hold": WORDS}


@st.composite
def good_plans(draw: st.DrawFn) -> dict[str, Any]:
    """Plans that are to be accepted: references lead backwards in the file, everyone has a command."""
    ids = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
    tables: dict[str, Any] = {}
    for index, slice_id in enumerate(ids):
        table = draw(st.fixed_dictionaries({}, optional={**SHARED, **OWN}))
        if index:
            earlier = st.lists(st.sampled_from(ids[:index]), max_size=2)
            table |= draw(st.fixed_dictionaries({}, optional={"depends_on": earlier, "contends": earlier}))
        tables[slice_id] = table
    plan: dict[str, Any] = {"slices": tables, "defaults": {"command": "agent"}}
    if draw(st.booleans()):
        plan["slices"] = [{"id": slice_id, **table} for slice_id, table in tables.items()]
    optional = {"name": WORDS, "cap": st.integers(1, 9), "main": st.sampled_from(["main", "team/trunk"])}
    plan |= draw(st.fixed_dictionaries({}, optional=optional))
    if draw(st.booleans()):
        about = draw(st.sampled_from([{"scope": ids[0]}, {"terms": ["src"]}, {"scope": ids[-1], "urgency": "high"}]))
        plan["intents"] = {"i": about}
    return plan


MORE = {"needs": NAMES, "touches": SHARED["paths"], "required_by": NAMES, "contends": NAMES}
FIELDS = {**SHARED, **OWN, **MORE}
ANYTHING = st.one_of(VALUES, st.none(), *FIELDS.values())
SOUND = st.sampled_from(sorted(FIELDS)).flatmap(lambda key: st.tuples(st.just(key), FIELDS[key]))
ODD = st.tuples(st.sampled_from([*FIELDS, "depends_on", "id", "name", "cap", "main", "intents", "odd"]), ANYTHING)


@st.composite
def doubtful_plans(draw: st.DrawFn) -> dict[str, Any]:
    """Good plans with a value or two exchanged for something else, which may be just as good."""
    plan = draw(good_plans())
    slices = plan["slices"]
    tables = [*(slices.values() if isinstance(slices, dict) else slices), plan, plan["defaults"]]
    for key, value in draw(st.lists(SOUND | ODD, min_size=1, max_size=2)):
        draw(st.sampled_from(tables))[key] = value
    return plan


def as_json(plan: dict[str, Any]) -> Any:
    return json.loads(json.dumps(plan, default=str))


def outcome(text: str, format: PlanFormat) -> PlanFile | PlanFileError:
    try:
        return parse_plan(text, format, "plan")
    except PlanFileError as error:
        return error


VALIDATOR = jsonschema.Draft202012Validator(json.loads(plan_schema()))


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])
@given(good_plans(), st.integers(0, 2**32))
def test_both_formats_say_the_same_and_the_schema_accepts_it(plan: dict[str, Any], seed: int) -> None:
    in_toml = outcome(written_as_toml(plan, seed)[0], "toml")
    in_yaml = outcome(json.dumps(plan, ensure_ascii=False), "yaml")
    block = outcome(yaml.safe_dump(plan, allow_unicode=True, sort_keys=False), "yaml")
    assert isinstance(in_yaml, PlanFile), in_yaml
    assert sorted_by_id(in_toml) == sorted_by_id(in_yaml)  # TOML puts tables last: another order of the file
    assert block == in_yaml
    VALIDATOR.validate(plan)


def sorted_by_id(plan: PlanFile | PlanFileError) -> PlanFile:
    assert isinstance(plan, PlanFile), plan
    slices = [
        attrs.evolve(one, recipe=attrs.evolve(one.recipe, env=tuple(sorted(one.recipe.env)))) for one in plan.slices
    ]
    return attrs.evolve(
        plan,
        slices=tuple(sorted(slices, key=lambda one: one.id)),
        intents=tuple(sorted(plan.intents, key=lambda one: one.id)),
    )


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.too_slow])
@given(doubtful_plans())
def test_what_the_reader_accepts_the_schema_accepts(plan: dict[str, Any]) -> None:
    text = json.dumps(as_json(plan), ensure_ascii=False, indent=1)
    read = outcome(text, "yaml")
    event(type(read).__name__)
    if isinstance(read, PlanFile):
        VALIDATOR.validate(as_json(plan))
    else:
        check_refusal(read, text)


def check_refusal(error: PlanFileError, text: str) -> None:
    assert error.problems == tuple(map(str, error.found))
    for problem in error.found:
        assert str(problem).isprintable()
        assert problem.line is None or 1 <= problem.line <= text.count("\n") + 1
        assert problem.problem
    lines = [problem.line or 0 for problem in error.found]
    assert lines == sorted(lines)


EXAMPLES = {
    suffix: resources.files("dispatch.plans").joinpath("examples", f"release.{suffix}").read_text("utf-8")
    for suffix in ("toml", "yaml")
}
SHREDS = st.sampled_from(
    [*"\"'[]{}=.,#:-&*!|> \n\t\r\x00\x1b\u2028\ufeff", '"""', "'''", "&a ", "*a", "<<: ", "\n  ", "- "]
)


@settings(max_examples=examples(300))
@given(st.data(), st.sampled_from(["toml", "yaml"]))
def test_a_damaged_plan_is_read_or_refused_cleanly(data: st.DataObject, format: PlanFormat) -> None:
    text = EXAMPLES[format]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 30, len(text))))
        text = text[:start] + "".join(data.draw(st.lists(SHREDS, max_size=4))) + text[end:]
    read = outcome(text, format)
    event(f"{format}: {type(read).__name__}")
    if isinstance(read, PlanFileError):
        check_refusal(read, text)


@settings(max_examples=examples(200))
@given(st.text(), st.sampled_from(["toml", "yaml"]))
def test_any_text_is_read_or_refused_cleanly(text: str, format: PlanFormat) -> None:
    read = outcome(text, format)
    if isinstance(read, PlanFileError):
        check_refusal(read, text)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("abcdefg"), st.booleans()), max_size=12))
def test_circles_are_found_exactly_and_spelled_out(edges: list[tuple[str, str, bool]]) -> None:
    slices: dict[str, dict[str, Any]] = {
        name: {"command": "x", "depends_on": [], "required_by": []} for name in "abcdefg"
    }
    waits: dict[str, set[str]] = {name: set() for name in slices}
    for waiting, awaited, forward in edges:
        if waiting != awaited:
            waits[waiting].add(awaited)
            holder, field, other = (waiting, "depends_on", awaited) if forward else (awaited, "required_by", waiting)
            slices[holder][field].append(other)
    read = outcome(json.dumps({"slices": slices}), "yaml")
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError:
        assert isinstance(read, PlanFileError)
        for problem in read.found:
            spelled = re.search(r"circle: (.*);", problem.problem)
            assert spelled is not None
            circle = spelled[1].split(" -> ")
            assert circle[0] == circle[-1]
            assert len(set(circle)) == len(circle) - 1
            assert all(awaited in waits[waiting] for waiting, awaited in itertools.pairwise(circle))
    else:
        assert isinstance(read, PlanFile)
