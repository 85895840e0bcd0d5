"""Bodies of the service's responses, as it writes them and its client reads them."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from knowledge.exchange.admission import AdmissionResult


class QuarantineEntry(BaseModel):
    """A quarantined observation."""

    id: str
    reason: str


class DeliveryReceipt(BaseModel):
    """Result of a delivery."""

    added: int = Field(ge=0, lt=2**63, description="New observations that were stored.")
    known: int = Field(ge=0, lt=2**63, description="Observations that were already stored; a delivery can be repeated.")
    quarantined: list[QuarantineEntry] = Field(description="Implausible observations, in quarantine.")

    @classmethod
    def of(cls, result: AdmissionResult) -> Self:
        """Return what a client learns about an admission."""
        entries = [QuarantineEntry(id=q.observation.identity, reason=q.reason) for q in result.quarantined]
        return cls(added=result.added, known=result.known, quarantined=entries)

    def __add__(self, other: Self) -> Self:
        """Return the result of both deliveries together."""
        return type(self)(
            added=self.added + other.added,
            known=self.known + other.known,
            quarantined=self.quarantined + other.quarantined,
        )


class BlockEntry(BaseModel):
    """Summary of a block."""

    name: str
    observations: int = Field(ge=0, lt=2**63)
    digest: str = Field(description="Equal if and only if the observations are.")
    source: str
