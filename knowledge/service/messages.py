"""Bodies of the service's responses, as it writes them and its client reads them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class QuarantineEntry(BaseModel):
    """A quarantined observation."""

    id: str
    reason: str


class DeliveryReceipt(BaseModel):
    """Result of a delivery."""

    added: int = Field(ge=0, lt=2**63, description="New observations that were stored.")
    known: int = Field(ge=0, lt=2**63, description="Observations that were already stored; a delivery can be repeated.")
    quarantined: list[QuarantineEntry] = Field(description="Implausible observations, in quarantine.")


class BlockEntry(BaseModel):
    """Summary of a block."""

    name: str
    observations: int = Field(ge=0, lt=2**63)
    digest: str = Field(description="Equal if and only if the observations are.")
    source: str
