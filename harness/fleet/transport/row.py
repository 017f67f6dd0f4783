"""Deliveries as the rows of a database: what is written of an envelope, and what is read, whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import InvalidTurnError
from harness.fleet.ports import Delivery, Receipt

COLUMNS = tuple(field.name for field in attrs.fields(AgentTurnEnvelope))
values_of = attrs.astuple


def delivery_of(receipt: Receipt, columns: Sequence[Any]) -> Delivery:
    """`columns` in the order of `COLUMNS`. Of a row that is no envelope, the bytes are its columns as JSON."""
    fields = dict(zip(COLUMNS, columns, strict=True))
    try:
        return Delivery(receipt, AgentTurnEnvelope(**fields))
    except InvalidTurnError as problem:
        raw = json.dumps(fields, default=repr, sort_keys=True).encode()
        return Delivery(receipt, None, raw, str(problem))
