"""Mistakes of a declaration and what is said of each. The page below is both the test and what one reads.

Each answer begins with the line of the declaration. Its file stands before it: ``orders.py:1: filter: …``.
"""

from __future__ import annotations

import sys
import traceback
from types import ModuleType

import pytest
from streamplan.errors import Refused
from streamplan.model.expressions import NoTruthValue
from streamplan.model.words import NoSuchOperation

BEFORE = """
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import NamedTuple
from streamplan import *

class Detector(Processor):
    def process(self, record, store): ...

class Forgetful(Processor):
    def process(self, record): ...

def by_customer(order):
    return order.customer

def add(key, order, total):
    return total

topology = Topology("orders-counter")
orders = topology.stream("orders", value=Json("id string, customer string, amount bigint"))
payments = topology.stream("payments", value=Json("id string, paid bigint"))
customers = topology.table("customers", value=Json("name string, city string"))
grouped = orders.group_by("customer", name="by-customer")
products = topology.global_table("products", value=Json("title string, price double"))
by_city = customers.group_by("city", name="by-city")
"""

PAGE = r"""
# Arguments of another kind

orders.filter(5)
→ 1: filter: condition is the number 5; it takes a text or a function. For example stream.filter("amount > 0")

orders.filter(["amount > 0"])
→ 1: filter: condition is a list; it takes a text or a function. For example stream.filter("amount > 0")

orders.flat_map("split(id, ' ')", key=by_customer)
→ 1: flat_map: key is the function by_customer; it takes a text. The key is an expression over the new value: flat_map(function, key='key', schema='…')

orders.map_values("amount * 2")
→ 1: map_values: value is the text 'amount * 2'; it takes a mapping such as {'name': 'expression'} or a function. Say what the field is called: {'name': 'amount * 2'}

orders.map_values(["id", "amount"])
→ 1: map_values: value is a list; it takes a mapping such as {'name': 'expression'} or a function. Write {'id': 'id', 'amount': 'amount'}

orders.map_values({"total": 5})
→ 1: map_values: value['total'] is the number 5; it takes a text. Write it as a text: '5'

orders.map("customer", "amount")
→ 1: map: value is the text 'amount'; it takes a mapping such as {'name': 'expression'} or a function. Say what the field is called: {'name': 'amount'}

orders.to(5)
→ 1: to: topic is the number 5; it takes a text. For example stream.to("large-orders")

orders.to("out", value=Json)
→ 1: to: value is the class Json; it takes a serde. Write Json(…), an object of the class

orders.filter("amount > 0", deterministic="no")
→ 1: filter: deterministic is the text 'no'; it takes True or False. Write True or False

orders.repartition(number_of_partitions="4")
→ 1: repartition: number_of_partitions is the text '4'; it takes a whole number. Write it without quotes: 4

orders.peek("count(*)")
→ 1: peek: action is the text 'count(*)'; it takes a mapping such as {'name': 'expression'} or a function. Say what the field is called: {'name': 'count(*)'}

orders.filter_not(5)
→ 1: filter_not: condition is the number 5; it takes a text or a function. For example stream.filter_not("amount > 0")

orders.flat_map_values("split(id, '-')", "element")
→ 1: flat_map_values: value is the text 'element'; it takes a mapping such as {'name': 'expression'}. Say what the field is called: {'name': 'element'}

orders.foreach("print")
→ 1: foreach: action is the text 'print'; it takes a function. For example stream.foreach(notify)

orders.print(5)
→ 1: print: label is the number 5; it takes a text. For example stream.print(label="orders")

orders.to("topic_of", topics="a")
→ 1: to: topics is the text 'a'; it takes a tuple. Write ('a',)

topology.stream("clicks", value=Json("at timestamp"), timestamp=5)
→ 1: stream: timestamp is the number 5; it takes a text or a function. For example timestamp='…'

topology.stream({"clicks", "views"}, value=Json("page string"))
→ 1: stream: topic is a set; it takes a text or a tuple. Write the topics in parentheses: topology.stream(('a', 'b'), value=…)

topology.stream("clicks", value=Json("page string"), key=String())
→ 1: stream: key is a String; it takes a text. Write key_serde=String()

orders.join(customers, {"id": "id"}, grace="1 minute")
→ 1: join: grace= is given, and the table is not versioned, so that it has no earlier rows. A table of a topic can have a versioned store: topology.table(…, store=Versioned('customers', history='…'))

orders.group_by(["customer", "id"])
→ 1: group_by: key is a list; it takes a text or a function. Write a key of several fields as one: 'struct(a, b)', key_serde=Json('a string, b string')

orders.to(["a", "b"])
→ 1: to: topic is a list; it takes a text. Write to('topic') for each of them. Where each record has its topic: to("concat('a-', b)", topics=('a-x', 'a-y'))

orders.map_values(F.amount * 2)
→ 1: map_values: value is an Expression; it takes a mapping such as {'name': 'expression'} or a function. Say what the field is called: {'name': 'amount * 2'}

orders.map_values(by_customer, schema=["customer string"])
→ 1: map_values: schema is a list; it takes a text. Write it as one text: 'customer string'

orders.process(Detector(), store="seen", state="n bigint")
→ 1: process: <orders.Detector object> is no class of processors. Write Detector, the class, of which each stream task makes an object

orders.process("Detector", store="seen", state="n bigint")
→ 1: process: 'Detector' is no class of processors. Write Detector without quotes, for it is the class that is given

orders.process(Detector, stores={"seen": "n bigint"})
→ 1: process: stores['seen'] is the text 'n bigint'; it takes a KeyValueStore, a WindowStore, a SessionStore, a VersionedKeyValueStore, a KTable or a GlobalKTable. For example KeyValueStore(String(), Long())

orders.process(Forgetful, stores={"seen": KeyValueStore(String())}, schema="n bigint")
→ 1: KeyValueStore: the argument value_serde is missing. For example KeyValueStore(String(), Long())

grouped.windowed_by(TimeWindows("1 minute", grace=10))
→ 1: TimeWindows: grace is the number 10; it takes a text or a timedelta. For example grace='5 minutes'

Pipeline("orders", topology, "Counts orders.", limits={"partition_share": 0.8})
→ 1: Pipeline: limits is a mapping; it takes a Limits. Write Limits(partition_share=0.8)

# Arguments that are missing, too many or misspelt

orders.map("customer")
→ 1: map: the argument value is missing. For example stream.map("customer", {"total": "price * count"})

orders.flat_map("split(id, '-')")
→ 1: flat_map: the argument key is missing. For example stream.flat_map("split(line, ' ')", key="element", value={"word": "element"})

topology.stream("clicks")
→ 1: stream: the argument value is missing. For example topology.stream("orders", value=Json("id string, amount bigint"))

topology.stream("clicks", Json("page string"))
→ 1: stream: Json('page string') is one argument too many: it takes at most 1 without a name. Write value=Json('page string')

orders.group_by("customer", "amount")
→ 1: group_by: 'amount' is one argument too many: it takes at most 1 without a name. Write a key of several fields as one: 'struct(a, b)', key_serde=Json('a string, b string')

grouped.count("per-customer")
→ 1: count: 'per-customer' is one argument too many: it takes none without a name. Write store='per-customer'

grouped.count(materialized="per-customer")
→ 1: count: there is no argument 'materialized'. Write store='per-customer'

orders.filter("amount > 0", nme="large")
→ 1: filter: there is no argument 'nme'. Write name='large'

orders.map_values(total="amount * 2")
→ 1: map_values: there is no argument 'total'. Write map_values(value={'total': 'amount * 2'})

orders.select_key("customer", keySerde=Long())
→ 1: select_key: there is no argument 'keySerde'. Write key_serde=Long()

topology.stream()
→ 1: stream: the arguments topic and value are missing. For example topology.stream("orders", value=Json("id string, amount bigint"))

topology.stream("clicks", value_serde=Json("page string"))
→ 1: stream: there is no argument 'value_serde'. Write value=Json('page string')

orders.split("amount > 0")
→ 1: split: 'amount > 0' is one argument too many: it takes none without a name. For example stream.split(name="orders-").branch("amount > 100", name="large").no_default_branch()

orders.merge(payments, customers)
→ 1: merge: <KTable KTABLE-SOURCE-0000000004: name, city> is one argument too many: it takes at most 1 without a name. Merge one after the other: a.merge(b).merge(c)

orders.map_values(by_customer, returns="customer string")
→ 1: map_values: there is no argument 'returns'. Write schema='customer string'

orders.to("out", key_serde=Long())
→ 1: to: there is no argument 'key_serde'. Give the records the key before: select_key('…', key_serde=…)

orders.to("out", partitioner=by_customer)
→ 1: to: there is no argument 'partitioner'. The partition of a record follows from its key: select_key('…') before it

topology.stream("clicks", value=Json("page string"), auto_offset_reset="latest")
→ 1: stream: there is no argument 'auto_offset_reset'. Write it at the pipeline: Pipeline(…, auto_offset_reset='latest')

# Words of the JVM's DSL

orders.groupBy("customer")
→ 1: 'KStream' object has no attribute 'groupBy'. Write group_by(…)

orders.mapValues({"total": "amount"})
→ 1: 'KStream' object has no attribute 'mapValues'. Write map_values(…)

orders.filterNot("amount > 0")
→ 1: 'KStream' object has no attribute 'filterNot'. Write filter_not(…)

orders.flatMapValues(by_customer)
→ 1: 'KStream' object has no attribute 'flatMapValues'. Write flat_map_values(…)

orders.branch("amount > 0")
→ 1: 'KStream' object has no attribute 'branch'. Split the stream first: split().branch(…)

customers.split()
→ 1: 'KTable' object has no attribute 'split'. Take the updates of the table: to_stream().split(…)

orders.through("between")
→ 1: through: the library has none since 4.0. Write repartition(name='…'), whose topic belongs to the application. Where others own 'between': to('between'), and topology.stream('between', value=…)

topology.globalTable("customers")
→ 1: 'Topology' object has no attribute 'globalTable'. Write global_table(…)

grouped.windowedBy(TimeWindows("1 minute"))
→ 1: 'KGroupedStream' object has no attribute 'windowedBy'. Write windowed_by(…)

orders.to_stream()
→ 1: 'KStream' object has no attribute 'to_stream'. This is a stream already. Leave to_stream out, or make a table of the stream first: to_table()

grouped.windowed_by(TimeWindows("1 minute")).suppress()
→ 1: 'WindowedKStream' object has no attribute 'suppress'. Write it behind an aggregate: count().suppress(…)

grouped.count().suppress("until window closes")
→ 1: suppress: suppressed is the text 'until window closes'; it takes a UntilWindowCloses or a UntilTimeLimit. For example windowed.count(store="per-minute").suppress(UntilWindowCloses()).to_stream().to("final")

# Words of Quix Streams

orders.to_topic("out")
→ 1: 'KStream' object has no attribute 'to_topic'. Write to('topic')

orders.apply(by_customer)
→ 1: 'KStream' object has no attribute 'apply'. Write map_values({'field': 'expression'}) or map_values(function)

orders.tumbling_window("1 minute")
→ 1: 'KStream' object has no attribute 'tumbling_window'. Write group_by('key').windowed_by(TimeWindows('1 minute'))

grouped.sum("amount")
→ 1: 'KGroupedStream' object has no attribute 'sum'. Write aggregate({'sum': 'sum(field)'})

# Words of PySpark

orders.withColumn("total", "amount * 2")
→ 1: 'KStream' object has no attribute 'withColumn'. Write map_values({'field': 'expression'}): it names every field of the new value

orders.where("amount > 0")
→ 1: 'KStream' object has no attribute 'where'. Write filter('condition')

orders.writeStream
→ 1: 'KStream' object has no attribute 'writeStream'. Write to('topic')

topology.readStream
→ 1: 'Topology' object has no attribute 'readStream'. Write stream('topic', value=…)

orders.select("id")
→ 1: 'KStream' object has no attribute 'select'. Write map_values({'field': 'expression'}): it names every field of the new value

orders.union(payments)
→ 1: 'KStream' object has no attribute 'union'. Write merge(other)

orders.join(customers, on="customer")
→ 1: join: there is no argument 'on'. Records are joined by their key: give both sides the same key before, with select_key('…')

orders.join(customers, how="left")
→ 1: join: there is no argument 'how'. Each kind of join has a method of its own: join, left_join, outer_join

orders["amount"]
→ 1: 'KStream' object has no '[…]'. A stream has no columns. Write a field in an expression: F.amount, or as a text 'amount'

orders.amount
→ 1: 'KStream' object has no attribute 'amount'. Write a field in an expression: F.amount

orders > 5
→ 1: 'KStream' object has no '>'. A stream is no column. Write a field in an expression: filter('amount > 0'), or filter(F.amount > 0)

orders + payments
→ 1: 'KStream' object has no '+'. Two streams become one with merge(other), and two that have the same keys with join(other)

[order for order in orders]
→ 1: 'KStream' object has no 'for … in'. A declaration has no records yet. Write foreach(function) to call a function for each, and read them in a test with TopologyTestDriver of streamplan.testing

orders.to("out").filter("amount > 0")
→ 1: to(…) ends the stream, and nothing follows it. Keep the stream in a variable, and write both behind it: stream.to(…), and in the next line stream.filter(…)

grouped.aggregate(total=F.sum("amount"))
→ 1: F.sum('amount'): a text is the same for each record. Write F.sum(F.amount) for a field, or F.sum(F.lit('amount')) for the text

orders.filter(F("amount") > 0)
→ 1: F('amount'): F is no function. Write F.amount

# An operation of something else, and misspelt words

orders.count()
→ 1: 'KStream' object has no attribute 'count'. Group the stream first: group_by('key').count(…)

customers.flat_map_values("split(city, ' ')", {"word": "element"})
→ 1: 'KTable' object has no attribute 'flat_map_values'. Take the updates of the table: to_stream().flat_map_values(…)

orders.join(customers, lambda order, customer: {"city": customer.city})
→ 1: join: what orders.<lambda> returns is not known. For example schema='id string, risk double', or the return type hint of a dataclass

orders.join(customers, lambda order: {"city": "x"}, schema="city string")
→ 1: join: orders.<lambda> takes (order), and is called with the value, the other value. Write a function that takes the value, the other value

customers.join(topology.table("addresses", value=Json("street string"), key="customer"), lambda one, other: one)
→ 1: join: value is a lambda; it takes a mapping such as {'name': 'expression'}. Tables are joined by expressions, as {'id': 'id', 'city': 'table.city'}. With a function write to_stream().map_values(function) behind it

customers.to_stream("town")
→ 1: select_key: the value has no field 'town'. It has: name, city

customers.to_stream(key_serde=Long())
→ 1: to_stream: key_serde without key. Write to_stream('record.key', key_serde=…)

customers.filter("town = 'Lyon'").map_values({"at": "record.timestamp"})
→ 1: map_values, at: an operation of a table sees record.key and record.window, and nothing else of record. Its result is a function of the value and the key; of a stream, to_stream(), it sees all of record

customers.filter_not("town")
→ 1: filter_not: the value has no field 'town'. It has: name, city

orders.join(customers.filter("city = 'Lyon'"))
→ 1: join: with the result of filter, which has no state store. Give it one, in which the join looks up: store='…'

customers.join(payments.to_table().map_values({"paid": "paid"}))
→ 1: join: the other table is the result of map_values, which has no state store. Give it one, in which the join looks up: store='…'

customers.map_values({"city": "city"}).join(payments.to_table(), foreign_key="city")
→ 1: join: by a foreign key with this table being the result of map_values. Write it to a compacted topic with to_stream().to('…') and join Topology.table('…')

orders.group_by_key().windowed_by(TimeWindows("1 minute")).count().map_values({"n": "count"}, store="numbers")
→ 1: map_values: a store of windows, whose keys have the bytes of no windowed store, is not written. Leave out store=, or write the updates with to_stream().to('…')

orders.group_by_key().windowed_by(TimeWindows("1 minute")).count().to_stream().to_table()
→ 1: to_table: the key is windowed. Give the records a plain key before: select_key('…')

grouped.to("out")
→ 1: 'KGroupedStream' object has no attribute 'to'. Write it before group_by, or behind the aggregate: count().to_stream().to(…)

orders.filtr("amount > 0")
→ 1: 'KStream' object has no attribute 'filtr'. Did you mean filter(…)?

orders.filter("amont")
→ 1: filter: the value has no field 'amont'. It has: id, customer, amount. Did you mean amount?

orders.filter("orders.amount")
→ 1: filter: the value has no field 'orders'. Write amount

orders.map_values({"twice": "F.amount"})
→ 1: map_values, twice: the value has no field 'F'. F stands outside of texts. Write amount

orders.map_values({"at": "timestamp"})
→ 1: map_values, at: the value has no field 'timestamp'. Write record.timestamp

orders.flat_map_values("split(id, '-')", {"part": "elment"})
→ 1: flat_map_values, part: the value has no field 'elment'. It has: id, customer, amount. Did you mean element?

class Column:
    def __gt__(self, other): return self
Column.__module__ = "pyspark.sql.classic.column"
orders.filter(Column() > 0).map_values({"x": Column()})
→ 4: filter: condition is a Column; it takes a text or a function. Write the expression with F from streamplan: F.amount > 0
→ 4: map_values: value['x'] is a Column; it takes a text. Write the expression with F from streamplan: F.amount > 0

orders.join(customers, {"city": "table.citty"}, name="joined")
→ 1: join, city: the table has no field 'citty'. It has: name, city. Did you mean city?

grouped.aggregate({"total": "sum(amont)"})
→ 1: aggregate, total: the value has no field 'amont'. It has: id, customer, amount. Did you mean amount?

# Expressions of F

orders.filter(F.amont > 0)
→ 1: filter: the value has no field 'amont'. It has: id, customer, amount. Did you mean amount?

orders.filter(F.customer.isNotNull())
→ 1: F.customer.isNotNull(…): an expression has no method 'isNotNull'. Write F.customer.is_not_null()

orders.map_values(name=F.customer)
→ 1: map_values: name is an Expression; it takes a text. A field of this name is written in a mapping: map_values({'name': …})

orders.foreach(F.amount)
→ 1: foreach: action is an Expression; it takes a function. For example stream.foreach(notify)

orders.filter(F.amount > 0 and F.customer == "c")
→ 1: amount > 0: an expression is true or false for a record, and not here. Write & for 'and', | for 'or', ~ for 'not', with each comparison in parentheses: (F.a > 0) & (F.b > 0); F.a.between(0, 5) for a chain 0 <= F.a <= 5; F.a.is_in(1, 2) for 'in'; F.when(condition, value, otherwise) for 'if'; and F.greatest(F.a, F.b) for max, F.least(F.a, F.b) for min

orders.filter(F.amount > None)
→ 1: > with None is true for no record. Write is_null() or is_not_null()

# Branches

orders.split("by-")
→ 1: split: 'by-' is one argument too many: it takes none without a name. Write name='by-'

orders.split().branch(5).defaultBranch()
→ 1: 'BranchedKStream' object has no attribute 'defaultBranch'. Write default_branch(…)
→ The lines before it have faults, too:
→ 1: branch: condition is the number 5; it takes a text or a function. For example stream.split(name="orders-").branch("amount > 100", name="large")

orders.split(name="by-").branch("amont > 0", as_="large").default_branch("small")["by-small"].filter("amont")
→ 1: branch: there is no argument 'as_'. Write name='large'
→ 1: default_branch: 'small' is one argument too many: it takes none without a name. Write name='small'

branches = orders.split(name="by-").branch("amount > 0", name="large").default_branch(name="small")
branches["by-lage"].to("large")
→ 2: split: there is no branch 'by-lage'. It has: by-large, by-small. Did you mean by-large?

orders.split().filter("amount > 0")
→ 1: 'BranchedKStream' object has no attribute 'filter'. Write it behind a branch: no_default_branch()['name'].filter(…)

orders.split().where("amount > 0")
→ 1: 'BranchedKStream' object has no attribute 'where'. Write no_default_branch()['name'].filter('condition')

orders.split().branch("amount > 0", name="large")["large"]
→ 1: 'BranchedKStream' object has no '[…]'. End the split before: default_branch()['name'], or no_default_branch()['name']

orders.split(name="by-").branch("amount > 0", name="large").default_branch(name="small").large
→ 1: the branches have no attribute 'large'. Write ['by-large']

# Windows

grouped.windowed_by("1 minute")
→ 1: windowed_by: '1 minute' is none of TimeWindows, CalendarWindows, CustomWindows, SlidingWindows and SessionWindows. Write TimeWindows('1 minute')

grouped.windowed_by(TimeWindows)
→ 1: windowed_by: the class TimeWindows is none of TimeWindows, CalendarWindows, CustomWindows, SlidingWindows and SessionWindows. For example TimeWindows('1 minute'), or SessionWindows('5 minutes')

grouped.windowed_by(TimeWindows(60))
→ 1: TimeWindows: size is the number 60; it takes a text or a timedelta. For example TimeWindows("1 minute")

grouped.windowed_by(TimeWindows(timedelta(minutes=-5)))
→ 1: TimeWindows: size: a timedelta of -300 seconds is negative. For example TimeWindows("1 minute")

grouped.windowed_by(TimeWindows("5 minutes", advance_by="1 minute"))
→ 1: TimeWindows: there is no argument 'advance_by'. Write advance='1 minute'

grouped.windowed_by(SessionWindows("five minutes"))
→ 1: windowed_by: inactivity_gap: 'five minutes' is not a duration; write a number and a unit, as in '1 minute' or '30 seconds'. For example SessionWindows('5 minutes', grace='1 hour')

grouped.windowed_by(TimeWindows("1 minute")).emit_strategy("on close")
→ 1: emit_strategy: 'on close' is no emit strategy. Write emit_strategy(OnWindowClose()), or nothing: every update is passed then

grouped.windowed_by(TimeWindows.ofSizeWithNoGrace(timedelta(minutes=5)))
→ 1: type object 'TimeWindows' has no attribute 'ofSizeWithNoGrace'. Write TimeWindows('5 minutes', grace='0 seconds')

grouped.windowed_by(TimeWindows.of_size_and_grace("5 minutes", "1 minute"))
→ 1: type object 'TimeWindows' has no attribute 'of_size_and_grace'. Write TimeWindows('5 minutes', grace='1 minute')

grouped.windowed_by(TimeWindows.of("5 minutes"))
→ 1: type object 'TimeWindows' has no attribute 'of'. Write TimeWindows('5 minutes'), which has the same grace: a day

grouped.windowed_by(SessionWindows.ofInactivityGapAndGrace("5 minutes", "1 minute"))
→ 1: type object 'SessionWindows' has no attribute 'ofInactivityGapAndGrace'. Write SessionWindows('5 minutes', grace='1 minute')

orders.join(payments, within=JoinWindows.ofTimeDifferenceWithNoGrace("5 minutes"))
→ 1: type object 'JoinWindows' has no attribute 'ofTimeDifferenceWithNoGrace'. Write JoinWindows('5 minutes', grace='0 seconds'), with before= or after= where the two differ

customers.suppress(UntilTimeLimit.of("5 minutes"))
→ 1: type object 'UntilTimeLimit' has no attribute 'of'. Write UntilTimeLimit('5 minutes', max_records=10_000)

grouped.windowed_by(TimeWindows("5 minutes").advanceBy("1 minute"))
→ 1: 'TimeWindows' object has no attribute 'advanceBy'. Write all of it at once: TimeWindows('5 minutes', advance='1 minute')

grouped.windowed_by(TimeWindows("5 minuts"))
→ 1: windowed_by: size: '5 minuts' is not a duration; write '5 minutes'. For example TimeWindows('1 minute')

grouped.windowed_by(TimeWindows("5m"))
→ 1: windowed_by: size: '5m' is not a duration; write '5 minutes'. For example TimeWindows('1 minute')

grouped.windowed_by(TimeWindows("1 hour", advance="15 minutes", offset="20 minutes"))
→ 1: windowed_by: offset: '20 minutes' is not above 0 and below the advance, '15 minutes'. For example TimeWindows('1 hour', offset='15 minutes')

grouped.windowed_by(CustomWindows(lambda: [], size="1 hour"))
→ 1: windowed_by: orders.<lambda> takes (), and is called with the time in ms. Write a function that takes a time

grouped.windowed_by(CustomWindows("1 hour", size="1 hour"))
→ 1: CustomWindows: function is the text '1 hour'; it takes a function. Write grace='1 hour'

grouped.windowed_by(CustomWindows(lambda at: [(at, at + 1)], size="1 houur"))
→ 1: windowed_by: size: '1 houur' is not a duration; write '1 hour'. For example CustomWindows(shifts, size='8 hours', grace='1 hour')

grouped.windowed_by(TimeWindows("1 hour", offset="1 hour"))
→ 1: windowed_by: offset: '1 hour' is not above 0 and below the size, '1 hour'. For example TimeWindows('1 hour', offset='15 minutes')

grouped.windowed_by(CalendarWindows("2 days", time_zone="Europe/Berlin"))
→ 1: windowed_by: size: '2 days' is none of '1 day', '1 week', '1 month'. For example CalendarWindows('1 day', time_zone='Europe/Berlin')

grouped.windowed_by(CalendarWindows("1 day", time_zone="Europe/Belrin"))
→ 1: windowed_by: time_zone: there is no time zone 'Europe/Belrin'. For example 'Europe/Berlin'

grouped.windowed_by(CalendarWindows("1 day", time_zone="Europe/Berlin", offset="6h"))
→ 1: windowed_by: offset: '6h' is not a duration; write '6 hours'. For example CalendarWindows('1 day', time_zone='Europe/Berlin')

grouped.windowed_by(CalendarWindows("1 day"))
→ 1: CalendarWindows: the argument time_zone is missing. For example CalendarWindows("1 day", time_zone="Europe/Berlin")

grouped.windowed_by(SlidingWindows("5 minuts"))
→ 1: windowed_by: time_difference: '5 minuts' is not a duration; write '5 minutes'. For example SlidingWindows('5 minutes', grace='1 minute')

grouped.windowed_by(SlidingWindows("5 minutes")).count().filter("count > 1").suppress(UntilWindowCloses())
→ 1: suppress: of another table than an aggregate of windows of one stream. Write emit_strategy(OnWindowClose()), between windowed_by and the aggregate

grouped.windowed_by(SlidingWindows.ofTimeDifferenceWithNoGrace(timedelta(minutes=5)))
→ 1: type object 'SlidingWindows' has no attribute 'ofTimeDifferenceWithNoGrace'. Write SlidingWindows('5 minutes', grace='0 seconds')

grouped.windowed_by(SessionWindows(gap="5 minutes"))
→ 1: SessionWindows: there is no argument 'gap'. Write inactivity_gap='5 minutes'

# Joins and merges

orders.join("customers")
→ 1: join: with the text 'customers'. Join a stream with a table, Topology.table(), or with a stream

orders.join(payments, {"id": "id"})
→ 1: join: how far apart in time the records may be is not given. For example within=JoinWindows('5 minutes')

orders.join(payments, {"id": "id"}, within="5 minutes")
→ 1: join: within='5 minutes' is no JoinWindows. For example within=JoinWindows('5 minutes')

orders.merge(customers)
→ 1: merge: with a KTable. Merge a stream; a table's updates are one: .to_stream()

customers.join(orders)
→ 1: join: with a KStream. Join a table of this topology

orders.join(customers, "customer = id")
→ 1: join: value is the text 'customer = id'; it takes a mapping such as {'name': 'expression'} or a function. Records are joined by their key: give both sides the same key before, with select_key('…')

orders.join(customers, {"city": "customers.city"})
→ 1: join, city: the value has no field 'customers'. Write table.city

orders.join(payments, {"paid": "right.paid"}, within=JoinWindows("5 minutes"))
→ 1: join, paid: the value has no field 'right'. Write other.paid

# Functions and processors

orders.map_values(lambda key, order, other: order, schema="id string")
→ 1: map_values: orders.<lambda> takes (key, order, other), and is called with the record. Write a function that takes the record, or the key and the value

orders.map_values(by_customer)
→ 1: map_values: what orders.by_customer returns is not known. For example schema='id string, risk double', or the return type hint of a dataclass

orders.map_values(by_customer, schema="customer string", on_error="skip")
→ 1: map_values: on_error='skip'. One of 'reject', 'stop'

orders.foreach(lambda: None)
→ 1: foreach: orders.<lambda> takes (), and is called with the record. Write a function that takes the record, or the key and the value

topology.stream("clicks", value=Json("at timestamp"), timestamp=lambda: 5)
→ 1: stream: timestamp: orders.<lambda> takes (), and is called with the record. Write a function that takes the record alone

topology.stream("clicks", value=Json("at timestamp"), timestamp_extractor="at")
→ 1: stream: there is no argument 'timestamp_extractor'. Write timestamp='at'

orders.process(by_customer, store="seen", state="n bigint")
→ 1: process: by_customer is no class of processors. Write a subclass of streamplan.Processor

orders.process(Forgetful, store="seen", state="n bigint", schema="n bigint")
→ 1: process: Forgetful.process takes (self, record), and is called with self, the record, the store. Write def process(self, record, store)

orders.process(Detector, store="seen")
→ 1: process: the store is not declared. store='seen', state='count bigint'; or stores={'seen': KeyValueStore(String(), Json('count bigint'))}

orders.process(Detector, schema="n bigint")
→ 1: process: Detector.process takes (self, record, store), and is called with self, the record. Write def process(self, record), or declare the store of the record's key: store='seen', state='count bigint'

orders.process(Forgetful, schema="n bigint", ttl="1 day")
→ 1: process: ttl without a store. It is a part of what a store has: store='seen', state='count bigint, due timestamp'

orders.process_values(Forgetful, schema="n bigint", key_serde=Long())
→ 1: process_values: there is no argument 'key_serde'. Give the records the key before: select_key('…', key_serde=…)

orders.map_values(arrow_batch("score"))
→ 1: arrow_batch: function is the text 'score'; it takes a function. For example stream.map_values(arrow_batch(score))

# Names

topology.stream("my clicks", value=Json("page string"))
→ 1: the name 'my clicks' contains ' '; legal are ASCII letters and digits, '.', '_' and '-'. Write 'my-clicks'

orders.filter("amount > 0", name="large orders")
→ 1: the name 'large orders' contains ' '; legal are ASCII letters and digits, '.', '_' and '-'. Write 'large-orders'

grouped.count(store="per customer")
→ 1: the name 'per customer' contains ' '; legal are ASCII letters and digits, '.', '_' and '-'. Write 'per-customer'

orders.map_values({"my field": "id"})
→ 1: map_values: a field cannot be named 'my field'. Write 'my_field'

# Serdes

topology.stream("clicks", value="page string")
→ 1: stream: value is the text 'page string'; it takes a serde. Write Json('page string')

topology.stream("clicks", value=Json("page strin"))
→ 1: Json: page: type 'strin' is not one of string, int, bigint, double, boolean, timestamp, date, decimal(p,s), struct<…>, array<…>, map<string, …>. Write string in place of strin

topology.stream("clicks", value=Json({"page": "string"}))
→ 1: Json: schema is a mapping; it takes a text or a dataclass. Write it as one text: 'page string'

topology.stream("clicks", value=Json("page string", allowd={"page": {}}))
→ 1: Json: there is no argument 'allowd'. Write allowed={'page': {}}

topology.stream("clicks", value=Json("page string"), key_serde=Long)
→ 1: stream: key_serde=Long is no serde of keys. Write Long(), an object of the class

topology.stream("clicks", value=Json("page string"), key_serde=Avro('{"type":"record","name":"K","fields":[{"name":"id","type":"int"}]}'))
→ 1: stream: key_serde=Avro('{"type":"record","name":"K"...{"name":"id","type":"int"}]}') is no serde of keys. Write Bytes(): a key with a schema is its bytes. See 'Keys with a schema' in docs/language.md

topology.stream("clicks", value=Avro(5))
→ 1: Avro: schema is the number 5; it takes a text. For example topology.stream("orders", value=Avro("order.avsc"))

topology.stream("clicks", value=Protobuf.of("Click"))
→ 1: Protobuf.of: message_class is the text 'Click'; it takes a class that protoc has made. For example Protobuf.of(order_pb2.Order)

topology.stream("clicks", value=str)
→ 1: stream: value is the class str; it takes a serde. Write String()

topology.stream("clicks", value=Json("page string"), key_serde=str)
→ 1: stream: key_serde=str is no serde of keys. Write String()

topology.stream("clicks", value=Json({"page": str, "n": int}))
→ 1: Json: schema is a mapping; it takes a text or a dataclass. Write it as one text: 'page string, n bigint'

orders.to("out", value=Json("id string, total bigint"))
→ 1: to 'out': the serde writes total, and the stream has id, customer, amount. Name what is missing in a map_values before: {'total': '…'}
→ 1: to 'out': the serde writes id, total, and not customer, amount of the stream. Leave out what it does not write, in a map_values before

# Pipelines

topology = Topology(5)
topology.stream("clicks", value="page string")
→ 1: Topology: application_id is the number 5; it takes a text. For example Topology("orders-aggregator")
→ 2: stream: value is the text 'page string'; it takes a serde. Write Json('page string')

Pipeline("orders", topology)
→ 1: Pipeline: the argument description is missing. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})

Pipeline("orders", grouped, "Counts orders.")
→ 1: Pipeline: topology is a KGroupedStream; it takes a Topology. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})

Pipeline("orders", topology, "Counts orders.", {"oders": 2, "payments": 2, "customers": 2})
→ 1: topic_partitions names oders: expected source and sink topics: customers, orders, payments, products. The counts of internal topics follow from those. Did you mean orders?

Pipeline("orders", topology, "Counts orders.", {"orders": "2"})
→ 1: Pipeline: topic_partitions['orders'] is the text '2'; it takes a whole number. Write it without quotes: 2

Pipeline(name="orders", topology=topology, description="Counts orders.", topic_partitons={"orders": 2})
→ 1: Pipeline: there is no argument 'topic_partitons'. Write topic_partitions={'orders': 2}

Pipeline("orders", topology, "Counts orders.", limits=Limits(partition_share="0.8"))
→ 1: Limits: partition_share is the text '0.8'; it takes a number. Write it without quotes: 0.8

Pipeline("orders", topology, "Counts orders.", test_data=TestData("orders", by_customer, "id"))
→ 1: TestData: topics is the text 'orders'; it takes a tuple. Write ('orders',)

Pipeline()
→ 1: Pipeline: the arguments name, topology and description are missing. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})

Pipeline("my orders", topology, "Counts orders.", {"orders": 2, "payments": 2, "customers": 2})
→ 1: the name 'my orders' is not a prefix of a DAG id: a letter, and then letters, digits, '_' and '-'. Write 'my-orders'

Pipeline("orders", topology, "Counts orders.", health_schedule="every hour")
→ 1: health_schedule 'every hour' is no cron expression. For example '*/10 * * * *', each ten minutes, or '@hourly'

Pipeline("orders", topology, "Counts orders.", limits=Limits(partition_share=80))
→ 1: Limits: partition_share is 80; it is above 0, and at most 1. Write 0.8

Pipeline("orders", topology, "Counts orders.", master="local[2]")
→ 1: Pipeline: there is no argument 'master'. A declaration names no Spark: Airflow's connection has it, which spark_conn_id names

orders.join(customers, {"city": "table.city"}).to("out")
Pipeline("orders", topology, "Counts orders.", {"orders": 2, "payments": 2, "customers": 3, "products": 1})
→ 2: Invalid topology: Topics not co-partitioned: [{customers=3, orders=2}]. Topics that are read together need equal partition counts: put repartition(number_of_partitions=…) before the join, or create the topics alike

# Global tables and grouped tables

orders.join(products, "customer")
→ 1: join: value is the text 'customer'; it takes a mapping such as {'name': 'expression'} or a function. Write key='customer'

orders.join(products, {"title": "title"}, key="customer")
→ 1: join, title: the value has no field 'title'. Write table.title

orders.outer_join(products)
→ 1: outer_join: with a GlobalKTable. A stream and a table have no outer join. Write left_join(…)

products.filter("price > 1")
→ 1: 'GlobalKTable' object has no attribute 'filter'. A global table is only joined: stream.join(table, key='…'). For filter read the topic as a stream

customers.count()
→ 1: 'KTable' object has no attribute 'count'. Group the table first: group_by('key').count(…)

by_city.reduce(max_by="name")
→ 1: reduce: there is no argument 'max_by'. The rows of a group also leave it, so that the greatest is not known. Write reduce(adder, subtractor)

by_city.aggregate({"longest": "max(name)"})
→ 1: aggregate: expressions are given; a grouped table takes functions, since rows also leave their group. Write count(), or aggregate(initializer, adder, subtractor, schema='…')

by_city.aggregate(n=F.count())
→ 1: aggregate: expressions are given; a grouped table takes functions, since rows also leave their group. Write count(), or aggregate(initializer, adder, subtractor, schema='…')

by_city.windowed_by(TimeWindows("1 minute"))
→ 1: 'KGroupedTable' object has no attribute 'windowed_by'. Group the updates of the table: to_stream().group_by('key').windowed_by(…)

customers.group_by("city", {"n": "name"})
→ 1: group_by: {'n': 'name'} is one argument too many: it takes at most 1 without a name. Change the value before: map_values({'n': 'name'}).group_by(…)

# Functions that aggregate

grouped.aggregate({}, add, schema="n bigint")
→ 1: aggregate: orders.add is given with a mapping without fields. Write a function that returns the mapping: lambda: {}, or dict

grouped.aggregate(0, add, schema="n bigint")
→ 1: aggregate: the number 0 is given with an aggregator. Write a function that returns it: lambda: {…}

grouped.aggregate({"n": 0}, add, schema="n bigint")
→ 1: aggregate: a mapping is given with an aggregator. Write a function that returns it: lambda: {'n': 0}

grouped.aggregate(lambda: 0, add, schema="n bigint")
→ 1: aggregate: the initializer orders.<lambda> returns the number 0, and an aggregate has fields. Write a mapping: lambda: {'n': 0}

grouped.aggregate(dict, "sum(amount)", schema="n bigint")
→ 1: aggregate: aggregator is the text 'sum(amount)'; it takes a function. For example grouped.aggregate({"total": "sum(amount)", "mean": "avg(amount)"}, store="totals")

grouped.aggregate({"n": "count()", "most": "max()"})
→ 1: aggregate, n: count() is called without an argument. Write count(*)
→ 1: aggregate, most: max() is called without an argument. Write max(field)

grouped.reduce("amount")
→ 1: reduce: reducer is the text 'amount'; it takes a function. Write max_by='amount'

grouped.reduce(by="amount")
→ 1: reduce: there is no argument 'by'. Write max_by='amount'

grouped.windowed_by(TimeWindows("1 minute")).reduce(max_by="amount")
→ 1: reduce: there is no argument 'max_by'. Write aggregate({'field': 'max_by(field, amount)'})

grouped.windowed_by(SessionWindows("5 minutes")).aggregate(dict, add, add, schema="n bigint")
→ 1: aggregate: add is one argument too many: it takes at most 2 without a name. Write merger=add

grouped.cogroup({"n": "count(*)"}).count()
→ 1: 'CogroupedKStream' object has no attribute 'count'. Write it as a field of each stream: cogroup({'n': 'count(*)'}).aggregate()

grouped.windowed_by(TimeWindows("1 minute")).windowed_by(TimeWindows("1 hour"))
→ 1: 'WindowedKStream' object has no attribute 'windowed_by'. Write windowed_by behind group_by. A grouped stream in a variable can have it twice

grouped.windowed_by(timedelta(minutes=1))
→ 1: windowed_by: timedelta(seconds=60) is none of TimeWindows, CalendarWindows, CustomWindows, SlidingWindows and SessionWindows. Write TimeWindows(timedelta(seconds=60))

grouped.windowed_by(TimeWindows("1 month"))
→ 1: windowed_by: size: '1 month' is not a duration; write a number and a unit, as in '1 minute' or '30 seconds'. Write CalendarWindows('1 month', time_zone='Europe/Berlin')

grouped.windowed_by(SlidingWindows(size="5 minutes"))
→ 1: SlidingWindows: there is no argument 'size'. Write time_difference='5 minutes'

grouped.windowed_by(TimeWindows("1 minute")).count().to_stream().suppress(UntilWindowCloses())
→ 1: 'KStream' object has no attribute 'suppress'. Write it before to_stream(): count().suppress(UntilWindowCloses()).to_stream()

grouped.windowed_by(TimeWindows("1 minute")).count().suppress(UntilWindowCloses(max_records=5))
→ 1: UntilWindowCloses: there is no argument 'max_records'. Leave it out: windows wait in the state store of the aggregate, and not in memory. A window is passed when it closes, and not before

grouped.windowed_by(TimeWindows("1 minute")).count().emit_strategy(OnWindowClose())
→ 1: 'KTable' object has no attribute 'emit_strategy'. Write emit_strategy before the aggregate: group_by('key').windowed_by(…).emit_strategy(…).count()

# Functions of another kind

async def score(order): ...
orders.map_values(score, schema="n bigint")
→ 2: map_values: orders.score is an async def, whose result nobody awaits. Write def

def scores(order): yield order
orders.map_values(scores, schema="n bigint")
→ 2: map_values: orders.scores yields, and one result is expected. Write return. flat_map_values(function) gives several records

def is_large(order): yield True
orders.filter(is_large)
→ 2: filter: orders.is_large yields, and one result is expected. Write return. flat_map_values(function) gives several records

def size(order) -> int: ...
orders.map_values(size)
→ 2: map_values: orders.size returns int, which does not tell the fields of a value. Annotate a dataclass, or write schema='id string, risk double'

def misspelt(order: "Ordr") -> "Ordr": ...
orders.map_values(misspelt)
→ 2: map_values: an annotation of orders.misspelt cannot be read: name 'Ordr' is not defined. Import it, or correct it

orders.map(lambda key, value: (key, value), schema="id string")
→ 1: map: the argument value is missing. For example stream.map("customer", {"total": "price * count"})

orders.filter("  ")
→ 1: filter: the expression is empty. Write one, as in 'amount > 0'

orders.filter(payments)
→ 1: filter: condition is a KStream; it takes a text or a function. For example stream.filter("amount > 0")

# Stores of processors

orders.process(Forgetful, KeyValueStore(String(), Long()))
→ 1: process: KeyValueStore(String(), Long()) is one argument too many: it takes at most 1 without a name. Write stores={'name': KeyValueStore(String(), Long())}

orders.process(Detector, store="seen", state=Json("n bigint"))
→ 1: process: state is a Json; it takes a text. Write its text: 'n bigint'

orders.process(Forgetful, stores={"seen": KeyValueStore(str, int)})
→ 1: KeyValueStore: key_serde is the class str; it takes a serde of keys. Write String()
→ 1: KeyValueStore: value_serde is the class int; it takes a serde. Write Long()

orders.process(Forgetful, stores={"seen": WindowStore(String(), Long(), retention="1 hour")})
→ 1: WindowStore: the argument size is missing. For example WindowStore(String(), Long(), retention="10 minutes", size="5 minutes")

class Java(Processor):
    def init(self, context): context.getStateStore("seen")
    def process(self, record): ...
orders.process(Java, stores={"seen": KeyValueStore(String(), Long())})
→ 4: process: Java.init: 'ProcessorContext' object has no attribute 'getStateStore'. Write get_state_store(…)

class Early(Processor):
    def init(self, context): context.get_state_store("seen").put("a", 1)
    def process(self, record): ...
orders.process(Early, stores={"seen": KeyValueStore(String(), Long())})
→ 4: process: Early.init: the store has no put() yet. Keep the store in init, and use it in process or in a punctuator. What it is to have from the beginning is put by the first record that finds it empty

class Unscheduled(Processor):
    def init(self, context): context.schedule("1 minute", STREAM_TIME)
    def process(self, record): ...
orders.process(Unscheduled, stores={"seen": KeyValueStore(String(), Long())})
→ 4: process: Unscheduled.init raised TypeError: ProcessorContext.schedule() missing 1 required positional argument: 'punctuator'. For example context.schedule('1 minute', STREAM_TIME, self.punctuate)

class Careless(Processor):
    def init(self): ...
    def process(self, record): ...
orders.process(Careless, stores={"seen": KeyValueStore(String(), Long())})
→ 4: process: Careless.init takes (self), and is called with self, the context. Write def init(self, context)

class Configured(Processor):
    def init(self, context): self.url = context.appConfigs()["url"]
    def process(self, record): ...
orders.process(Configured, stores={"seen": KeyValueStore(String(), Long())})
→ 4: process: Configured.init: 'ProcessorContext' object has no attribute 'appConfigs'. Read it from os.environ, or from a constant of the module: a declaration has no configuration of the client

orders.process(Detector, stores={"products": products})
→ 1: process: Detector.process takes (self, record, store), and is called with self, the record. Write def process(self, record)
→ 1: process: the store of the table is 'products-STATE-STORE-0000000006', and not 'products'. Write global_table(…, store='products'), or stores={'products-STATE-STORE-0000000006': …}

customers.suppress(UntilTimeLimit("5 minutes", max_bytes=10_000))
→ 1: UntilTimeLimit: there is no argument 'max_bytes'. The buffer is on disk, and bounded by its number of keys: max_records=10_000

class Awaited(Processor):
    async def process(self, record): ...
orders.process(Awaited, stores={"seen": KeyValueStore(String(), Long())})
→ 3: process: orders.Awaited.process is an async def, whose result nobody awaits. Write def

# More expressions of F

orders.filter(F)
→ 1: filter: condition is F; it takes a text or a function. Write a field of it: F.amount

orders.filter(F.amount.is_null)
→ 1: filter: condition is the method is_null, which is not called; it takes a text or a function. Write F.amount.is_null()

orders.filter(F.amount is None)
→ 1: filter: condition is False; it takes a text or a function. Python has computed it before there is a record. Write an expression: 'amount > 0', and F.amount.is_null() for 'is None'

orders.filter(F.when(F.amount > 0, True).otherwise(False))
→ 1: when(amount > 0, true).otherwise(…): an expression has no method 'otherwise'. Write F.when(condition, value, otherwise)

orders.map_values(n=5)
→ 1: map_values: the field n is the number 5; it takes an expression of F. Write n=F.lit(5)

orders.map_values(n=len(F.customer))
→ 1: customer: len() is a function of Python, and an expression has no value here. Write F.length(F.customer) for a text, and F.size(F.customer) for an array

orders.map_values(n=round(F.amount))
→ 1: amount: round() is a function of Python, and an expression has no value here. Write F.round(F.amount, 2)

orders.map_values(n=F.id[1:3])
→ 1: [1:3] is no part of a field. Write F.substr(F.id, 1, 2) for a part of a text, and F.slice(F.id, 1, 2) for one of an array

grouped.aggregate(n=F.amount.sum)
→ 1: aggregate: the field n is the method sum, which is not called; it takes an expression of F. Write F.amount.sum()

grouped.aggregate(n=F.count)
→ 1: aggregate, n: the value has no field 'count'. Write F.count(…) for the function

grouped.aggregate(n=F.amount.mean())
→ 1: F.amount.mean(…): an expression has no method 'mean'. Write F.amount.avg()

F.amount = 5
→ 1: F.amount = …: a record does not change. Write map_values(amount=…, id=F.id): it names every field of the new value

orders.join(customers, {"city": F.city})
→ 1: join, city: the value has no field 'city'. Write F.table.city

# Dataclasses

@dataclass
class Photo:
    raw: bytes
topology.stream("clicks", value=Json(Photo))
→ 4: Json: Photo.raw: JSON has no bytes. Write str, for a text such as Base64

@dataclass
class Tagged:
    tags: set[str]
topology.stream("clicks", value=Json(Tagged))
→ 4: Json: Tagged.tags: set[str] cannot be the type of a field. Write list[…]

@dataclass
class Either:
    id: int | str
topology.stream("clicks", value=Json(Either))
→ 4: Json: Either.id: int | str cannot be the type of a field. Write one type, or one and None: str | None

class Color(Enum):
    RED = "red"
@dataclass
class Car:
    color: Color
topology.stream("clicks", value=Json(Car))
→ 6: Json: Car.color: Color is neither an IntEnum nor a StrEnum. Write class Color(StrEnum)

class Plain:
    id: str
topology.stream("clicks", value=Json(Plain))
→ 3: Json: Plain is not a dataclass with annotated fields. Write @dataclass before class Plain

class Row(NamedTuple):
    id: str
topology.stream("clicks", value=Json(Row))
→ 3: Json: Row is not a dataclass. Write @dataclass before class Row

# Schemas as texts

topology.stream("clicks", value=Json("id: string"))
→ 1: Json: 'id: string' is not a field: write a name and a type, as in 'Id string'. Write 'id string'

topology.stream("clicks", value=Json("id long"))
→ 1: Json: id: type 'long' is not one of string, int, bigint, double, boolean, timestamp, date, decimal(p,s), struct<…>, array<…>, map<string, …>. Write bigint in place of long

topology.stream("clicks", value=Json("id string,"))
→ 1: Json: '' is not a field: write a name and a type, as in 'Id string'. Leave out the comma at the end

topology.stream("clicks", value=Avro({"type": "record"}))
→ 1: Avro: schema is a mapping; it takes a text. Write it as a text, Avro(json.dumps(…)), or the name of a file that has it

topology.stream("clicks", value=Protobuf("order.proto", "Order"))
→ 1: Protobuf: max_bytes is the text 'Order'; it takes a whole number. Write message='Order'

# Words of Faust, Flink and pandas

topology.agent("orders")
→ 1: 'Topology' object has no attribute 'agent'. Write operations behind topology.stream('topic', value=…), each of which sees all records

topology.start()
→ 1: 'Topology' object has no attribute 'start'. Write Pipeline(name='…', topology=topology, description='…'), which the aggregator runs

orders.take(5)
→ 1: 'KStream' object has no attribute 'take'. Write print() on a stream, or TopologyTestDriver of streamplan.testing in a test

orders.key_by("customer")
→ 1: 'KStream' object has no attribute 'key_by'. Write group_by('key'), or select_key('key')

orders.rename({"id": "order"})
→ 1: 'KStream' object has no attribute 'rename'. Write map_values({'field': 'expression'}): it names every field of the new value

orders.columns
→ 1: 'KStream' object has no attribute 'columns'. Write repr(stream), which tells the fields

# What a PySpark user writes

grouped.aggregate(F.amount.sum().alias("total"))
→ 1: sum(amount).alias(…): an expression has no method 'alias'. Write aggregate(total=F.amount.sum()): the argument names it

grouped.aggregate((F.amount * 2).sum().alias("total"))
→ 1: sum(amount * 2).alias(…): an expression has no method 'alias'. Write aggregate({'total': 'sum(amount * 2)'}): the key of the mapping names it

grouped.aggregate(F.count().alias("orders"))
→ 1: count(*).alias(…): an expression has no method 'alias'. Write aggregate({'orders': 'count(*)'}): the key of the mapping names it

orders.map_values((F.amount * 2).alias("twice"))
→ 1: (amount * 2).alias(…): an expression has no method 'alias'. Write map_values({'twice': 'amount * 2'}): the key of the mapping names it

orders.map_values(F.amount.name("paid"))
→ 1: F.amount.name(…): an expression has no method 'name'. Write map_values(paid=F.amount): the argument names it

from pyspark.sql.types import DoubleType, StringType, StructType
topology.stream("x", value=Json(StructType().add("id", StringType()).add("amount", DoubleType())))
→ 2: Json: schema is a StructType; it takes a text or a dataclass. Write it as one text: Json('id string, amount double')

from pyspark.sql.types import StructType
topology.stream("x", value=Json(StructType()))
→ 2: Json: schema is a StructType; it takes a text or a dataclass. Write it as one text: Json('id string, amount double')

from pyspark.sql.types import LongType, StringType, StructType
topology.stream("x", value=StructType().add("id", StringType()))
orders.map_values(by_customer, schema=StructType().add("n", LongType()))
orders.map_values(total=F.amount.cast(StringType()))
→ 2: stream: value is a StructType; it takes a serde. Write Json('id string')
→ 3: map_values: schema is a StructType; it takes a text. Write it as one text: 'n bigint'
→ 4: cast: field_type is a StringType; it takes a text. Write 'string'

topology.stream("x", value=Json(by_customer))
→ 1: Json: schema is the function by_customer; it takes a text or a dataclass. Write it as one text: Json('id string, amount double')

orders.map_values("amount * 2 as double")
→ 1: map_values: value is the text 'amount * 2 as double'; it takes a mapping such as {'name': 'expression'} or a function. Say what the field is called: {'double': 'amount * 2'}

grouped.aggregate(["sum(amount) AS total", "max(amount)"])
→ 1: aggregate: value is a list; it takes a mapping such as {'name': 'expression'} or a function. Write {'total': 'sum(amount)', 'max(amount)': 'max(amount)'}

orders.group_by(F.window(F.at, "5 minutes"), F.customer).count()
→ 1: group_by: F.customer is one argument too many: it takes at most 1 without a name. Write group_by(F.customer).windowed_by(TimeWindows('5 minutes'))

orders.group_by("customer", "session_window(at, '1 hour')").count()
→ 1: group_by: "session_window(at, '1 hour')" is one argument too many: it takes at most 1 without a name. Write group_by('customer').windowed_by(SessionWindows('1 hour'))

orders.group_by([F.customer, F.window(F.at, "5 minutes", "1 minute")]).count()
→ 1: group_by: key is a list; it takes a text or a function. Write group_by(F.customer).windowed_by(TimeWindows('5 minutes', advance='1 minute'))

topology.stream("x", schema="id string")
topology.table("y", value_serde="id string")
orders.to("out", schema="id string")
→ 1: stream: there is no argument 'schema'. Write value=Json('id string')
→ 2: table: there is no argument 'value_serde'. Write value=Json('id string')
→ 3: to: there is no argument 'schema'. Write value=Json('id string')

grouped.count().to_stream().map_values({"customer": "customer", "n": "count"})
→ 1: map_values, customer: the value has no field 'customer'. It has: count. The key customer is record.key

grouped.windowed_by(TimeWindows("5 minutes")).count().to_stream().map_values({"c": "customer", "at": "window.start", "n": "count"})
→ 1: map_values, c: the value has no field 'customer'. It has: count. The key customer is record.key. The window is record.window.start
→ 1: map_values, at: the value has no field 'window'. Write record.window.start

grouped.windowed_by(TimeWindows("5 minutes")).count().to_stream().map_values(c=F.customer, at=F.window.start, n=F.count)
→ 1: map_values, c: the value has no field 'customer'. It has: count. The key customer is F.record.key. The window is F.record.window.start
→ 1: map_values, at: the value has no field 'window'. Write F.record.window.start

orders.group_by("struct(customer, id)", key_serde=Json("customer string, id string")).count().to_stream().map_values({"c": "customer"})
→ 1: map_values, c: the value has no field 'customer'. It has: count. It is a part of the key: record.key.customer

# What Python does with values

len(orders)
→ 1: 'KStream' object has no 'len'. A declaration has no records yet. Write foreach(function) to call a function for each, and read them in a test with TopologyTestDriver of streamplan.testing

orders()
→ 1: 'KStream' object has no '(…)'. Write one of its operations: .filter(…), .to(…)

-orders
→ 1: 'KStream' object has no '-'. A stream is no column. Write a field in an expression: filter('amount > 0'), or filter(F.amount > 0)

orders >> payments
→ 1: 'KStream' object has no '>>'. Write an operation behind it: stream.filter('condition').to('topic')

with orders: ...
→ 1: 'KStream' object has no 'with'. A declaration opens nothing. Write stream = topology.stream('topic', value=…)

# In the place of another argument

orders.to("concat('orders-', customer)")
→ 1: to: an expression is given without the topics. Write topics=('a', 'b') beside it

orders.to("'orders-' || customer")
→ 1: to: an expression is given without the topics. Write topics=('a', 'b') beside it

orders.split(name="by-").branch("amount > 0", "large")
→ 1: branch: 'large' is one argument too many: it takes at most 1 without a name. Write name='large'

orders.filter(lambda order: order.amount > 0, "positive")
→ 1: filter: 'positive' is one argument too many: it takes at most 1 without a name. Write name='positive'

orders.filter(lambda order: order.amount > 0, "stop")
→ 1: filter: 'stop' is one argument too many: it takes at most 1 without a name. Write on_error='stop'

topology.stream("clicks", "views", value=Json("page string"))
→ 1: stream: 'views' is one argument too many: it takes at most 1 without a name. Write the topics in parentheses: stream(('clicks', 'views'), value=…)

customers.join(payments.to_table(), {"paid": "table.paid"}, within=JoinWindows("1 minute"))
→ 1: join: there is no argument 'within'. Two streams are joined within a time. Tables are joined by their keys alone

topology.table("cities", value=Json("name string"), store=KeyValueStore(String(), Long()))
→ 1: table: store is a KeyValueStore; it takes a text or a Versioned. Write its name: store='name'

grouped.aggregate({"n": "count(*)"}, store=KeyValueStore(String(), Long()))
→ 1: aggregate: store is a KeyValueStore; it takes a text. Write its name: store='name'

topology.stream("clicks", value=Json("page string"), key_serde=TimeWindowed)
→ 1: stream: key_serde=TimeWindowed is no serde of keys. Write TimeWindowed(String())

Pipeline(topology, "orders", "Counts orders.")
→ 1: Pipeline: name is a Topology; it takes a text. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})
→ 1: Pipeline: topology is the text 'orders'; it takes a Topology. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})

Pipeline("orders", "topology", "Counts orders.")
→ 1: Pipeline: topology is the text 'topology'; it takes a Topology. For example Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})

# All at once

orders.filter(5).group_by("custmer").count(store=7)
orders.join(payments, {"id": "id"}).to("out")
Pipeline("orders", topology, "Counts orders.", purge="yes")
→ 1: filter: condition is the number 5; it takes a text or a function. For example stream.filter("amount > 0")
→ 1: group_by: the value has no field 'custmer'. It has: id, customer, amount. Did you mean customer?
→ 1: count: store is the number 7; it takes a text. For example grouped.count(store="orders-per-customer")
→ 2: join: how far apart in time the records may be is not given. For example within=JoinWindows('5 minutes')
→ 3: Pipeline: purge is the text 'yes'; it takes True or False. Write True or False

orders.filter("amont")
orders.groupBy("customer")
→ 2: 'KStream' object has no attribute 'groupBy'. Write group_by(…)
→ The lines before it have faults, too:
→ 1: filter: the value has no field 'amont'. It has: id, customer, amount. Did you mean amount?
"""  # noqa: E501


def blocks() -> list[tuple[str, list[str]]]:
    """The declarations of the page, each with its answers."""
    found = []
    for block in PAGE.strip().split("\n\n"):
        lines = block.splitlines()
        if not block.startswith("#"):
            answers = [line.removeprefix("→ ") for line in lines if line.startswith("→ ")]
            found.append(("\n".join(line for line in lines if not line.startswith("→ ")), answers))
    return found


def answers_to(declaration: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of a declaration, each with the number of its line."""
    module = ModuleType("orders")  # dataclasses look for theirs
    monkeypatch.setitem(sys.modules, "orders", module)
    names = vars(module)
    exec(compile(BEFORE, "before.py", "exec"), names)
    try:
        exec(compile(declaration, "orders.py", "exec"), names)
    except (NoSuchOperation, NoTruthValue) as error:
        (line,) = {each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == "orders.py"}
        told = f"{line}: {error}".splitlines()
    except Refused as error:
        told = str(error).splitlines()[1:]
    else:
        told = [str(fault) for fault in names["topology"].faults]
    return [line.strip().removeprefix("orders.py:") for line in told]


@pytest.mark.parametrize(("declaration", "answers"), blocks(), ids=lambda each: None)
def test_a_mistake_is_answered_with_what_to_write(
    declaration: str, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers_to(declaration, monkeypatch) == answers


def test_the_page_has_two_hundred_mistakes() -> None:
    assert len(blocks()) >= 200
