"""The ASGI app: jobs and topology, for whoever may ask, and nothing for what makes no sense."""

from __future__ import annotations

import json

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from harness.fleet.errors import InvalidTurnError
from harness.fleet.http import BODY_LIMIT, fleet_app
from harness.fleet.jobs import status
from tests.unit.asgi import Answer, Client
from tests.unit.fleet_desk import WORKER, FleetDesk

JOBS, TOPOLOGY = "/api/graph/jobs", "/api/fleet/topology"


@pytest.fixture
def desk() -> FleetDesk:
    desk = FleetDesk()
    for number in range(5):
        desk.submit(f"j{number}", tenant="t" if number % 2 else "u", kind=f"k{number % 2}")
    return desk


@pytest.fixture
def client(desk: FleetDesk) -> Client:
    return Client(fleet_app(desk.authority, desk.transport, "memory"))


def error(answer: Answer) -> tuple[int, str]:
    found = answer.json()
    assert set(found) == {"error"}
    assert set(found["error"]) == {"code", "message"}
    assert found["error"]["message"]
    return answer.status_code, found["error"]["code"]


def test_a_job(desk: FleetDesk, client: Client) -> None:
    answer = client.get(JOBS, params={"job_id": "j1"})
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(status(desk.authority, "j1")))


def test_a_list_and_what_follows(client: Client) -> None:
    first = client.get(JOBS, params={"tenant": "u", "limit": "2", "state": "ready,running"}).json()
    assert ([job["job_id"] for job in first["jobs"]], first["next"]) == (["j0", "j2"], "j2")
    rest = client.get(JOBS, params={"tenant": "u", "limit": "2", "after": first["next"]}).json()
    assert ([job["job_id"] for job in rest["jobs"]], rest["next"]) == (["j4"], None)
    assert len(client.get(JOBS, params={"kind": "k1"}).json()["jobs"]) == 2
    assert len(client.get(JOBS, params={"session_id": "s-j3"}).json()["jobs"]) == 1


def test_a_cancellation(desk: FleetDesk, client: Client) -> None:
    desk.begin("j1")
    asked = client.post(JOBS, json={"action": "cancel", "job_id": "j1", "reason": "not wanted"}).json()
    assert (asked["state"], asked["cancel_requested"], asked["cause"]) == ("running", True, "not wanted")
    assert client.post(JOBS, json={"action": "cancel", "job_id": "j0", "tenant": "u"}).json()["state"] == "cancelled"
    assert client.post(JOBS, json={"action": "status", "job_id": "j0"}).json()["state"] == "cancelled"
    desk.finish("j3")
    assert error(client.post(JOBS, json={"action": "cancel", "job_id": "j3"})) == (409, "wrong_state")


def test_the_fleet_as_it_stands(desk: FleetDesk, client: Client) -> None:
    desk.authority.beat(WORKER)
    desk.begin("j1", ttl_s=5.0)
    desk.now += 50.0
    found = client.get(TOPOLOGY).json()
    assert found == {
        "at": 1050.0,
        "transport": "memory",
        "depth": 5,
        "items": {"submitted": 0, "ready": 4, "leased": 0, "running": 1, "succeeded": 0, "failed": 0, "cancelled": 0,
                  "dead_letter": 0},
        "due": {"k0": 3, "k1": 1},
        "leases": {"overdue": 1, "oldest_overdue_s": 45.0, "expired": 0},
        "workers": [{"token": "5eed", "kinds": ["k"], "slots": 4, "busy": 1, "queue": None, "alive": True,
                     "started_at": 1000.0,
                     "seen_at": 1000.0}],
    }  # fmt: skip
    desk.now += 100.0
    desk.transport.is_away = True
    later = client.get(TOPOLOGY).json()
    assert (later["depth"], later["workers"][0]["alive"]) == (None, False)


@pytest.mark.parametrize(
    "query",
    [
        "job_id=", "job_id=" + "x" * 600, "job_id=a&job_id=b", "job_id=a&limit=3", "action=cancel&job_id=a", "limit=0",
        "limit=1001", "limit=-1", "limit=1e3", "limit=%D9%A1", "limit=9999999999999999999", "state=merry", "after=%00",
        "tenant=", "tenant=%1b%5b", "unknown=1", "kind=" + "k" * 5000,
    ],
)  # fmt: skip
def test_a_query_that_makes_no_sense(client: Client, query: str) -> None:
    assert error(client.get(f"{JOBS}?{query}")) == (400, "invalid")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "invalid")),
        (b"{", (400, "invalid")),
        (b"[]", (400, "invalid")),
        (b"[" * 10_000, (400, "invalid")),
        (b'"cancel"', (400, "invalid")),
        (b"\xff\xfe", (400, "invalid")),
        (b'{"action": "cancel"}', (400, "invalid")),
        (b'{"action": "cancel", "job_id": 7}', (400, "invalid")),
        (b'{"action": "cancel", "job_id": null}', (400, "invalid")),
        (b'{"action": "requeue", "job_id": "j0"}', (400, "invalid")),
        (b'{"action": "list"}', (400, "invalid")),
        (b'{"action": "cancel", "job_id": "j0", "force": "yes"}', (400, "invalid")),
        (b'{"action": "cancel", "job_id": "nobody"}', (404, "not_found")),
        (b'{"action": "cancel", "job_id": "j0", "tenant": "t"}', (404, "not_found")),
        (b'{"job_id": "' + b"x" * BODY_LIMIT + b'"}', (413, "too_large")),
    ],
)
def test_a_body_that_makes_no_sense(desk: FleetDesk, client: Client, body: bytes, expected: tuple[int, str]) -> None:
    answer = client.post(JOBS, content=body, headers={"content-type": "application/json"})
    assert error(answer) == expected
    assert {item.state.value for item in desk.authority.items.values()} == {"ready"}


def test_a_form_on_a_strangers_page_can_change_nothing(desk: FleetDesk, client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post(JOBS, content=b'{"action":"cancel","job_id":"j0"}', headers={"content-type": kind})
        assert error(answer) == (415, "not_json")
    assert {item.state.value for item in desk.authority.items.values()} == {"ready"}


def test_other_methods_and_places(client: Client) -> None:
    assert error(client.request("DELETE", JOBS, b"", {})) == (405, "method_not_allowed")
    assert error(client.post(TOPOLOGY)) == (405, "method_not_allowed")
    assert error(client.get("/api/secrets")) == (404, "not_found")


def test_a_token_is_asked_for_at_every_door(desk: FleetDesk) -> None:
    app = fleet_app(desk.authority, desk.transport, "memory", token="open sesame")
    client = Client(app)
    for headers in (
        {},
        {"authorization": "open sesame"},
        {"authorization": "Basic open sesame"},
        {"authorization": "Bearer open sesam"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer \xe9"},
    ):
        for answer in (
            client.get(JOBS, headers=headers),
            client.get(TOPOLOGY, headers=headers),
            client.post(JOBS, json={"action": "cancel", "job_id": "j0"}, headers=headers),
        ):
            assert error(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get(TOPOLOGY, headers={"authorization": "bearer open sesame"}).status_code == 200
    assert "sesame" not in repr(app.routes)
    with pytest.raises(InvalidTurnError, match="token"):
        fleet_app(desk.authority, desk.transport, "memory", token="")


def test_an_app_of_one_tenant_knows_no_other(desk: FleetDesk) -> None:
    client = Client(fleet_app(desk.authority, desk.transport, "memory", tenant="t"))
    assert [job["job_id"] for job in client.get(JOBS).json()["jobs"]] == ["j1", "j3"]
    assert client.get(JOBS, params={"job_id": "j1"}).status_code == 200
    assert error(client.get(JOBS, params={"job_id": "j0"})) == (404, "not_found")
    assert error(client.get(JOBS, params={"tenant": "u"})) == (404, "not_found")
    assert error(client.post(JOBS, json={"action": "cancel", "job_id": "j0"})) == (404, "not_found")
    assert error(client.post(JOBS, json={"action": "cancel", "job_id": "j0", "tenant": "u"})) == (404, "not_found")
    assert error(client.get(TOPOLOGY)) == (404, "not_found")


def test_a_database_out_of_reach_is_named_by_nobody(desk: FleetDesk, client: Client) -> None:
    desk.authority.is_away = True
    for answer in (client.get(JOBS, params={"job_id": "j1"}), client.get(TOPOLOGY)):
        assert error(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        assert "sekrit" not in answer.text


def test_a_defect_is_answered_without_a_word_of_it(
    desk: FleetDesk, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("in /home/ada")

    monkeypatch.setattr(desk.authority, "tally", fail)
    answer = client.get(TOPOLOGY)
    assert error(answer) == (500, "broken")
    assert "ada" not in answer.text
    assert isinstance(answer.raised, RuntimeError)  # for the surrounding server's log


def test_it_can_be_mounted_in_another_app(desk: FleetDesk) -> None:
    outer = Starlette(routes=[Mount("/fleet", fleet_app(desk.authority, desk.transport, "memory"))])
    client = Client(outer)
    assert client.get(f"/fleet{JOBS}", params={"job_id": "j1"}).json()["job_id"] == "j1"
    assert error(client.get("/fleet/nothing")) == (404, "not_found")
