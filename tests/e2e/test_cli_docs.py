"""`docs/cli.md` says what the programs print: every example has the keys of the real thing, and no others."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from dispatch import cli
from dispatch.cli.jobs import jobs
from tests.e2e.desk import Desk, end, until
from tests.e2e.fleet_yard import Yard

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
PLAN = """
cap = 2
[slices.schema]
command = ["true"]
hotspots = ["database"]
[slices.search]
command = ["sh", "-c", "echo no index; exit 1"]
max_attempts = 1
hotspots = ["database"]
urgency = "low"
[slices.page]
needs = "search"
paths = ["src/**"]
command = ["true"]
[slices.site]
needs = "page"
paths = ["src/x"]
command = ["true"]
"""


def example(command: str) -> Any:
    """The JSON example in the section on a command."""
    section = PAGE.split(f"\n## `{command}`\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 1
    return json.loads(blocks[0])


def shape(value: Any, at: str = "") -> set[str]:
    """The paths of all keys in a document; a list stands for its members."""
    if isinstance(value, dict):
        return {f"{at}.{key}" for key in value}.union(*(shape(each, f"{at}.{key}") for key, each in value.items()))
    if isinstance(value, list):
        return set[str]().union(*(shape(each, f"{at}[]") for each in value))
    return set()


def usage_of(command: str) -> str:
    return "".join(re.findall(rf"slice-dispatch {command} .*(?:\n {{20,}}.*)*", PAGE))


def test_the_examples_have_the_keys_of_what_is_printed(desk: Desk) -> None:
    plan = desk.plan(PLAN)
    done = desk.run("run", plan, "--json")
    assert shape(json.loads(done.stdout)) == shape(example("run"))
    assert shape(desk.document("plan", plan)) == shape(example("plan"))
    assert shape(desk.document("log", "search")) == shape(example("log"))
    # Nobody owns the graph, and so it has no owner to describe; and no attempt was made at the slice explained.
    assert shape(desk.document("list")) == shape(example("list")) - {".owner.since", ".owner.epoch"}
    unowned = {".graphs[].owner.since", ".graphs[].owner.epoch"}
    assert shape(desk.document("graphs")) == shape(example("graphs")) - unowned
    assert shape(desk.document("explain", "page")) == shape(example("explain"))
    told, shown = shape(desk.document("history", "search")), shape(example("history"))
    of_its_kind = ".entries[].input."
    assert {key for key in told ^ shown if not key.startswith(of_its_kind)} == set()
    assert shape(desk.document("replay")) == shape(example("replay"))


def test_the_examples_of_the_fleet_have_the_keys_of_what_is_printed(desk: Desk) -> None:
    yard = Yard(desk)
    yard.submit("a")
    worker = yard.work()
    until(lambda: yard.state("a") == "succeeded", worker)
    end(worker, signal.SIGTERM)
    assert shape(desk.document("jobs", "status", "a")) == shape(example("jobs"))
    assert shape(json.loads(desk.ask("doctor", "--json").stdout)) == shape(example("doctor"))


def test_every_command_and_option_is_documented_and_none_else(desk: Desk) -> None:
    commands = [info.name or info.callback.__name__ for info in cli.app.registered_commands if info.callback]
    commands += [group.name for group in cli.app.registered_groups if group.name]
    assert set(re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE)) >= {"`run PLAN`", "`plan PLAN`"}
    named = set(re.findall(r"`([a-z]+)[^`]*`", "".join(re.findall(r"^\| (`[a-z][^|]+) \|", PAGE, re.MULTILINE))))
    assert named == set(commands)
    for command in ("run", "plan", "graphs", "list", "explain", "log", "history", "replay", "hold", "worker", "doctor"):
        usage = usage_of(command)
        options = set(re.findall(r"--[a-z-]+", desk.ask(command, "--help").stdout)) - {"--help"}
        shared = {"--store", "--graph", "--repo"} if command == "hold" else set()
        assert options - shared == set(re.findall(r"--[a-z-]+", usage)), command
    subcommands = re.findall(r"slice-dispatch jobs ([a-z]+)", PAGE)
    assert sorted(subcommands) == sorted(
        info.name or info.callback.__name__ for info in jobs.registered_commands if info.callback
    )
    for command in subcommands:
        options = set(re.findall(r"--[a-z-]+", desk.ask("jobs", command, "--help").stdout)) - {"--help"}
        assert options == set(re.findall(r"--[a-z-]+", usage_of(f"jobs {command}"))), command


def test_the_schema_and_the_version_are_printed(desk: Desk) -> None:
    schema = json.loads(desk.ask("schema").stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    versions = {desk.ask("version").stdout, desk.ask("--version").stdout}
    assert re.fullmatch(r"slice-dispatch \d+\.\d+\.\d+\n", versions.pop())
    assert versions == set()
