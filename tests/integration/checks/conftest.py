"""The real Kafka Streams, for tests that check its applications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.streams_library import java_with_callbacks


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks() as jvm:
        yield jvm
