"""Which errors a store raises for what its database refuses."""

from __future__ import annotations

from dispatch.errors import DispatchError, StoreError, StoreUnavailableError
from harness.database.terms import Terms

TERMS: Terms[DispatchError] = Terms(StoreError, StoreUnavailableError)
