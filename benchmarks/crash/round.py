"""One round: a plan, run to its end through a series of kills, with an operator's commands in between."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import attrs

from benchmarks.crash.evidence import Command, Evidence, Look, Takeover
from benchmarks.crash.fates import FAIR, FAULTS, TAKEN_OVER, Fate, Means, dealt
from benchmarks.crash.faults import befall, ended, resumed
from benchmarks.crash.plan import Plan, plan_of
from benchmarks.crash.scene import GRAPH, Scene
from benchmarks.crash.stores import Kept, PostgresKept
from benchmarks.crash.succession import OUT_OF_REACH, Succession

LIMIT_S = 90.0  #: no step takes so long on any machine that is of use
PATIENCE_S = 2.0  #: how long after the first agent's start a run may take to come by the place where it is to die
PROBLEMS = 3  #: after so many a round is brought to its end
FINISHES = 5  #: runs that are left alone, at most, until all is merged

# A shell that starts a program in the background ignores SIGINT for it, and for all that it starts in turn.
HEEDING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
)


@attrs.frozen
class Script:
    """How a round goes: `fates` in this order, or drawn; after `most_kills` the plan is left alone to come to its end.

    `commands_at` is how often somebody commands something between two runs.
    """

    fates: tuple[Fate, ...] = ()
    most_kills: int = 14
    commands_at: float = 0.35


@attrs.define
class Tally:
    """What happened in a round, counted. `landed` are kills with an agent at work; `restarts` runs after a kill.

    `struck` are faults that met the run, `cuts` those around a commit, by moment; `resumed_s`: how long it took from a
    fault's end until the store was used again. `refused` are writes of runs that were taken over.
    """

    kills: Counter[Means] = attrs.field(factory=Counter)
    landed: Counter[Means] = attrs.field(factory=Counter)
    missed: Counter[Means] = attrs.field(factory=Counter)
    asked: Counter[Means] = attrs.field(factory=Counter)
    places: Counter[str] = attrs.field(factory=Counter)
    commands: Counter[str] = attrs.field(factory=Counter)
    struck: Counter[Means] = attrs.field(factory=Counter)
    cuts: Counter[str] = attrs.field(factory=Counter)
    resumed_s: list[float] = attrs.field(factory=list)
    restarts: int = 0
    rivals: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        for name in ("kills", "landed", "missed", "asked", "places", "commands", "struck", "cuts"):
            getattr(self, name).update(getattr(other, name))
        self.resumed_s += other.resumed_s
        self.refused += other.refused
        self.restarts += other.restarts
        self.rivals += other.rivals


@attrs.frozen
class Played:
    """A round that is over."""

    seed: int
    plan: Plan
    evidence: Evidence
    tally: Tally
    story: tuple[str, ...]


class HungError(Exception):
    """A run did not end."""


class Round:
    """`sabotage` names what is to be broken in the product, for the campaign to show that it would see it."""

    limit_s, patience_s = LIMIT_S, PATIENCE_S

    def __init__(self, seed: int, folder: Path, kept: Kept, script: Script | None = None, sabotage: str = "") -> None:
        self.seed, self.plan, self.kept = seed, plan_of(seed), kept
        self.scene = Scene(folder, self.plan, kept.url)
        self.tally = Tally()
        self._rng = random.Random(f"fates of {seed}")
        self._script = script or Script()
        self._commands: list[Command] = []
        self._held: set[str] = set()
        self._seen = [self.scene.main()]
        self._looks: list[Look] = []
        self._takeovers: list[Takeover] = []
        self._problems: list[str] = []
        self._story: list[str] = []
        self._runs = 0
        self._program = ("-m", "benchmarks.crash.sabotage", "dispatch") if sabotage else ("-m", "dispatch")
        self.scene.env |= {"CRASH_SABOTAGE": sabotage} if sabotage else {}

    def play(self) -> Played:
        """Run, kill, command, until all is done; then look."""
        try:
            self._be_killed()
            self._finish()
        except HungError as hung:
            self._problems.append(str(hung))
        stored = self._stored()
        self._replay()
        evidence = self.scene.evidence(self._commands, self._seen, stored, self._problems)
        self.scene.close()
        steps, writers = self.kept.steps()
        evidence = attrs.evolve(
            evidence, looks=tuple(self._looks), takeovers=tuple(self._takeovers), steps=steps, writers=writers
        )
        return Played(self.seed, self.plan, evidence, self.tally, tuple(self._story))

    def _be_killed(self) -> None:
        for fate in self._script.fates or dealt(self._rng, self.kept.kind, self.seed):
            through = self._run(fate) in (0, 1)
            enough = self.tally.kills.total() >= self._script.most_kills or len(self._problems) >= PROBLEMS
            if enough or (through and not self._held):
                return
            if through:
                self._release()
            elif self._rng.random() < self._script.commands_at:
                self._command()

    def _finish(self) -> None:
        """Let it run, with what is held left out; then take back what keeps slices from merging, and let it run."""
        if self._held:
            self._run(FAIR)
        for _ in range(FINISHES):
            self._release()
            self._wish_luck()
            if self._run(FAIR) == 0 or set(self._stored().values()) <= {"merged", "canceled"}:
                return

    # --- runs ------------------------------------------------------------------------------------------------------

    def _run(self, fate: Fate) -> int:
        """One run and its fate; its exit status, which is what Python makes of it: -9 for SIGKILL."""
        self._runs += 1
        began, offset = time.monotonic(), self.scene.ledger_size()
        self._story.append(f"run {self._runs}: {fate.words}")
        process = self._launch(self._env_of(fate), f"{self._runs}")
        pidfd = os.pidfd_open(process.pid)
        try:
            means = self._befall(fate, process, pidfd, offset)
        finally:
            os.close(pidfd)
        alive = self.scene.alive()
        self._count(fate, means, process.returncode, bool(alive))
        self._story[-1] += f" -> {process.returncode} after {time.monotonic() - began:.2f} s, alive: {alive}"
        self._judge_end(fate, process.returncode)
        self._seen.append(self.scene.main())
        self._look(f"the end of run {self._runs}")
        return process.returncode

    def start(self, name: str, *more: str, direct: bool = False) -> subprocess.Popen[bytes]:
        """Another run, on the same way to the store, or past all that may be in it."""
        return self._launch(self.scene.env | ({"DISPATCH_STORE": self.kept.direct} if direct else {}), name, *more)

    def said(self, name: str) -> str:
        return (self.scene.folder / "runs" / f"{name}.err").read_text()

    def alive(self) -> list[str]:
        return self.scene.alive()

    def _look(self, when: str) -> None:
        """Past the product, when it has ended."""
        rows = self.kept.rows()
        self._looks.append(Look(time.monotonic(), when, rows, self.scene.told()))

    def _launch(self, env: dict[str, str], name: str, *more: str) -> subprocess.Popen[bytes]:
        command = (*self._program, "run", str(self.scene.plan_file), "--graph", GRAPH, "--plain", *more)
        with contextlib.ExitStack() as files:
            out, err = (
                files.enter_context((self.scene.folder / "runs" / f"{name}.{stream}").open("wb"))
                for stream in ("out", "err")
            )
            return subprocess.Popen(
                (sys.executable, "-I", "-S", "-c", HEEDING, *command),
                cwd=self.scene.repo, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip

    def _env_of(self, fate: Fate) -> dict[str, str]:
        env = dict(self.scene.env)
        match fate.means:
            case Means.STORE:
                env["DISPATCH_KILLPOINT"] = f"{fate.place}:{fate.passage}"
            case Means.GIT | Means.MERGE:
                marks = self.scene.folder / "marks" / f"git-{self._runs}"
                env["PATH"] = f"{self.scene.folder / 'bin'}:{env['PATH']}"
                env["CRASH_GIT"] = f"{marks} {fate.passage} {fate.moment} {fate.place}"
            case Means.AGENT:
                env["CRASH_AGENT"] = f"{self._runs} {fate.place} {fate.passage}"
            case Means.UNANSWERED if fate.early:
                assert isinstance(self.kept, PostgresKept), "a file has no answers"
                self.kept.tap.arm(fate.moment, fate.passage)
            case _:
                pass
        return env

    def _befall(self, fate: Fate, process: subprocess.Popen[bytes], pidfd: int, offset: int) -> Means:
        """What its fate is comes over the process; returns when it has ended, by what."""
        means = fate.means
        if not fate.early and (fate.signals or fate.means in (Means.INSTANT, Means.RIVAL, *FAULTS)):
            self.wait_for_agent(process.pid, pidfd, offset)
        if fate.means is Means.RIVAL:
            self._start_rival(process)
        if fate.means in TAKEN_OVER and not ended(pidfd, fate.delay_s):
            self._be_succeeded(process, fate)
        elif fate.means in FAULTS and not ended(pidfd, fate.delay_s):
            self._meet(process, pidfd, fate)
        if fate.means in (Means.INSTANT, Means.RIVAL, Means.BOOT) and not ended(pidfd, fate.delay_s):
            process.send_signal(signal.SIGKILL)
        for number in fate.signals:
            if not ended(pidfd, fate.delay_s):
                process.send_signal(number)
        if fate.place and fate.means not in FAULTS and self._outlives(fate.place, process.pid, pidfd, offset):
            process.send_signal(signal.SIGKILL)
            means = Means.INSTANT
        if not ended(pidfd, LIMIT_S):
            process.kill()
            process.wait()
            raise HungError(f"run {self._runs} ({fate.words}) did not end within {LIMIT_S:.0f} s")
        process.wait()
        return means

    def _outlives(self, place: str, pid: int, pidfd: int, offset: int) -> bool:
        """Whether it comes by the place of its fate too late, if ever."""
        self.wait_for_agent(pid, pidfd, offset)
        return not ended(pidfd, PATIENCE_S if "renewal" not in place else 2 * PATIENCE_S)

    def wait_for_agent(self, pid: int, pidfd: int, offset: int, limit_s: float = LIMIT_S) -> None:
        """Until an agent of this run has begun, or the run has ended."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            ready, _, _ = select.select([self.scene.bell, pidfd], [], [], end - time.monotonic())
            if pidfd in ready:
                return
            with contextlib.suppress(BlockingIOError):
                os.read(self.scene.bell, 4096)
            if any(line["kind"] == "start" and line["parent"] == pid for line in self.scene.ledger(offset)):
                return

    def _start_rival(self, process: subprocess.Popen[bytes]) -> None:
        """A second run of the same graph, which must go away with one clear line while the first one goes on."""
        name = f"{self._runs}-rival"
        rival = self.start(name)
        code = rival.wait(LIMIT_S)
        if process.poll() is not None:
            return  # the first one was through before the second one looked
        self.tally.rivals += 1
        said = self.said(name)
        if code != 2 or said.count("\n") != 1 or not said.startswith("error: graph "):
            self._problems.append(f"a second run beside run {self._runs} ended with {code} and said {said!r}")

    def _be_succeeded(self, process: subprocess.Popen[bytes], fate: Fate) -> None:
        """Another run takes the graph over, which this one must notice when it goes on."""
        succession = Succession(self, self.kept, self._runs, process)
        taken = succession.happen(fate, self.scene.ledger_size())
        self._problems += succession.problems
        if taken is None:
            process.kill()
        else:
            self.tally.struck[fate.means] += 1
            self.tally.refused += taken.refused
            self._takeovers.append(taken)

    def _meet(self, process: subprocess.Popen[bytes], pidfd: int, fate: Fate) -> None:
        """A fault of the server or of the way there, and the kill; between them, if so drawn, it must go on."""
        assert isinstance(self.kept, PostgresKept), "a file has no server"
        struck = befall(self.kept, fate, pidfd, process.kill)
        self.tally.struck[fate.means] += struck
        if fate.means is Means.UNANSWERED:
            self.tally.cuts[fate.moment] += struck
        if struck and fate.awaits:
            took_s = resumed(self.kept, pidfd)
            if took_s is None:
                self._problems.append(f"run {self._runs} ({fate.words}) did not use its store again")
            else:
                self.tally.resumed_s.append(took_s)
        if not ended(pidfd, fate.then_s):
            process.kill()

    def _count(self, fate: Fate, means: Means, code: int, at_work: bool) -> None:
        tally = self.tally
        tally.restarts += tally.kills.total() > 0
        met = means is fate.means and code not in (0, 1)
        if code == -signal.SIGKILL or (met and means in TAKEN_OVER):
            tally.kills[means] += 1
            tally.landed[means] += at_work
            if met and fate.place:
                tally.places[f"{fate.means.name.lower()} {fate.place}"] += 1
        elif met:
            tally.asked[means] += 1
        if not met and fate is not FAIR:
            tally.missed[fate.means] += 1

    def _judge_end(self, fate: Fate, code: int) -> None:
        """A run ends by SIGKILL, as it was asked to, or through; in the latter cases nothing of it is left.

        A signal may come when all is done and the interpreter is about to exit: that then ends it. Of two that come
        together either may be the first. One whose server is out of reach when all is done may say that, and what it
        could not write.
        """
        if fate.means.kills and (code == -signal.SIGKILL or (fate.means in TAKEN_OVER and code not in (0, 1))):
            return
        allowed = {0, 1} | {128 + number for number in fate.signals} | {-number for number in fate.signals}
        said = self.said(str(self._runs))
        excused = fate.means in FAULTS and code == 2 and OUT_OF_REACH.fullmatch(said)
        if (code not in allowed or said) and not excused:
            self._problems.append(f"run {self._runs} ({fate.words}) ended with {code} and said {said[-2000:]!r}")
        if excused and not (self.scene.folder / "runs" / f"{self._runs}.out").read_text():
            return  # it never began, and took nothing up that an earlier one has left
        self._problems += [f"after run {self._runs} ({fate.words}): {what}" for what in self.scene.left()]

    # --- commands --------------------------------------------------------------------------------------------------

    def _command(self) -> None:
        """One that changes something, or takes back what an earlier one has changed."""
        canceled = {each.slice for each in self._commands if each.verb == "cancel"}
        leaves = [name for name in self.plan.leaves() if name not in canceled]
        choices = ["hold", "hold", "release", "retry"] + ["cancel"] * (len(canceled) < 2)
        match self._rng.choice(choices):
            case "release" if self._held:
                self._tell("release", self._rng.choice(sorted(self._held)))
            case "retry":
                self._wish_luck()
            case "cancel" if leaves:
                self._tell("cancel", self._rng.choice(leaves))
            case _:
                self._tell("hold", self._rng.choice(self._waiting(canceled) or list(self.plan.jobs)))

    def _release(self) -> None:
        for name in sorted(self._held):
            self._tell("release", name)

    def _waiting(self, canceled: set[str]) -> list[str]:
        """The slices that the next run could start."""
        merged = set(self.scene.merges().values())
        rest = (job for job in self.plan.jobs.values() if job.id not in merged | canceled)
        return [job.id for job in rest if merged.issuperset(job.needs)]

    def _wish_luck(self) -> None:
        """The slices that can't but fail may succeed from now on, and those that have failed are tried again."""
        for job in self.plan.jobs.values():
            if job.flavour == "doomed":
                (self.scene.folder / "marks" / f"luck-{job.id}").touch()
                if self._stored().get(job.id) == "failed":
                    self._tell("retry", job.id)

    def _tell(self, verb: str, name: str) -> None:
        """A command. Sometimes it is killed at its commit, or cut off from its store around one, and then given again,
        as anybody would."""
        chance = self._rng.random()
        moment = self._rng.choice(("before", "after"))
        if chance < 0.25:
            store = "sqlite" if self.kept.kind == "sqlite" else "postgres"
            self._send(verb, name, DISPATCH_KILLPOINT=f"{store}.{moment}-write-commit:1")
        elif chance < 0.6 and isinstance(self.kept, PostgresKept):
            self.kept.tap.arm(moment, self._rng.randint(1, 6))
            self._send(verb, name)
            self.tally.cuts[f"{moment}, a command's"] += self.kept.tap.disarm()
        status = self._send(verb, name)
        if status == 0 and verb == "hold":
            self._held.add(name)
        if verb == "release":
            self._held.discard(name)

    def _send(self, verb: str, name: str, **env: str) -> int | None:
        """Its exit status, None if it was killed, or lost its store: nobody knows. A finished slice and one that has
        not failed are refused: 2."""
        began = time.monotonic()
        done = self._ask(verb, name, "--graph", GRAPH, **env)
        unknown = done.returncode == -signal.SIGKILL or (done.returncode == 2 and "the connection to" in done.stderr)
        status = None if unknown else done.returncode
        self.tally.commands[f"{verb} {'killed' if status is None else 'refused' if status else 'done'}"] += 1
        self._story.append(f"{verb} {name} -> {done.returncode} {(done.stdout + done.stderr).strip()}")
        if status not in (None, 0, 2) or done.stderr.count("\n") > 1:
            self._problems.append(f"{verb} {name} ended with {status} and said {done.stderr[-2000:]!r}")
        self._commands.append(Command(verb, name, began, time.monotonic(), status, self.scene.main()))
        self._look(f"{verb} {name}")
        return status

    def _stored(self) -> dict[str, str]:
        """By slice, the state in the store, asked by the command line."""
        done = self._ask("list", "--graph", GRAPH, "--json")
        if done.returncode:
            return {}
        return {row["id"]: row["state"] for row in json.loads(done.stdout)["slices"]}

    def _replay(self) -> None:
        """The log of decisions, played again by the program itself: nothing in it is lost, doubled or out of order."""
        done = self._ask("replay", "--graph", GRAPH)
        if done.returncode:
            self._problems.append(
                f"replay ended with {done.returncode} and said {(done.stdout + done.stderr)[-2000:]!r}"
            )

    def _ask(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, *self._program, *words),
            cwd=self.scene.repo, env=self.scene.env | env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
