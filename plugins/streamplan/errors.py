"""Errors that name a subject, what was expected, what was observed and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class StreamplanError(Exception):
    """An error that a person can act on.

    ``str()`` is ``<subject>: expected <expected>, observed <observed>. <remedy>``.

    Args:
        subject: What the error is about.
        expected: What should be.
        observed: What is.
        remedy: What to do next, as sentences.
    """

    def __init__(self, subject: str, *, expected: str = "", observed: str = "", remedy: str = "") -> None:
        self.subject = subject
        self.expected = expected
        self.observed = observed
        self.remedy = remedy
        parts = [f"expected {expected}"] if expected else []
        parts += [f"observed {observed}"] if observed else []
        text = f"{subject}: {', '.join(parts)}" if parts else subject
        super().__init__(f"{text}. {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not pickle by themselves; Spark carries ours to the driver.
        return (_restore, (type(self), self.subject, self.expected, self.observed, self.remedy))


def _restore(
    error_type: type[StreamplanError], subject: str, expected: str, observed: str, remedy: str
) -> StreamplanError:
    return error_type(subject, expected=expected, observed=observed, remedy=remedy)


class CouldNotLook(StreamplanError):
    """A check could not decide, for example because there is nothing to compare. It neither passed nor failed."""


class BrokersUnavailable(StreamplanError):
    """Kafka gave no usable answer within a deadline: no broker accepts connections, or the brokers answer an error."""


class SchemaRegistryUnavailable(StreamplanError):
    """A Schema Registry gave no usable answer. This is never the fault of a record, and a later try may succeed."""


class Refused(StreamplanError):
    """A request that stays wrong however often it is tried (exit status 78; Airflow does not retry)."""


class WrongUsage(Refused):
    """The words of a command line are wrong (exit status 2)."""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a question that names the nearest of some words; empty where none is near."""
    words = list(words)
    nearest = get_close_matches(word, words, n=1) or [each for each in words if each.lower() == word.lower()]
    return f"Did you mean {nearest[0]}?" if nearest else ""
