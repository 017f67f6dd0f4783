"""What is wrong with a plan file, said in one line that names the place."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dispatch.errors import DispatchError
from dispatch.plans import PlanFileError, PlanFormat, parse_plan, read_plan
from dispatch.plans.source import PLAN_BYTES


def refused(text: str, format: PlanFormat) -> PlanFileError:
    with pytest.raises(PlanFileError) as refusal:
        parse_plan(text, format, f"plan.{format}")
    return refusal.value


def says(error: PlanFileError, expected: str) -> bool:
    """Whether that is all it says. Behind `...` the words are those of the check that every slice goes through."""
    (line,) = error.problems
    return line.startswith(expected.removesuffix("...")) if expected.endswith("...") else line == expected


#: Each plan has one thing wrong with it; this is all that is said.
TOML_REFUSALS = {
    "unknown dependency": (
        '[slices.lex]\ncommand = "a"\n[slices.parser]\ncommand = "a"\ndepends_on = [\n  "lex",\n  "lexer",\n]',
        "plan.toml:7: slices.parser.depends_on: no slice 'lexer'; did you mean 'lex'?",
    ),
    "the first of two alike": (
        '[slices.a]\ncommand = "a"\nneeds = [\n"b",\n"b"]',
        "plan.toml:4: slices.a.needs: no slice 'b'; add it to the plan, or take it out here",
    ),
    "behind lines that end as on Windows": (
        '[slices.a]\r\ncommand = "a"\r\nprompt = """\r\nx\r\n"""\r\nneeds = "b"\r\n',
        "plan.toml:6: slices.a.needs: no slice 'b'; add it to the plan, or take it out here",
    ),
    "its other name": (
        '[slices.parser]\ncommand = "a"\nneeds = "zzz"',
        "plan.toml:3: slices.parser.needs: no slice 'zzz'; add it to the plan, or take it out here",
    ),
    "unknown dependent": (
        '[slices.a]\ncommand = "a"\nrequired_by = "ab"\n[slices.abc]\ncommand = "a"',
        "plan.toml:3: slices.a.required_by: no slice 'ab'; did you mean 'abc'?",
    ),
    "unknown contender": (
        '[slices.a]\ncommand = "a"\ncontends = "q"',
        "plan.toml:3: slices.a.contends: no slice 'q'; add it to the plan, or take it out here",
    ),
    "depends on itself": (
        '[slices.a]\ncommand = "a"\nneeds = ["a"]',
        "plan.toml:3: slices.a.needs: names the slice itself; take it out",
    ),
    "contends with itself": (
        '[slices.a]\ncommand = "a"\ncontends = "a"',
        "plan.toml:3: slices.a.contends: names the slice itself; take it out",
    ),
    "circle": (
        '[slices]\na = { command = "a", needs = "b" }\nb.command = "b"\nb.needs = "c"\nc = { command = "c" }\n'
        'd = { command = "c", required_by = "c", needs = ["a"] }',
        "plan.toml:2: slices.a.needs: waits in a circle: a -> b -> c -> d -> a; each needs the next: take one out",
    ),
    "circle by required_by": (
        '[slices.a]\ncommand = "a"\nrequired_by = "b"\n[slices.b]\ncommand = "b"\nrequired_by = [\n"a"]',
        "plan.toml:7: slices.b.required_by: waits in a circle: a -> b -> a; each needs the next: take one out",
    ),
    "unknown key": (
        '[slices.a]\ncommand = "a"\ndepend_on = "b"',
        "plan.toml:3: slices.a.depend_on: there is no such key; did you mean 'depends_on'?",
    ),
    "a key of other tools": (
        '[slices.a]\ncommand = "a"\npriority = 1',
        "plan.toml:3: slices.a.priority: there is no such key; did you mean 'urgency'?",
    ),
    "unknown setting": (
        'capp = 3\n[slices.a]\ncommand = "a"',
        "plan.toml:1: capp: there is no such key; did you mean 'cap'?",
    ),
    "unknown default": (
        '[defaults]\ncommand = "a"\ntitle = "x"\n[slices.a]',
        "plan.toml:3: defaults.title: there is no such key",
    ),
    "id in a table by id": (
        '[slices.a]\ncommand = "a"\nid = "b"',
        "plan.toml:3: slices.a.id: the name of the table is the id; take this one away",
    ),
    "both names": (
        '[slices.a]\ncommand = "a"\npaths = "x"\ntouches = "y"',
        "plan.toml:3: slices.a.paths: is given twice: touches is another name for paths",
    ),
    "prompt without command": (
        '[slices.a]\ntitle = "x"\nprompt = "p"',
        "plan.toml:3: slices.a.prompt: has a prompt but no command that could take it; give it one, or give one to all "
        "in defaults",
    ),
    "neither": (
        '[slices.a]\ntitle = "x"',
        "plan.toml:1: slices.a: has no command; give it one, or give one to all in defaults",
    ),
    "empty command": ('[slices.a]\ncommand = " "', "plan.toml:2: slices.a.command: is empty; name a program"),
    "empty program": (
        '[slices.a]\ncommand = ["", "x"]',
        "plan.toml:2: slices.a.command: names no program: its first word is empty",
    ),
    "command of numbers": (
        '[slices.a]\ncommand = ["sleep",\n 5]',
        "plan.toml:3: slices.a.command: must be text, not a number; write it in quotes",
    ),
    "command as a table": (
        '[slices.a]\ncommand = { run = "x" }',
        "plan.toml:2: slices.a.command: must be text, not a table",
    ),
    "open quotation": (
        '[slices.a]\ncommand = "it\'s"',
        "plan.toml:2: slices.a.command: can't be split into words: no closing quotation",
    ),
    "shell operator": (
        '[slices.a]\ncommand = "cd x && make"',
        'plan.toml:2: slices.a.command: no shell runs it, so \'&&\' would be a plain argument; use ["sh", "-c", '
        '"..."] for a shell, or a list of words',
    ),
    "shell separator": (
        '[slices.a]\ncommand = "a"\nverify = "cd x; make"',
        'plan.toml:3: slices.a.verify: no shell runs it, so \'x;\' would be a plain argument; use ["sh", "-c", '
        '"..."] for a shell, or a list of words',
    ),
    "no attempts": (
        '[slices.a]\ncommand = "a"\nmax_attempts = 0',
        "plan.toml:3: slices.a.max_attempts: must be from 1 to 1,000,000,000",
    ),
    "attempts beyond counting": (
        f'[slices.a]\ncommand = "a"\nmax_attempts = 0x{"f" * 9000}',
        "plan.toml:3: slices.a.max_attempts: must be from 1 to 1,000,000,000",
    ),
    "a number too long for an id": (
        f'[slices.a]\ncommand = "a"\nneeds = 0x{"f" * 9000}',
        "plan.toml:3: slices.a.needs: must be text, not a number; write it in quotes",
    ),
    "an id with a dot and without quotes": (
        '[slices.v1.2]\n[slices.v1]\ncommand = "a"',
        "plan.toml:1: slices.v1.2: there is no such key; if the dot before it belongs to an id, the id needs quotes",
    ),
    "attempts in words": (
        '[slices.a]\ncommand = "a"\nmax_attempts = "3"',
        "plan.toml:3: slices.a.max_attempts: must be a whole number, not text ('3')",
    ),
    "true attempts": (
        '[slices.a]\ncommand = "a"\nmax_attempts = true',
        "plan.toml:3: slices.a.max_attempts: must be a whole number, not a boolean",
    ),
    "negative seconds": (
        '[slices.a]\ncommand = "a"\ngrace_s = -1',
        "plan.toml:3: slices.a.grace_s: ...",
    ),
    "seconds that are no number": (
        '[slices.a]\ncommand = "a"\nquiet_limit_s = nan',
        "plan.toml:3: slices.a.quiet_limit_s: ...",
    ),
    "too many seconds": (
        f'[slices.a]\ncommand = "a"\nquiet_limit_s = 1{"0" * 400}',
        "plan.toml:3: slices.a.quiet_limit_s: is more seconds than there will be",
    ),
    "variables as a list": (
        '[slices.a]\ncommand = "a"\nenv = ["A=1"]',
        "plan.toml:3: slices.a.env: must be a table of variables, not a list",
    ),
    "a variable that is true": (
        '[slices.a]\ncommand = "a"\n[slices.a.env]\nA = 1\nB = true',
        "plan.toml:5: slices.a.env: must be text, not a boolean; write it in quotes",
    ),
    "a variable's name": (
        '[slices.a]\ncommand = "a"\nenv = { "A=B" = "1" }',
        "plan.toml:3: slices.a.env: ...",
    ),
    "absolute path": (
        '[slices.a]\ncommand = "a"\npaths = [ "ok",\n"/etc/passwd" ]',
        "plan.toml:4: slices.a.paths: ...",
    ),
    "blank hotspot": ('[slices.a]\ncommand = "a"\nhotspots = [" "]', "plan.toml:3: slices.a.hotspots: ..."),
    "id outside the grammar": (
        '[slices.a]\ncommand = "a"\n[slices."../x"]\ncommand = "a"',
        "plan.toml:3: slices.'../x': '../x' ...",
    ),
    "reference outside the grammar": (
        '[slices.a]\ncommand = "a"\nneeds = [\n"-x"]',
        "plan.toml:4: slices.a.needs: '-x' ...",
    ),
    "long title": (
        f'[slices.a]\ncommand = "a"\ntitle = "{"x" * 257}"',
        "plan.toml:3: slices.a.title: ...",
    ),
    "control character": (
        '[slices.a]\ncommand = "a"\ntitle = "x\\u001b[31m"',
        "plan.toml:3: slices.a.title: ...",
    ),
    "NUL in a prompt": (
        '[slices.a]\ncommand = "a"\nprompt = """\nx\\u0000"""',
        "plan.toml:3: slices.a.prompt: ...",
    ),
    "deadline without offset": (
        '[slices.a]\ncommand = "a"\ndeadline = 2026-03-01T18:00:00',
        "plan.toml:3: slices.a.deadline: has no offset from UTC, so nobody can tell when it is; write it like "
        "2026-03-01T18:00:00Z",
    ),
    "deadline without time": (
        '[slices.a]\ncommand = "a"\ndeadline = 2026-03-01',
        "plan.toml:3: slices.a.deadline: must be a date and time such as 2026-03-01T18:00:00Z, not a date",
    ),
    "deadline in words": (
        '[slices.a]\ncommand = "a"\ndeadline = "tomorrow"',
        "plan.toml:3: slices.a.deadline: 'tomorrow' is no date and time such as 2026-03-01T18:00:00Z",
    ),
    "deadline in a 13th month": (
        '[slices.a]\ncommand = "a"\ndeadline = "2026-13-01T18:00:00Z"',
        "plan.toml:3: slices.a.deadline: '2026-13-01T18:00:00Z' is no date and time such as 2026-03-01T18:00:00Z",
    ),
    "deadline beyond time": (
        '[slices.a]\ncommand = "a"\ndeadline = 9999-12-31T23:59:59-01:00',
        "plan.toml:3: slices.a.deadline: lies outside the years 1 to 9999",
    ),
    "unknown urgency": (
        '[slices.a]\ncommand = "a"\nurgency = "asap"',
        "plan.toml:3: slices.a.urgency: must be one of low, normal, high, urgent, not 'asap'",
    ),
    "cap of nothing": ('cap = 0\n[slices.a]\ncommand = "a"', "plan.toml:1: cap: must be from 1 to 1,000,000,000"),
    "name with a line end": (
        'name = "a\\nb"\n[slices.a]\ncommand = "a"',
        "plan.toml:1: name: must be 1 to 256 printable characters, not 'a\\nb'",
    ),
    "branch": ('main = "a..b"\n[slices.a]\ncommand = "a"', "plan.toml:1: main: 'a..b' is no name of a branch"),
    "defaults are checked once": (
        '[defaults]\ncommand = "a"\nmax_attempts = 2\npaths = [\n"/x"]\n[slices.a]\n[slices.b]',
        "plan.toml:5: defaults.paths: ...",
    ),
    "a useless default command": (
        '[defaults]\ncommand = 5\n[slices.a]\n[slices.b]\nprompt = "p"',
        "plan.toml:2: defaults.command: must be text, not a number; write it in quotes",
    ),
    "defaults as text": (
        'defaults = "x"\n[slices.a]\ncommand = "a"',
        "plan.toml:1: defaults: must be a table, not text",
    ),
    "slices as text": ('\nslices = "x"', "plan.toml:2: slices: must be a table by id, or a list of tables, not text"),
    "slice as text": ('[slices]\n\na = "x"', "plan.toml:3: slices.a: must be a table of fields, not text"),
    "no slices": ("name = 'x'", "plan.toml:1:1: has no slices; a plan has at least one"),
    "an empty list of slices": ("slices = []", "plan.toml:1: slices: has no slices; a plan has at least one"),
    "listed twice": (
        '[[slices]]\nid = "a"\ncommand = "a"\n[[slices]]\ncommand = "a"\nid = "a"',
        "plan.toml:6: slices[1].id: 'a' is there already, in line 2",
    ),
    "listed without id": (
        '[[slices]]\nid = "a"\ncommand = "a"\n[[slices]]\ncommand = "a"',
        "plan.toml:4: slices[1]: has no id",
    ),
    "listed text": ('slices = ["a"]', "plan.toml:1: slices[0]: must be a table of fields, not text"),
    "a listed slice's field": (
        '[[slices]]\nid = "a"\ncommand = "a"\n[[slices]]\nid = "b"\ncommand = "a"\n[slices.env]\nX = 1.5',
        "plan.toml:8: slices.b.env: must be text, not a number; write it in quotes",
    ),
}


@pytest.mark.parametrize(("text", "line"), TOML_REFUSALS.values(), ids=TOML_REFUSALS)
def test_toml(text: str, line: str) -> None:
    assert says(refused(text, "toml"), line)


#: Where the text is no TOML the words are the parser's, which change with its version; the place is checked.
NO_TOML = {
    "an open header": ("[slices.a\n", "plan.toml:1:10: "),
    "text without quotes": ("[slices.a]\ncommand = make", "plan.toml:2:11: "),
    "an open text": ('[slices.a]\ncommand = "a\n', "plan.toml:2:13: "),
    "a table twice": ("[slices.a]\n[slices.a]\n", "plan.toml:2:10: "),
    "a key twice": ('[slices.a]\ncommand = "a"\ncommand = "a"\n', "plan.toml:3:"),
    "a control character": ("[slices.a]\ncommand = 'a\x07'", "plan.toml:2:13: "),
    "an open list": ("[slices.a]\ncommand = [\n", "plan.toml:2:12: "),
    "an endless number": (f"cap = {'1' * 5000}", "plan.toml: "),
}


@pytest.mark.parametrize(("text", "place"), NO_TOML.values(), ids=NO_TOML)
def test_no_toml(text: str, place: str) -> None:
    (line,) = refused(text, "toml").problems
    assert line.startswith(place)
    assert "is no TOML: " in line


YAML_REFUSALS = {
    "unknown dependency": (
        """
        slices:
          lex: {command: a}
          parser:
            command: a
            depends_on:
              - lex
              - lexer
        """,
        "plan.yaml:8: slices.parser.depends_on: no slice 'lexer'; did you mean 'lex'?",
    ),
    "two places in one line": (
        "slices: {a: {command: a, needs: [b]}, b: {command: b, needs: a}}",
        "plan.yaml:1: slices.a.needs: waits in a circle: a -> b -> a; each needs the next: take one out",
    ),
    "through an alias": (
        """
        slices:
          a:
            command: &x [a]
            paths: *x
          b: &b
            command: b
            paths:
              - ../y
          c: {<<: *b, paths: z}
        """,
        "plan.yaml:9: slices.b.paths: ...",
    ),
    "an alias in a list": (
        "slices:\n  a:\n    command: a\n    kind: &x ../y\n    paths: [\n      ok,\n      *x]",
        "plan.yaml:7: slices.a.paths: '../y' ...",
    ),
    "behind lines that end as on Windows": (
        "slices:\r\n  a:\r\n    command: a\r\n    prompt: |\r\n      x\r\n    needs: b\r\n",
        "plan.yaml:6: slices.a.needs: no slice 'b'; add it to the plan, or take it out here",
    ),
    "a value forgotten": (
        "slices:\n  a:\n    command: a\n    prompt:",
        "plan.yaml:4: slices.a.prompt: has no value; give it one, or take the key away",
    ),
    "a boolean for an id": (
        "slices:\n  true: {command: a}\n  b: {command: a, needs: true}",
        "plan.yaml:3: slices.b.needs: must be text, not a boolean; write it in quotes",
    ),
    "a fraction for an id": (
        "slices:\n  1.10: {command: a}\n  b: {command: a, needs: [1.10]}",
        "plan.yaml:3: slices.b.needs: must be text, not a number; write it in quotes",
    ),
    "a number for a title": (
        "slices:\n  a: {command: a, title: 404}",
        "plan.yaml:2: slices.a.title: must be text, not a number; write it in quotes",
    ),
    "endless seconds": (
        "slices:\n  a: {command: a, grace_s: .inf}",
        "plan.yaml:2: slices.a.grace_s: ...",
    ),
    "an octal number": (
        "slices:\n  a: {command: a, max_attempts: 010}",
        "plan.yaml:2: slices.a.max_attempts: must be a whole number, not text ('010')",
    ),
    "a deadline without offset": (
        "slices:\n  a: {command: a, deadline: 2026-03-01 18:00:00}",
        "plan.yaml:2: slices.a.deadline: has no offset from UTC, so nobody can tell when it is; write it like "
        "2026-03-01T18:00:00Z",
    ),
    "slices with nothing behind": ("\nslices:\n", "plan.yaml:2: slices: has no slices; a plan has at least one"),
    "lines that a separator doesn't make": (
        'slices:\n  a: {command: "a\u2028b\u0085c"}\n  b: {}',
        "plan.yaml:3: slices.b: has no command; give it one, or give one to all in defaults",
    ),
    "a key twice": (
        "slices:\n  a:\n    command: a\n    command: b",
        "plan.yaml:4:5: the key 'command' is there already, in line 3",
    ),
    "an id twice": (
        "slices:\n  1: {command: a}\n  '1': {command: a}",
        "plan.yaml:3:3: the key '1' is there already, in line 2",
    ),
    "two documents": (
        "slices: {}\n---\nslices: {}",
        "plan.yaml:2:1: a plan is one YAML document, and here another begins",
    ),
    "a list": ("- slices", "plan.yaml:1:1: a plan is a table with slices in it, not a list"),
    "text": ("slices", "plan.yaml:1:1: a plan is a table with slices in it, not text"),
    "nothing": ("# nothing\n", "plan.yaml:1:1: is empty; a plan has slices"),
    "a list for a key": ("slices:\n  [a]: b", "plan.yaml:2:3: a key has to be plain text"),
    "an alias for a key": ("a: &x b\n*x : c", "plan.yaml:2:1: a key has to be plain text"),
    "a tag": (
        "slices:\n  a: !!python/object:os.system {}",
        "plan.yaml:2:6: a plan has no use for the tag '!!python/object:os.system'",
    ),
    "a tag on text": ("slices:\n  a: !!int '3'", "plan.yaml:2:6: a plan has no use for the tag '!!int'"),
    "an unknown alias": (
        "slices:\n  a: *b",
        "plan.yaml:2:6: '*b' refers to no anchor that ends before it; text with * needs quotes",
    ),
    "an alias within its anchor": (
        "slices: &s\n  a: *s",
        "plan.yaml:2:6: '*s' refers to no anchor that ends before it; text with * needs quotes",
    ),
    "a merge of text": ("slices:\n  a:\n    <<: b", "plan.yaml:3:9: << merges tables, and this is none"),
    "nested too deep": ("a:\n " + "[" * 20 + "]" * 20, "plan.yaml:2:21: tables and lists are nested more than 20 deep"),
}


@pytest.mark.parametrize(("text", "line"), YAML_REFUSALS.values(), ids=YAML_REFUSALS)
def test_yaml(text: str, line: str) -> None:
    assert says(refused(dedent(text), "yaml"), line)


NO_YAML = {
    "a tab": ("slices:\n\ta: {}", "plan.yaml:2:1: ", "; indent with spaces, not with a tab"),
    "a glob without quotes": (
        "slices:\n  a: {paths: [*.py]}",
        "plan.yaml:2:",
        "; text that begins with '*' needs quotes",
    ),
    "an at sign": ("slices:\n  a: @b", "plan.yaml:2:6: ", "; text that begins with '@' needs quotes"),
    "an open list": ("slices: [a,\n", "plan.yaml:2:1: ", ""),
    "a colon too many": ("slices: a: b", "plan.yaml:1:10: ", ""),
    "a control character": (
        "slices:\n  a: \x07",
        "plan.yaml:2:6: ",
        "the character '\\x07' has to be written as an escape",
    ),
    "a version to come": ("%YAML 9.0\n---\na: b", "plan.yaml:1:1: ", ""),
    "nested beyond the parser": ("[" * 5000, "plan.yaml:1:", ""),
}


@pytest.mark.parametrize(("text", "place", "advice"), NO_YAML.values(), ids=NO_YAML)
def test_no_yaml(text: str, place: str, advice: str) -> None:
    (line,) = refused(text, "yaml").problems
    assert line.startswith(place)
    assert line.endswith(advice)


INTENT_REFUSALS = {
    "unknown scope": ('[intents.i]\nscope = "b"', "plan.toml:4: intents.i.scope: no slice 'b'"),
    "no scope": ("[intents.i]", "plan.toml:3: intents.i: is about no slice; give it a scope or terms"),
    "blank terms": (
        '[intents.i]\nterms = [" "]',
        "plan.toml:4: intents.i.terms: is about no slice; give it a scope or terms",
    ),
    "a slice's": (
        '[intents."plan.a"]\nscope = "a"',
        "plan.toml:3: intents.'plan.a': 'plan.a' is the intent that slice 'a' declares",
    ),
    "itself": (
        '[intents.i]\nscope = "a"\nsupersedes = "i"',
        "plan.toml:5: intents.i.supersedes: names the intent itself",
    ),
    "unknown key": (
        '[intents.i]\nscope = "a"\nurgent = true',
        "plan.toml:5: intents.i.urgent: there is no such key; did you mean 'urgency'?",
    ),
    "no id": ('[[intents]]\nscope = "a"', "plan.toml:3: intents[0]: has no id"),
    "an empty id": ('[intents.""]\nscope = "a"', "plan.toml:3: intents.'': ..."),
    "NUL": ('[intents.i]\nscope = "a"\nstatement = "\\u0000"', "plan.toml:5: intents.i.statement: ..."),
}


@pytest.mark.parametrize(("text", "line"), INTENT_REFUSALS.values(), ids=INTENT_REFUSALS)
def test_intents(text: str, line: str) -> None:
    plan = f'[slices]\na = {{ command = "a", urgency = "high" }}\n{text}'
    assert says(refused(plan, "toml"), line)


# --- all of it, in one error ----------------------------------------------------------------------------------------


def test_an_error_holds_all_problems_in_the_order_of_their_lines() -> None:
    error = refused(
        '[slices.b]\ncommand = 1\nneeds = "x"\n[slices.a]\ntitle = 2\npaths = ["/", "../y"]\ncolour = 1', "toml"
    )
    assert [(problem.line, problem.field) for problem in error.found] == [
        (2, "slices.b.command"),
        (3, "slices.b.needs"),
        (4, "slices.a"),
        (5, "slices.a.title"),
        (6, "slices.a.paths"),
        (6, "slices.a.paths"),
        (7, "slices.a.colour"),
    ]
    assert error.problems == tuple(map(str, error.found))
    assert str(error) == f"{error.problems[0]} (and 6 more)"
    assert (error.path, error.line, error.column) == ("plan.toml", 2, 1)
    assert (error.field, error.problem) == ("slices.b.command", "must be text, not a number; write it in quotes")
    assert isinstance(error, DispatchError)


def test_each_circle_is_reported_once_and_shortest_first() -> None:
    chain = "".join(f'n{i} = {{ command = "x", needs = "n{i - 1}" }}\n' for i in range(1, 5000))
    error = refused(
        f'[slices]\n{chain}n0 = {{ command = "x", needs = ["n4999"] }}\n'
        'p = { command = "x", needs = ["q", "r"] }\nq = { command = "x", needs = "p" }\n'
        'r = { command = "x", needs = "q" }',
        "toml",
    )
    long, short = error.problems
    middle = " -> ".join(f"n{i}" for i in (1, 0, *range(4999, 4991, -1)))
    assert long == (
        f"plan.toml:2: slices.n1.needs: waits in a circle: {middle} -> (4989 more) -> n2 -> n1;"
        " each needs the next: take one out"
    )
    assert short == "plan.toml:5002: slices.p.needs: waits in a circle: p -> q -> p; each needs the next: take one out"


def test_nothing_from_the_file_acts_on_the_terminal() -> None:
    hostile = "\\u001b[2J\\u202e\\r\\n"
    error = refused(f'"{hostile}" = 1\n[slices."{hostile}"]\n"{hostile}" = "{hostile}"\nneeds = "{hostile}"', "toml")
    assert len(error.problems) == 6
    assert all(line.isprintable() for line in error.problems)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("leaf", ["[x, x, x, x, x, x, x, x, x]", "{a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x}"])
def test_an_alias_bomb_is_refused_before_it_grows(leaf: str) -> None:
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 12))
    (line,) = refused(f"l0: &l0 {leaf}\n{levels}", "yaml").problems
    assert line.endswith("holds more than 1,000,000 values, aliases written out")


@pytest.mark.timeout(20)
def test_a_merge_bomb_is_refused_before_it_grows() -> None:
    wide = ", ".join(f"k{i}: x" for i in range(2000))
    (line,) = refused(f"a: &a {{{wide}}}\nb: {{<<: [{', '.join(['*a'] * 1000)}]}}", "yaml").problems
    assert line.endswith("holds more than 1,000,000 values, aliases written out")


@pytest.mark.parametrize("opening", ["[", "{a=", "[{a="])
def test_toml_that_is_nested_beyond_reason(opening: str) -> None:
    closing = {"[": "]", "{a=": "}", "[{a=": "}]"}[opening]
    for depth in (25, 20_000):
        (line,) = refused(f"cap = {opening * depth}0{closing * depth}", "toml").problems
        assert line.endswith("tables and lists are nested more than 20 deep")


@pytest.mark.timeout(20)
def test_many_misspellings_cost_little() -> None:
    slices = "".join(f'[slices.s{i}]\ncommand = "x"\nneeds = "t{i}"\n' for i in range(3000))
    assert len(refused(slices, "toml").problems) == 3000
    needs = ", ".join(f'"t{i}"' for i in range(30_000))
    assert len(refused(f'[slices.a]\ncommand = "x"\nneeds = [{needs}]', "toml").problems) == 30_000


# --- files ----------------------------------------------------------------------------------------------------------


def file_refusal(path: Path) -> str:
    with pytest.raises(PlanFileError) as refusal:
        read_plan(path)
    (line,) = refusal.value.problems
    assert line.startswith(f"{path}: ") or refusal.value.line
    return line.removeprefix(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").touch()
    assert file_refusal(tmp_path / "plna.toml") == ": there is no such file; did you mean 'plan.toml'?"
    assert file_refusal(tmp_path / "other.yaml") == ": there is no such file"
    assert file_refusal(tmp_path / "no" / "plan.toml") == ": there is no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert file_refusal(tmp_path) == ": is a folder; name a plan file in it"


@pytest.mark.parametrize(("name", "ending"), [("plan.json", "the suffix '.json'"), ("plan", "no suffix")])
def test_an_unknown_suffix(tmp_path: Path, name: str, ending: str) -> None:
    (tmp_path / name).touch()
    assert file_refusal(tmp_path / name) == f": has {ending}; a plan is a .toml, .yaml or .yml file"


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "plan.yml"
    with path.open("wb") as file:
        file.truncate(PLAN_BYTES + 1)
    assert file_refusal(path) == ": is larger than 16 MiB, the most for a plan"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"a\nb\xff", ":2:2: byte 0xff is no UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\x00b", ": begins as UTF-16 but isn't; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_text(tmp_path: Path, raw: bytes, problem: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(raw)
    assert file_refusal(path) == problem


def test_text_that_no_file_could_hold() -> None:
    assert refused("a\n\ud800", "yaml").problems == ("plan.yaml:2:1: a lone surrogate is no character",)
    assert refused(" " * (PLAN_BYTES + 1), "yaml").problems == (
        "plan.yaml: is larger than 16 MiB, the most for a plan",
    )


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(PlanFileError) as refusal:
        read_plan(Path("pl\0an.toml"))
    assert refusal.value.problems == ("pl\\x00an.toml: is no name of a file",)
