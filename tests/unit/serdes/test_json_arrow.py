"""The Arrow deserializer agrees, record for record, with the reference on the standard library."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from streamplan.serdes.field_types import DecimalType, parse_type
from streamplan.serdes.internal import repartition_serde
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable, key_of

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})
OTHER = Json("Id string, paid boolean, total bigint")
EVERY = Json("Id string, ProductType int, x double, v bigint, paid boolean")

VALUES: list[bytes | None] = [
    None,
    b"",
    b" ",
    b"x",
    b"null",
    b"5",
    b"[]",
    b'[{"ProductType":1}]',
    b"{}",
    b'{"ProductType":0}',
    b'{"ProductType":null}',
    b'{"ProductType":"1"}',
    b'{"ProductType":1.0}',
    b'{"ProductType":1e0}',
    b'{"ProductType":7}',
    b'{"ProductType":-0}',
    b'{"ProductType":01}',
    b'{"ProductType":true}',
    b'{"ProductType":1}{"ProductType":0}',
    b'{"ProductType":1} x',
    b'{"ProductType":1,"ProductType":0}',
    b'{"Product\\u0054ype":1}',
    b'{"producttype":1}',
    b'{"ProductType":99999999999}',
    b'{"ProductType":1,"Id":"\xff"}',
    b"{'ProductType':1}",
    b'{"ProductType":NaN}',
    b'{"ProductType":1,"x":NaN}',
    b'{"ProductType":1,"x":-Infinity}',
    b'{"ProductType":1,"x":1e999}',
    b'{\n "ProductType" : 1\n}\n',
    b'\xef\xbb\xbf{"ProductType":1}',
    b'{"ProductType":1,"Id":"a\nb"}',
    b'{"ProductType":1,"Id":"\\ud800"}',
    b'{"x":1}',
    b'{"x":-0.0,"v":9223372036854775807,"paid":false}',
    b'{"x":1e400}',
    b'{"x":12345678901234567890123}',
    b'{"x":0.1,"Id":""}',
    b'{"x":"1"}',
    b'{"ProductType":1,"Id":5}',
    b'{"ProductType":1,}',
    b'{"ProductType":1//c\n}',
    b'{"ProductType":',
    b"1}",
    b'{"a":{"ProductType":1}}',
    b'{"ProductType":1,"x":[1,{"ProductType":0}]}',
    b'{"ProductType":1,"v":{"ProductType":0}}',
    b'{"ProductType":1}\x00',
    b'\xc2\xa0{"ProductType":1}',
    b'{"ProductType":1,"x":"' + b"y" * 1_000_000 + b'"}',
    b'{"ProductType":1,"x":"' + b"y" * 1_048_000 + b'"}',
    b'{"ProductType":1,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"ProductType":1,"x":' + b"9" * 5000 + b"}",
]


def reference(serde: Json, field: str, value: bytes | None) -> tuple[bytes | None, str | None]:
    try:
        return key_of(serde, field, value), None
    except Undecodable as rejection:
        return None, str(rejection)


def deserialized(serde: Json, field: str, values: list[bytes | None]) -> list[tuple[bytes | None, str | None]]:
    found = serde.key_column(field, pa.array(values, pa.binary()))
    return [(key, found.rejected.get(row)) for row, key in enumerate(found.keys.to_pylist())]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_each_value_is_read_as_the_reference_reads_it_alone_and_between_others(value: bytes | None) -> None:
    expected = reference(ORDER, "ProductType", value)
    assert deserialized(ORDER, "ProductType", [value]) == [expected]
    assert deserialized(ORDER, "ProductType", [b'{"ProductType":0}', value, b'{"ProductType":1}']) == [
        (b"0", None),
        expected,
        (b"1", None),
    ]


def test_known_values_have_known_keys() -> None:
    values: list[bytes | None] = [b'{"Id":"order_17","ProductType":1}', b"not json", b'{"ProductType":7}', None]
    assert deserialized(ORDER, "ProductType", values) == [
        (b"1", None),
        (None, "the value is not JSON"),
        (None, "ProductType is not one of 0, 1"),
        (None, "the value is null"),
    ]


def test_documents_cannot_shift_their_neighbours() -> None:
    """Two documents in one value and none in another add up to the right number of documents."""
    values: list[bytes | None] = [b'{"ProductType":0}{"ProductType":1}', b"", b'{"ProductType":', b"1}"]
    assert [key for key, _ in deserialized(ORDER, "ProductType", values)] == [None] * 4


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("Id", b'{"Id":"\\u00e9\\ud83d\\ude00"}', "é😀".encode()),
        ("Id", b'{"Id":"2020-01-01T00:00:00Z"}', b"2020-01-01T00:00:00Z"),
        ("Id", b'{"Id":""}', b""),
        ("Id", b'{"Id":"\\ud800"}', None),
        ("paid", b'{"paid":true}', b"true"),
        ("paid", b'{"paid":1}', None),
        ("total", b'{"total":9223372036854775807}', b"9223372036854775807"),
        ("total", b'{"total":9223372036854775808}', None),
    ],
)
def test_keys_of_every_type(field: str, value: bytes, key: bytes | None) -> None:
    assert deserialized(OTHER, field, [value])[0][0] == key == reference(OTHER, field, value)[0]


def test_mutated_documents_are_read_as_the_reference_reads_them() -> None:
    chosen = random.Random(20261121)
    short = [value for value in VALUES if value and len(value) < 200]
    for _ in range(3000):
        value = bytearray(chosen.choice(short))
        for _ in range(chosen.randint(1, 3)):
            at = chosen.randrange(len(value) + 1)
            value[at : at + chosen.randint(0, 1)] = bytes([chosen.choice(b'{}[]",:\\01eE+-. \n\t\x00\xff tfnulrs')])
        found = deserialized(ORDER, "ProductType", [bytes(value)])
        assert found == [reference(ORDER, "ProductType", bytes(value))], bytes(value)


def rows(serde: Json, values: list[bytes | None]) -> list[tuple[object, str | None]]:
    found = serde.decode_column(pa.array(values, pa.binary()))
    return [(row, found.rejected.get(number)) for number, row in enumerate(found.fields.to_pylist())]


def row(serde: Json, value: bytes | None) -> tuple[object, str | None]:
    try:
        return serde.decode(value), None
    except Undecodable as rejection:
        return None, str(rejection)


@pytest.mark.parametrize("serde", [ORDER, OTHER, EVERY], ids=["order", "other", "every"])
def test_rows_are_read_as_the_reference_reads_them(serde: Json) -> None:
    for value in VALUES:
        assert rows(serde, [value]) == [row(serde, value)]
        good = b'{"ProductType":0}'
        assert rows(serde, [good, value, good]) == [row(serde, good), row(serde, value), row(serde, good)]


def test_mutated_rows_are_read_as_the_reference_reads_them() -> None:
    chosen = random.Random(20261122)
    short = [value for value in VALUES if value and len(value) < 200]
    for _ in range(3000):
        value = bytearray(chosen.choice(short))
        for _ in range(chosen.randint(1, 3)):
            at = chosen.randrange(len(value) + 1)
            value[at : at + chosen.randint(0, 1)] = bytes([chosen.choice(b'{}[]",:\\01eE+-. \n\t\x00\xff tfnulrsxv')])
        assert rows(EVERY, [bytes(value)]) == [row(EVERY, bytes(value))], bytes(value)


def test_each_row_has_its_reason() -> None:
    column = ORDER.decode_column([b'{"ProductType":0}', b"x", None])
    assert column.reasons().to_pylist() == [None, "the value is not JSON", "the value is null"]
    assert ORDER.decode_column([b'{"ProductType":0}'] * 2).reasons().to_pylist() == [None, None]


NESTED = Json(
    "at timestamp, day date, price decimal(6,2), whole decimal(38,0), wide decimal(38,10), x double,"
    " customer struct<name: string, since: timestamp, address: struct<city: string, zip: int>>,"
    " lines array<struct<sku: string, price: decimal(6,2), weight: double, seen: array<timestamp>>>,"
    " tags array<string>, days array<date>, matrix array<array<double>>"
)
WITH_MAPS = Json("at timestamp, rates map<string, decimal(6,2)>, by_day map<string, array<struct<day: date>>>")

FORMS = [
    *('"2026-11-24T20:38:34Z"', '"2026-11-24T20:38:34.1+01:00"', '"2026-11-24T20:38:34.123456-0530"', "1764016714123"),
    *('"2026-11-24T20:38:34.1234567Z"', '"1969-12-31T23:59:59.123456789Z"', "-1", "0", "null", "1.5", '""', "true"),
    *('"0001-01-01T00:00:00Z"', '"0001-01-01T00:00:00+01:00"', '"0000-12-31T23:30:00-01:00"', "-62135596800000"),
    *('"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:30:00-01:00"', "-62135596800001", "253402300799999"),
    *("253402300800000", "9223372036854775807", "99999999999999999999", '"2026-11-24T20:38:34"', '"2026-11-24"'),
    *('"2026-11-24 20:38:34Z"', '"2026-11-24T20:38Z"', '"2026-11-24T20:38:34+01"', '"2026-02-30T20:38:34Z"'),
    *('"2026-11-24T24:00:00Z"', '"2026-11-24T20:38:60Z"', '"2026-11-24T20:38:34+24:00"', '"2026-11-24T20:38:34z"'),
    *('"2026-11-24T20:38:34+23:59"', '"2026-11-24T20:38:34Z\\n"', '"2026-02-29"', '"0000-01-01"', '"0001-01-01"'),
    *('"9999-12-31"', '"2026-1-1"', '"-2026-01-01"', '"2026-11-24\\n"', '"\\u0032026-11-24"', "20000"),
    *("1.25", "1.2500", "1.255", "-0.0", "0e5", "12e2", "12E+2", "125e-2", "1e-3", "9999.99", "10000", "-9999.99"),
    *('"1.25"', '"+1.25"', '".5"', '"5."', '"1e2"', '" 1"', '"1_0"', '"NaN"', '"007.5"', '"."', '"-"', '"1e"'),
    *("1e999999999999", '"1e999999999999"', '"0e999999999999"', "1e400", "123456789012345678901234567890123456789"),
    *("99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "[]", "{}", "[null]"),
    *('{"name":"Ann","address":{"city":"Rome"}}', '{"address":{}}', '{"address":null}', '{"address":[]}'),
    *('{"address":{"city":5}}', '{"name":"a","name":"b"}', '{"since":1764016714123}', '{"since":"x"}'),
    *(
        '[{"sku":"a","price":1.5},null,{}]',
        '[{"price":"1.5","weight":1e400}]',
        '[{"seen":["2026-11-24T20:38:34Z",null]}]',
    ),
    *(
        '[{"seen":[1,2]},{"seen":[]},{"seen":null}]',
        '[{"seen":[1,"2026-11-24T20:38:34Z"]}]',
        '[{"sku":1}]',
        '["a","b"]',
    ),
    *('["2026-11-24","2026-11-25",null]', '["2026-11-24","x"]', "[[1.5],[],null,[null,2]]", "[[1e400]]", "[[NaN]]"),
    *('{"EUR":1.25,"USD":null}', '{"a":1,"a":2}', '{"EUR":1.255}', '{"\\ud800":1}', '{"a":[{"day":"2026-11-24"}]}'),
    *('{"a":[{"day":"2026-02-30"},null]}', '{"":[]}', '{"a":null}', '{"a":{}}'),
]
"""Contents of fields, some of which are right for some types."""


def documents(serde: Json) -> list[bytes]:
    """Each field with each content."""
    return [f'{{"{name}":{content}}}'.encode() for name in serde.fields for content in FORMS]


@pytest.mark.parametrize("serde", [NESTED, WITH_MAPS], ids=["nested", "with maps"])
def test_every_form_of_every_type_is_read_as_the_reference_reads_it(serde: Json) -> None:
    good = b'{"at":"2026-11-24T20:38:34.5Z"}'
    for value in documents(serde):
        found = column_rows(serde, [good, value, None, good])
        assert found == [row(serde, good), row(serde, value), row(serde, None), row(serde, good)], value


def test_a_form_that_one_record_has_alone_does_not_change_the_others() -> None:
    values: list[bytes | None] = [
        b'{"at":%s}' % at for at in (b'"2026-11-24T20:38:34Z"', b"1764016714123", b"x", b"null")
    ]
    assert column_rows(NESTED, values) == [row(NESTED, value) for value in values]


def test_mutated_nested_documents_are_read_as_the_reference_reads_them() -> None:
    chosen = random.Random(20261124)
    names = list(NESTED.fields)
    accepted = 0
    for _ in range(4000):
        parts = [f'"{name}":{chosen.choice(FORMS)}' for name in chosen.sample(names, chosen.randint(1, 2))]
        value = bytearray("{" + ",".join(parts) + "}", "ascii")
        for _ in range(chosen.randint(0, 2)):
            at = chosen.randrange(len(value) + 1)
            value[at : at + chosen.randint(0, 1)] = bytes([chosen.choice(b'{}[]",:TZ+-.0123459eE \n tfnulrs')])
        expected = row(NESTED, bytes(value))
        accepted += expected[1] is None
        assert column_rows(NESTED, [bytes(value)]) == [expected], bytes(value)
    assert accepted > 200


def test_right_documents_of_every_type_are_read_by_arrow_and_not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparisons above compare the reference with itself."""
    number = b'{"at":1764016714123,"customer":{"since":"2026-11-24T20:38:34Z"},"days":["2026-11-24"],"price":1.25}'
    text = b'{"at":"2026-11-24T20:38:34.1234567+01:00","lines":[{"price":"1.5","seen":[1764016714123]}]}'
    expected = [[row(NESTED, value)] * 2 for value in (number, text)]

    def no_reference(self: Json, data: bytes | None) -> dict[str, object]:
        raise AssertionError(data)

    monkeypatch.setattr(Json, "decode", no_reference)
    assert [column_rows(NESTED, [value, value]) for value in (number, text)] == expected


def test_of_a_large_batch_only_the_values_around_a_bad_one_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[bytes | None] = [b'{"at":%d,"x":%d}' % (1764016714000 + n, n) for n in range(3001)]
    values[17], values[700], values[701], values[3000] = b"x", None, b'{"x":1e400}', b'{"x":"1"}'
    expected = [row(NESTED, value) for value in values]
    decode, read = Json.decode, list[bytes | None]()

    def counting(self: Json, data: bytes | None) -> dict[str, object]:
        read.append(data)
        return decode(self, data)

    monkeypatch.setattr(Json, "decode", counting)
    assert column_rows(NESTED, values) == expected
    assert len(read) == 500 + 3  # around the bad one; the null, 1e400, and the last


def column_rows(serde: Json, values: list[bytes | None]) -> list[tuple[object, str | None]]:
    found = serde.decode_column(pa.array(values, pa.binary()))
    decoded = found.fields.to_pylist(maps_as_pydicts="strict")
    return [(each, found.rejected.get(number)) for number, each in enumerate(decoded)]


DECIMALS = [Json(f"d decimal({p},{s})") for p, s in ((1, 0), (10, 2), (18, 18), (38, 0), (38, 18), (38, 38))]
ODD_DECIMALS = [
    *("1e-400000000", "1e-10000000", "1e400000000", "1E-9999999999999999999", "0e-400000000", "-1.5e-77777777"),
    *("1e-41", "1e-77", "1e-39", "1e-38", "123456789012345678901234567890", "1e5", "1E+2", "1.0E1", "0E-18", "1e0"),
    *("9" * 38, "9" * 39, "9" * 40, "0." + "9" * 38, "0." + "0" * 45, "0." + "0" * 45 + "1", "1." + "0" * 39, "-0"),
    *("99999999.99", "100000000.00", "12.500", "12.501", "9" * 20 + "." + "9" * 18, "9" * 21 + "." + "9" * 17),
]  # fmt: skip


def test_a_decimal_is_exactly_the_written_number_or_rejected_and_arrow_sees_none_that_it_reads_otherwise() -> None:
    texts = [
        *ODD_DECIMALS,
        *(f'"{text}"' for text in ODD_DECIMALS),
        '"1\\u0065-400000000"',
        '"\\u0031e-41"',
        '"+1e-41"',
    ]
    for serde in DECIMALS:
        of_field = parse_type(serde.fields["d"])
        assert isinstance(of_field, DecimalType)
        for text in texts:
            value = b'{"d": %s}' % text.encode()
            column = serde.decode_column([b'{"d":0}', value, b'{"d" :null}'])
            number = (
                Fraction(0) if text.strip('"').lower().startswith("0e") else _exact(json.loads(text, parse_float=str))
            )
            scaled = None if number is None else number * 10**of_field.scale
            fits = scaled is not None and scaled.denominator == 1 and abs(scaled) < 10**of_field.precision
            reason = f"d is not of type {of_field}: the number has more digits"
            assert column.rejected == ({} if fits else {1: reason}), (serde, text)
            if fits:
                read = column.fields[1].as_py()["d"]
                assert Fraction(read) == number
                assert read.as_tuple().exponent == -of_field.scale


def _exact(text: object) -> Fraction | None:
    """The number; None where it is beyond all decimals."""
    if len(str(text)) > 100:
        return None
    number = Decimal(str(text)) if "99999999999999999" not in str(text)[2:] or "e" not in str(text).lower() else None
    return Fraction(number) if number is not None and -100 < number.adjusted() < 100 else None


def test_ordinary_decimals_beside_texts_that_look_like_numbers_are_not_left_to_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the reference was asked")

    monkeypatch.setattr(Json, "decode", refuse)
    values = [b'{"id":"550e8400-e29b-41d4-a716-4466554400e0","d":12.50}', b'{"id":"a\\n1e5","d":"-0.25"}'] * 3
    column = Json("id string, d decimal(38,18)").decode_column(values)
    assert column.fields.to_pylist()[0]["d"] == Decimal("12.50")


def test_the_sign_of_a_zero_is_that_of_the_reference() -> None:
    values = [b'{"v":-0}', b'{"v":-0.0}', b'{"v":0}', b'{"v":-1e-999}']
    column = Json("v double").decode_column(values)
    assert [str(row["v"]) for row in column.fields.to_pylist()] == ["0.0", "-0.0", "0.0", "-0.0"]
    assert [str(Json("v double").decode(value)["v"]) for value in values] == ["0.0", "-0.0", "0.0", "-0.0"]


def test_what_to_json_writes_of_doubles_is_read_again_from_our_own_topics_alone() -> None:
    """Spark's to_json and Jackson write them as text. Elsewhere such a text is no double."""
    values = [b'{"x":"NaN"}', b'{"x":"-Infinity"}', b'{"x":1.5}', b'{"x":"1.5"}', b'{"x":"Infinity"}', b'{"x":"inf"}']
    ours = repartition_serde({"x": parse_type("double")})
    read = ours.decode_column(values)
    assert [repr(row and row["x"]) for row in read.fields.to_pylist()] == ["nan", "-inf", "1.5", "None", "inf", "None"]
    assert read.rejected.keys() == {3, 5}
    assert Json("x double").decode_column(values).rejected.keys() == {0, 1, 3, 4, 5}
