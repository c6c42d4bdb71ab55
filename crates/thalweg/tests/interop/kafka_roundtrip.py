"""librdkafka (through confluent-kafka) against one broker: admin, produce, consume, byte for byte.

Usage: kafka_roundtrip.py BOOTSTRAP
Prints one JSON object; exits non-zero on the first thing that is not as Kafka has it.
"""

import json
import os
import sys
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})


def create(topic, partitions):
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def produce(topic, payloads, **settings):
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for index, payload in enumerate(payloads):
        producer.produce(
            topic,
            key=b"k%d" % index,
            value=payload,
            headers=[("index", b"%d" % index), ("none", None)],
            partition=0,
            on_delivery=lambda error, message: failures.append(str(error)) if error else None,
        )
        producer.poll(0)
    left = producer.flush(20)
    assert left == 0 and not failures, (settings, left, failures[:3])


def consume(topic, count, start=0):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, start)])
    messages = []
    while len(messages) < count:
        message = consumer.poll(20)
        assert message is not None, f"only {len(messages)} of {count} came from {topic}"
        if message.error():
            raise KafkaException(message.error())
        messages.append(message)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return messages, (low, high)


checked = []
for settings in (
    {"acks": "0"},
    {"acks": "1"},
    {"acks": "all"},
    {"enable.idempotence": True},
    {"compression.type": "gzip"},
    {"compression.type": "snappy"},
    {"compression.type": "lz4"},
    {"compression.type": "zstd"},
):
    topic = f"roundtrip-{uuid.uuid4()}"
    create(topic, 1)
    payloads = [os.urandom(50) + b"x" * 500 + b"%d" % i for i in range(500)] + [b"", b"y" * 500_000]
    produce(topic, payloads, **settings)
    messages, (low, high) = consume(topic, len(payloads))
    assert [m.value() for m in messages] == payloads, f"payloads differ with {settings}"
    assert [m.offset() for m in messages] == list(range(len(payloads))), settings
    assert messages[7].key() == b"k7" and messages[7].headers() == [("index", b"7"), ("none", None)]
    assert (low, high) == (0, len(payloads)), (low, high)
    tail, _ = consume(topic, 2, start=len(payloads) - 2)
    assert [m.value() for m in tail] == payloads[-2:]
    checked.append(settings)

# A topic made twice, an unknown topic, and a topic's end are told in Kafka's own words.
topic = f"roundtrip-{uuid.uuid4()}"
create(topic, 3)
try:
    create(topic, 3)
    raise SystemExit("a topic was created twice")
except KafkaException as error:
    assert error.args[0].name() == "TOPIC_ALREADY_EXISTS", error
assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 3
admin.delete_topics([topic])[topic].result(20)
assert topic not in admin.list_topics(timeout=10).topics
print(json.dumps({"checked": checked}))
