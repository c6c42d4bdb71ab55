"""Transactions of librdkafka: commit, abort, offsets, fencing, and going on after a killed broker.

Usage: kafka_transactions.py BOOTSTRAP rules
       kafka_transactions.py BOOTSTRAP work TOPIC COMMITTED ABORTED STOP
       kafka_transactions.py BOOTSTRAP check TOPIC COMMITTED ABORTED [GROUP...]

`rules` checks each rule once. `work` commits and aborts transactions of two records in two
partitions until the file STOP is there, noting the number of each transaction when its end was
answered; it takes the broker's kills as they come. `check` reads the topic back; with groups there
was a worker each, which had every so-manieth number and committed it as an offset of its group.
"""

import os
import sys
import time
import uuid

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, task = sys.argv[1:3]


def create(topic, partitions):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def transactional(name, **settings):
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 1,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            **settings,
        }
    )
    producer.init_transactions(60)
    return producer


def read(topic, isolation, partitions=1):
    """All values of the topic, as a consumer of this isolation is shown them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values, ended = [], set()
    deadline = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"the end of {topic} does not come"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()
    return values


def commits_and_aborts():
    create("ends", 1)
    producer = transactional("ends")
    for number in range(6):
        producer.begin_transaction()
        producer.produce("ends", f"{number}", partition=0)
        producer.flush(30)
        if number == 0:
            assert read("ends", "read_committed") == [], "an open transaction is visible"
            assert read("ends", "read_uncommitted") == ["0"]
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert read("ends", "read_committed") == ["0", "2", "4"]
    assert read("ends", "read_uncommitted") == [str(n) for n in range(6)]


def offsets_go_with_their_transaction():
    create("source", 1)
    create("target", 1)
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        plain.produce("source", f"{number}", partition=0)
    assert plain.flush(30) == 0
    producer = transactional("copier")
    for outcome in ("abort", "commit"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["source"])
        producer.begin_transaction()
        copied = 0
        deadline = time.monotonic() + 60
        while copied < 10:
            assert time.monotonic() < deadline, "the source cannot be read"
            message = consumer.poll(1)
            if message is None or message.error():
                continue
            producer.produce("target", message.value(), partition=0)
            copied += 1
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        if outcome == "abort":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        (committed,) = consumer.committed([TopicPartition("source", 0)], 30)
        assert committed.offset == (-1001 if outcome == "abort" else 10), (outcome, committed)
        consumer.close()
    assert read("target", "read_committed") == [str(n) for n in range(10)]


def a_new_instance_fences_the_old_one():
    create("fenced", 1)
    old = transactional("fenced")
    old.begin_transaction()
    old.produce("fenced", "old", partition=0)
    old.flush(30)
    new = transactional("fenced")
    new.begin_transaction()
    new.produce("fenced", "new", partition=0)
    new.commit_transaction(30)
    try:
        old.commit_transaction(30)
        raise AssertionError("the old instance has committed")
    except KafkaException as error:
        assert error.args[0].fatal() and error.args[0].code() == KafkaError._FENCED, error
    assert read("fenced", "read_committed") == ["new"]


def what_takes_too_long_is_aborted():
    create("slow", 1)
    producer = transactional("slow", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce("slow", "late", partition=0)
    producer.flush(30)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("slow", "plain", partition=0)
    assert plain.flush(30) == 0
    deadline = time.monotonic() + 60
    while read("slow", "read_committed") != ["plain"]:
        assert time.monotonic() < deadline, "the open transaction is not aborted"
        time.sleep(0.1)
    try:
        producer.commit_transaction(30)
        raise AssertionError("a transaction that was aborted has committed")
    except KafkaException:
        pass


def work(topic, committed_path, aborted_path, stop_path):
    committed = open(committed_path, "ab", buffering=0)
    aborted = open(aborted_path, "ab", buffering=0)
    producer, number = None, 0
    while not os.path.exists(stop_path):
        number += 1
        try:
            producer = producer or transactional("worker", **{"message.timeout.ms": 60000})
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(topic, f"{number}:{partition}", partition=partition)
            # Else this client has an abort send none of its records.
            if number % 2:
                producer.flush(60)
            if number % 3:
                retried(lambda: producer.commit_transaction(60))
                committed.write(b"%d\n" % number)
            else:
                retried(lambda: producer.abort_transaction(60))
                aborted.write(b"%d\n" % number)
        except KafkaException:
            # Nobody knows how this one ended; the next instance ends it if it is open.
            producer = None


def retried(call):
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def check(topic, committed_path, aborted_path, *groups):
    values = read(topic, "read_committed", partitions=2)
    assert len(values) == len(set(values)), "a record is there twice"
    last = {}
    for value in values:
        number, partition = map(int, value.split(":"))
        of = (partition, number % max(len(groups), 1))
        assert number > last.get(of, -1), f"{value} comes after {last[of]}"
        last[of] = number
    seen = {}
    for value in values:
        seen.setdefault(int(value.split(":")[0]), []).append(value)
    committed = {int(line) for line in open(committed_path)}
    aborted = {int(line) for line in open(aborted_path)}
    assert committed <= set(seen), f"lost: {sorted(committed - set(seen))[:5]}"
    assert not aborted & set(seen), f"aborted but visible: {sorted(aborted & set(seen))[:5]}"
    halves = [number for number, records in seen.items() if len(records) != 2]
    assert not halves, f"there in part: {halves[:5]}"
    for worker, group in enumerate(groups):
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (offset,) = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
        assert offset.offset == last[(0, worker)], (group, offset, last)
    # Else hiding them would be no feat.
    written = set(read(topic, "read_uncommitted", partitions=2))
    hidden = [number for number in aborted if f"{number}:0" in written]
    assert hidden or not aborted, "no aborted transaction had come to write"
    print(f"{len(committed)} committed, {len(aborted)} aborted, {len(seen)} visible")


if task == "rules":
    commits_and_aborts()
    offsets_go_with_their_transaction()
    a_new_instance_fences_the_old_one()
    what_takes_too_long_is_aborted()
elif task == "work":
    work(*sys.argv[3:7])
else:
    check(*sys.argv[3:])
