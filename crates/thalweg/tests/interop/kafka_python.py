"""kafka-python against one broker: every codec, groups, idempotence, transactions, admin.

Usage: kafka_python.py BOOTSTRAP
Prints one JSON object with the topic of each codec and the bytes of its payloads; exits non-zero on
the first thing that is not as Kafka has it.
"""

import json
import os
import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

bootstrap = sys.argv[1]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
payloads = [b"x" * 90 + os.urandom(6) + b"%d" % i for i in range(1000)] + [b"", b"y" * 200_000]
admin = KafkaAdminClient(bootstrap_servers=bootstrap)


def create(topic, partitions):
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})


def produce(topic, values, partition=0, **settings):
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings)
    sent = [
        producer.send(topic, value, key=b"k%d" % i, partition=partition, headers=[("i", b"%d" % i)])
        for i, value in enumerate(values)
    ]
    producer.flush(20)
    offsets = [future.get(20).offset for future in sent]
    producer.close()
    return offsets


def take(consumer, count):
    records = []
    while len(records) < count:
        polled = consumer.poll(timeout_ms=20_000)
        assert polled, f"only {len(records)} of {count} came"
        records.extend(record for some in polled.values() for record in some)
    return records


def read(topic, count, **settings):
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", **settings
    )
    consumer.assign([TopicPartition(topic, 0)])
    records = take(consumer, count)
    consumer.close()
    return records


def codecs():
    for codec in CODECS:
        topic = f"kafka-python-{codec}"
        create(topic, 1)
        compression = None if codec == "none" else codec
        produce(topic, payloads, acks="all", compression_type=compression)
        records = read(topic, len(payloads))
        assert [r.value for r in records] == payloads, codec
        assert [r.offset for r in records] == list(range(len(payloads))), codec
        assert (records[7].key, records[7].headers) == (b"k7", [("i", b"7")]), records[7]


def groups():
    topic, group = "kafka-python-group", "kafka-python-group"
    create(topic, 3)

    def send(values):
        for partition in range(3):
            produce(topic, values, partition)

    def member(count):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        records = take(consumer, count)
        consumer.commit()
        consumer.close()
        return sorted((r.partition, r.value) for r in records)

    old, new = [b"old %d" % i for i in range(50)], [b"new %d" % i for i in range(10)]
    send(old)
    assert member(150) == sorted((p, v) for p in range(3) for v in old)
    send(new)
    # The next member goes on after the commits: all that is new, and nothing twice.
    assert member(30) == sorted((p, v) for p in range(3) for v in new)
    committed = admin.list_group_offsets(group)[group]
    assert {at.partition: offset.offset for at, offset in committed.items()} == {0: 60, 1: 60, 2: 60}
    assert group in [g["group_id"] for g in admin.list_groups()]
    assert admin.delete_groups([group]) == {group: "OK"}


def idempotence():
    create("kafka-python-idempotent", 1)
    offsets = produce("kafka-python-idempotent", payloads, enable_idempotence=True, acks="all")
    assert offsets == list(range(len(payloads)))


def transactions():
    topic = "kafka-python-transactions"
    create(topic, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kafka-python")
    producer.init_transactions()
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for _ in range(10):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(20)
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()
    committed = read(topic, 20, isolation_level="read_committed")
    assert [r.value for r in committed] == [b"0"] * 10 + [b"2"] * 10
    everything = read(topic, 30, isolation_level="read_uncommitted")
    assert len(everything) == 30


def administration():
    topic = "kafka-python-admin"
    create(topic, 3)
    try:
        create(topic, 3)
        raise SystemExit("a topic was created twice")
    except TopicAlreadyExistsError:
        pass
    assert topic in admin.list_topics()
    [described] = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3, described
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    try:
        admin.delete_topics([topic])
        raise SystemExit("a topic was deleted twice")
    except UnknownTopicOrPartitionError:
        pass


STEPS = (codecs, groups, idempotence, transactions, administration)
for step in STEPS:
    step()
admin.close()
print(json.dumps({
    "steps": [step.__name__ for step in STEPS],
    "topics": {codec: f"kafka-python-{codec}" for codec in CODECS},
    "bytes": sum(map(len, payloads)),
}))
