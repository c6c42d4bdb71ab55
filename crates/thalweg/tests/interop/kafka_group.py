"""librdkafka consumer groups of both protocols: two members share, one leaves, a third resumes.

Usage: kafka_group.py BOOTSTRAP
"""

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
topic, group = f"group-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
producer = Producer({"bootstrap.servers": bootstrap})
PARTITIONS, EACH = 4, 100
deadline = time.monotonic() + 120


def send(first):
    for index in range(first, first + EACH):
        for partition in range(PARTITIONS):
            producer.produce(topic, value=b"%d" % index, partition=partition)
    assert producer.flush(20) == 0


CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
STRATEGIES = {
    "range": CLASSIC | {"partition.assignment.strategy": "range"},
    "cooperative": CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
    "uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    "pattern": {"group.protocol": "consumer"},
}


def member(strategy):
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings | STRATEGIES[strategy])
    # A leading circumflex makes librdkafka's subscription a regular expression.
    consumer.subscribe(["^" + topic[:-1] + "[0-9a-f]"] if strategy == "pattern" else [topic])
    return consumer


def drain(consumers, seen, until):
    while not until():
        assert time.monotonic() < deadline, f"group made no progress: {len(seen)} records"
        for consumer in consumers:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                seen.append((message.partition(), int(message.value())))


def sizes(consumers):
    return sorted(len(c.assignment()) for c in consumers)


for strategy in STRATEGIES:
    group = f"g-{uuid.uuid4()}"
    seen = []
    send(0)
    first = member(strategy)
    drain([first], seen, lambda: sizes([first]) == [PARTITIONS])
    second = member(strategy)
    drain([first, second], seen, lambda: sizes([first, second]) == [2, 2])
    everything = {(p, i) for p in range(PARTITIONS) for i in range(EACH)}
    drain([first, second], seen, lambda: set(seen) >= everything)
    first.commit(asynchronous=False)
    second.commit(asynchronous=False)
    first.close()
    drain([second], seen, lambda: sizes([second]) == [PARTITIONS])
    second.close()
    # A later member goes on after the commits: it sees what is new, and nothing twice.
    before = len(set(seen))
    send(EACH)
    third, resumed = member(strategy), []
    drain([third], resumed, lambda: len(resumed) >= PARTITIONS * EACH)
    fresh = {(p, i) for p, i in resumed}
    assert len(fresh) == len(resumed), "a record came twice after the commit"
    assert all(index >= EACH for _, index in fresh), sorted(fresh)[:5]
    third.close()
    topic = f"group-{uuid.uuid4()}"
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
print(json.dumps({"shared": before, "resumed": len(resumed)}))
