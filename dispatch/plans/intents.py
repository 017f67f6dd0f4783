"""The intents of a plan: those that slices declare, and its own."""

from __future__ import annotations

from collections.abc import Sequence

from dispatch.errors import InvalidIntentError
from dispatch.intent import Intent, Urgency, check_intent
from dispatch.plans import fields
from dispatch.plans.problems import Spelling, shown
from dispatch.plans.section import Section
from dispatch.plans.slices import Draft

INTENT_KEYS = ("statement", "scope", "terms", "urgency", "deadline", "supersedes")


def read_intents(top: Section, drafts: Sequence[Draft]) -> tuple[Intent, ...]:
    """First those of slices, then the plan's own, each in the order of the file."""
    declared = [draft.intent for draft in drafts if draft.intent]
    taken = {intent.id: intent.scope for intent in declared}
    slice_ids = frozenset(draft.slice.id for draft in drafts)
    spelling = Spelling(tuple(slice_ids))
    for intent_id, section in top.sections_by_id("intents"):
        intent = _read_intent(intent_id, section)
        if intent_id in taken:
            section.refuse("id", f"{shown(intent_id)} is the intent that slice {shown(taken[intent_id])} declares")
        if section.holds("scope") and intent.scope not in slice_ids:
            section.refuse("scope", f"no slice {shown(intent.scope)}{spelling.hint(intent.scope)}")
        declared.append(intent)
    return tuple(declared)


def _read_intent(intent_id: str, section: Section) -> Intent:
    section.check_keys(("id", *INTENT_KEYS))
    intent = Intent(
        id=intent_id,
        statement=section.take("statement", fields.text, intent_id),
        scope=section.take("scope", fields.identifier, ""),
        urgency=section.take("urgency", fields.urgency, Urgency.NORMAL),
        deadline=section.take("deadline", fields.instant, None),
        supersedes=section.take("supersedes", fields.identifier, ""),
        terms=section.take("terms", fields.texts, ()),
    )
    try:
        check_intent(intent)
    except InvalidIntentError as refusal:
        section.refuse(refusal.field, refusal.problem)
    if not section.gives("scope") and not any(map(str.strip, intent.terms)) and "terms" not in section.refused:
        section.refuse("terms", "is about no slice; give it a scope or terms")
    if section.holds("supersedes") and intent.supersedes == intent_id:
        section.refuse("supersedes", "names the intent itself")
    return intent
