"""Plan files: what is read, what is refused, and that every refusal names its line."""

from __future__ import annotations

import codecs
import datetime as dt
import json
import re
import tomllib
import tracemalloc
from importlib import resources
from pathlib import Path
from textwrap import dedent

import attrs
import jsonschema
import pytest
import yaml

from dispatch.intent import Intent, Urgency
from dispatch.plans import PlanFile, PlanFileError, parse_plan, plan_schema, read_plan
from dispatch.plans.intents import INTENT_KEYS
from dispatch.plans.reader import PLAN_KEYS
from dispatch.plans.slices import DEFAULT_KEYS, SLICE_KEYS
from dispatch.plans.toml_positions import locate
from dispatch.slice import Slice, TouchSet
from harness import Recipe

EXAMPLES = Path(str(resources.files("dispatch.plans").joinpath("examples")))
DOCS = Path(__file__).parents[2] / "docs" / "plans.md"
AGENT = ("sh", "-c", 'claude -p "$(cat "$DISPATCH_TASK")"')


def toml(text: str) -> PlanFile:
    return parse_plan(dedent(text), "toml", "plan.toml")


def yml(text: str) -> PlanFile:
    return parse_plan(dedent(text), "yaml", "plan.yaml")


# --- what is read ---------------------------------------------------------------------------------------------------


def test_the_example_reads_as_it_says() -> None:
    plan = read_plan(EXAMPLES / "release.toml")
    recipe = Recipe(command=AGENT, verify=("make", "test"), max_attempts=2, env=(("CI", "1"),))
    evening = dt.datetime(2026, 9, 1, 18, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    syntax = "Extend the parser so that it reads the new syntax.\nKeep every existing test green.\n"
    docs = "Describe the new syntax, with an example that a test runs."
    assert plan == PlanFile(
        path=EXAMPLES / "release.toml",
        name="release",
        cap=3,
        main="main",
        slices=(
            Slice(
                "parser",
                "Parse the new syntax",
                attrs.evolve(recipe, prompt=syntax),
                touch=TouchSet(("src/parser/**", "tests/test_parser.py")),
            ),
            Slice(
                "printer",
                recipe=attrs.evolve(recipe, prompt="Print the new syntax.", kind="small"),
                touch=TouchSet(("src/printer/**",)),
            ),
            Slice(
                "docs",
                recipe=attrs.evolve(recipe, prompt=docs),
                depends_on=("parser", "printer"),
                touch=TouchSet(("docs/**",), ("changelog",)),
            ),
            Slice(
                "changelog",
                recipe=attrs.evolve(recipe, command=("python", "tools/changelog.py")),
                touch=TouchSet((), ("changelog",)),
                hold="until the date is known",
            ),
        ),
        intents=(
            Intent("plan.docs", "docs", scope="docs", deadline=evening),
            Intent("plan.changelog", "changelog", scope="changelog", urgency=Urgency.HIGH),
            Intent(
                "syntax-first",
                "The syntax matters more than the rest.",
                urgency=Urgency.HIGH,
                terms=("src/parser", "src/printer"),
            ),
        ),
    )


def test_both_formats_read_the_same_plan() -> None:
    in_toml, in_yaml = (read_plan(EXAMPLES / f"release.{suffix}") for suffix in ("toml", "yaml"))
    assert attrs.evolve(in_yaml, path=in_toml.path) == in_toml


def test_a_plan_without_settings_leaves_them_open() -> None:
    plan = parse_plan("[slices.a]\ncommand = 'true'", "toml", "some/where/tidy.toml")
    assert (plan.name, plan.cap, plan.main, plan.intents) == ("tidy", None, None, ())


def test_slices_may_be_a_list() -> None:
    plan = toml("""
        [[slices]]
        id = "a"
        command = ["true"]
        [[slices]]
        id = 7
        command = ["true"]
        needs = "a"
        env.PORT = 8080
    """)
    assert [slice_.id for slice_ in plan.slices] == ["a", "7"]
    assert plan.slices[1].depends_on == ("a",)
    assert plan.slices[1].recipe.env == (("PORT", "8080"),)


FIELDS = [
    ("command = ['a', '', 'b c']", "recipe.command", ("a", "", "b c")),
    ("command = 'a \"b c\" d\\ e'", "recipe.command", ("a", "b c", "d e")),
    ("verify = 'make test'", "recipe.verify", ("make", "test")),
    ("verify = []", "recipe.verify", ()),
    ("prompt = 'p'", "recipe.prompt", "p"),
    ("kind = 'k'", "recipe.kind", "k"),
    ("max_attempts = 9", "recipe.max_attempts", 9),
    ("grace_s = 0.5", "recipe.grace_s", 0.5),
    ("quiet_limit_s = 0", "recipe.quiet_limit_s", 0.0),
    ("env = { B = '2', A = 'x' }", "recipe.env", (("A", "x"), ("C", "3"), ("B", "2"))),
    ("title = 'Größe 寸'", "title", "Größe 寸"),
    ("depends_on = 'other'", "depends_on", ("other",)),
    ("depends_on = ['other', 7, 'other']", "depends_on", ("other", "7")),
    ("needs = ['other']", "depends_on", ("other",)),
    ("required_by = 'other'", "required_by", ("other",)),
    ("contends = ['other']", "contends", ("other",)),
    ("paths = 'src/*.py'", "touch.paths", ("src/*.py",)),
    ("touches = ['a', 'b/**']", "touch.paths", ("a", "b/**")),
    ("paths = []", "touch.paths", ()),
    ("hotspots = ['schema', 'schema']", "touch.hotspots", ("schema",)),
    ("hold = 'wait'", "hold", "wait"),
    ("provenance = 'ticket 4'", "provenance", "ticket 4"),
    ("title = 'x'", "touch", TouchSet(("default/**",), ("db",))),
    (
        "title = 'x'",
        "recipe",
        Recipe(("run",), verify=("check",), kind="d", max_attempts=5, env=(("A", "1"), ("C", "3"))),
    ),
]


@pytest.mark.parametrize(("line", "attribute", "value"), FIELDS, ids=lambda case: str(case)[:40])
def test_each_field_of_a_slice(line: str, attribute: str, value: object) -> None:
    plan = toml(f"""
        [defaults]
        command = "run"
        verify = "check"
        kind = "d"
        max_attempts = 5
        env = {{ A = "1", C = "3" }}
        paths = "default/**"
        hotspots = "db"
        [slices.other]
        [slices.7]
        [slices.it]
        {line}
    """)
    found: object = plan.slices[2]
    for part in attribute.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


INSTANTS = [
    ("2026-03-01T18:00:00Z", "2026-03-01T18:00:00+00:00"),
    ("2026-03-01t18:00:00z", "2026-03-01T18:00:00+00:00"),
    ("2026-03-01 18:00:00.25+05:30", "2026-03-01T18:00:00.250000+05:30"),
    ("2026-03-01 18:00:00 -08:00", "2026-03-01T18:00:00-08:00"),
]


@pytest.mark.parametrize(("text", "instant"), INSTANTS)
def test_a_deadline_is_an_instant(text: str, instant: str) -> None:
    in_quotes = toml(f'[slices.a]\ncommand = "a"\ndeadline = "{text}"')
    plain = yml(f"slices: {{a: {{command: a, deadline: {text} }}}}")
    for plan in (in_quotes, plain):
        assert plan.intents == (Intent("plan.a", "a", "a", deadline=dt.datetime.fromisoformat(instant)),)


@pytest.mark.parametrize("level", list(Urgency))
def test_an_urgency_declares_an_intent(level: Urgency) -> None:
    plan = toml(
        f'[defaults]\nurgency = "low"\n[slices.a]\ntitle = "A"\ncommand = "a"\nurgency = "{level.name.lower()}"'
    )
    assert plan.intents == (Intent("plan.a", "A", "a", urgency=level),)


def test_defaults_declare_the_intent_of_every_slice() -> None:
    plan = toml('[defaults]\nurgency = "urgent"\ncommand = "x"\n[slices.a]\n[slices.b]\nurgency = "low"')
    assert [(intent.scope, intent.urgency) for intent in plan.intents] == [("a", Urgency.URGENT), ("b", Urgency.LOW)]


def test_yaml_takes_ids_as_they_are_written() -> None:
    plan = yml("""
        defaults: {command: "true"}
        slices:
          yes:
          on: {needs: yes}
          0012: {}
          2026-01-01: {needs: [0012, on, 12]}
          12:
          1_0: {needs: '12'}
    """)
    ids = [slice_.id for slice_ in plan.slices]
    assert ids == ["yes", "on", "0012", "2026-01-01", "12", "1_0"]
    assert [slice_.depends_on for slice_ in plan.slices] == [(), ("yes",), (), ("0012", "on", "12"), (), ("12",)]


def test_yaml_anchors_and_merges() -> None:
    plan = yml("""
        slices:
          a: &one
            command: [run, it]
            env: &env {X: "1"}
            verify: [ok]
          b:
            <<: *one
            verify: [other]
            env: *env
          c: {<<: [{kind: first}, *one, {kind: second}]}
    """)
    a, b, c = plan.slices
    assert (b.recipe.command, b.recipe.verify, b.recipe.env) == (a.recipe.command, ("other",), a.recipe.env)
    assert c.recipe == attrs.evolve(a.recipe, kind="first")


PLAIN = '[slices.a]\ncommand = "a"\nprompt = """x\ny"""\n'


@pytest.mark.parametrize(
    "raw",
    [
        PLAIN.encode(),
        codecs.BOM_UTF8 + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        codecs.BOM_UTF16_LE + PLAIN.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + PLAIN.replace("\n", "\r\n").encode("utf-16-be"),
    ],
    ids=["plain", "byte order mark", "CRLF", "UTF-16 LE", "UTF-16 BE"],
)
def test_any_way_to_save_the_file_is_fine(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "plan.TOML"
    path.write_bytes(raw)
    assert read_plan(path).slices[0].recipe.prompt == "x\ny"


# --- where TOML values stand ----------------------------------------------------------------------------------------

LOOK_ALIKES = r"""
# [slices.comment] depends_on = 1
[slices.parser]  # [slices.no]
title = "[slices.no] \" # not a comment \\"
prompt = '''
[slices.no]
depends_on = ["no"]
'''''
verify = ["a # b", 'c ] d', @@@
needs = "no"
\@@@ @@@"",  # ]
  "last" ]
depends_on = [ "x" ]

[slices]
"quoted . key" . env . "A\u0041" = { b = 1, "c" = [ { d = 2 }, { } ] }
inline = { needs = [
  1979-05-27 07:32:00Z, # a space within a value
  0x1F ], title = "}" }

[[items]]
[[items.nested]]
x = 1
[[items.nested]]
[items.nested.sub]
y = 2
[[items]]
nested = []
""".replace("@", '"')

PLACES = {
    ("slices",): 3,
    ("slices", "parser"): 3,
    ("slices", "parser", "title"): 4,
    ("slices", "parser", "prompt"): 5,
    ("slices", "parser", "verify"): 9,
    ("slices", "parser", "verify", 0): 9,
    ("slices", "parser", "verify", 1): 9,
    ("slices", "parser", "verify", 2): 9,
    ("slices", "parser", "verify", 3): 12,
    ("slices", "parser", "depends_on"): 13,
    ("slices", "parser", "depends_on", 0): 13,
    ("slices", "quoted . key"): 16,
    ("slices", "quoted . key", "env"): 16,
    ("slices", "quoted . key", "env", "AA"): 16,
    ("slices", "quoted . key", "env", "AA", "b"): 16,
    ("slices", "quoted . key", "env", "AA", "c"): 16,
    ("slices", "quoted . key", "env", "AA", "c", 0): 16,
    ("slices", "quoted . key", "env", "AA", "c", 0, "d"): 16,
    ("slices", "quoted . key", "env", "AA", "c", 1): 16,
    ("slices", "inline"): 17,
    ("slices", "inline", "needs"): 17,
    ("slices", "inline", "needs", 0): 18,
    ("slices", "inline", "needs", 1): 19,
    ("slices", "inline", "title"): 19,
    ("items",): 21,
    ("items", 0): 21,
    ("items", 0, "nested"): 22,
    ("items", 0, "nested", 0): 22,
    ("items", 0, "nested", 0, "x"): 23,
    ("items", 0, "nested", 1): 24,
    ("items", 0, "nested", 1, "sub"): 25,
    ("items", 0, "nested", 1, "sub", "y"): 26,
    ("items", 1): 27,
    ("items", 1, "nested"): 28,
}


def test_look_alikes_are_not_taken_for_keys() -> None:
    tomllib.loads(LOOK_ALIKES)
    found = {route: LOOK_ALIKES.count("\n", 0, offset) + 1 for route, offset in locate(LOOK_ALIKES).items()}
    assert found == PLACES


# --- the schema and the page ----------------------------------------------------------------------------------------

SCHEMA = json.loads(plan_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_the_schema_accepts_the_example(suffix: str) -> None:
    text = (EXAMPLES / f"release.{suffix}").read_text()
    data = tomllib.loads(text) if suffix == "toml" else yaml.safe_load(text)
    assert list(VALIDATOR.iter_errors(json.loads(json.dumps(data, default=dt.datetime.isoformat)))) == []


def test_the_schema_has_the_readers_keys() -> None:
    defs, top = SCHEMA["$defs"], SCHEMA["properties"]
    shared, own = defs["shared"]["properties"], defs["slice"]["properties"]
    assert set(top) == set(PLAN_KEYS)
    assert set(top["defaults"]["properties"]) == set(shared) == set(DEFAULT_KEYS)
    assert {*shared, *own} == set(SLICE_KEYS)
    assert set(defs["intent"]["properties"]) == set(INTENT_KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"colour": 1},
        {"slices": {}},
        {"slices": {"a..b": {}}},
        {"slices": {"a": {"depend_on": "b"}}},
        {"slices": {"a": {"id": "b"}}},
        {"slices": {"a": {"paths": "x", "touches": "y"}}},
        {"slices": {"a": {"max_attempts": 0}}},
        {"slices": {"a": {"urgency": "asap"}}},
        {"slices": [{"command": "x"}]},
        {"defaults": {"title": "x"}},
        {"cap": 0},
        {"intents": {"i": {"urgency": "low"}}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, object]) -> None:
    assert not VALIDATOR.is_valid({"slices": {"a": {"command": "x"}}} | change)


def test_every_plan_on_the_page_can_be_read() -> None:
    blocks = re.findall(r"```(toml|yaml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert {format for format, _ in blocks} == {"toml", "yaml"}
    for format, block in blocks:
        assert parse_plan(block, format, f"plan.{format}").slices


def test_the_page_names_every_key() -> None:
    named = set(re.findall(r"^\| `(\w+)`", DOCS.read_text(), re.MULTILINE))
    aliases = set(re.findall(r"\(or `(\w+)`\)", DOCS.read_text()))
    assert named | aliases == {*PLAN_KEYS, *SLICE_KEYS, *INTENT_KEYS}


@pytest.mark.parametrize("parts", [900, 50_000])
@pytest.mark.parametrize("form", ["{} = 1\n", "[{}]\nb = 1\n"])
def test_a_key_of_very_many_parts_costs_no_more_than_its_length(parts: int, form: str) -> None:
    """Its positions would be prefixes of prefixes: four gigabytes of them for a hundred kilobytes of plan."""
    tracemalloc.start()
    try:
        with pytest.raises(PlanFileError, match="deep"):
            parse_plan(form.format(".".join(["a"] * parts)), "toml", "endless")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6
