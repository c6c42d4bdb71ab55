"""librdkafka: a group's members are replaced one by one by such with the other group protocol.

Usage: kafka_migration.py BOOTSTRAP
"""

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})
producer = Producer({"bootstrap.servers": bootstrap})
PARTITIONS, EACH = 4, 50
deadline = time.monotonic() + 240

CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
PROTOCOLS = {
    "range": CLASSIC | {"partition.assignment.strategy": "range"},
    "cooperative": CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Group:
    def __init__(self):
        self.topic, self.name = f"migration-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(20)
        self.members, self.sent, self.seen = [], 0, set()

    def start(self, protocol):
        def on_error(error):
            assert not error.fatal(), error

        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "error_cb": on_error,
        }
        member = Consumer(settings | PROTOCOLS[protocol])
        member.subscribe([self.topic])
        self.members.append(member)

    def send(self):
        for index in range(self.sent, self.sent + EACH):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, value=b"%d" % index, partition=partition)
        assert producer.flush(20) == 0
        self.sent += EACH

    def settle(self):
        """Reads until the members share evenly and have read all."""
        everything = {(p, i) for p in range(PARTITIONS) for i in range(self.sent)}

        def is_settled():
            sizes = [len(member.assignment()) for member in self.members]
            each = PARTITIONS // len(self.members)
            return sizes == [each] * len(self.members) and self.seen >= everything

        while not is_settled():
            missing = len(everything - self.seen)
            assert time.monotonic() < deadline, f"no progress: {missing} records are missing"
            for member in self.members:
                message = member.poll(0.1)
                if message is None:
                    continue
                if message.error():
                    assert not message.error().fatal(), message.error()
                    continue
                self.seen.add((message.partition(), int(message.value())))

    def kind(self):
        future = admin.list_consumer_groups()
        found = [g for g in future.result().valid if g.group_id == self.name]
        return found[0].type.name


for classic in ("range", "cooperative"):
    group = Group()
    group.send()
    group.start(classic)
    group.start(classic)
    group.settle()
    assert group.kind() == "CLASSIC", group.kind()
    for to in ("consumer", classic):
        for at in range(2):
            group.members.pop(0).close()
            group.start(to)
            group.send()
            group.settle()
            if at == 0:
                assert group.kind() == "CONSUMER", group.kind()
        assert group.kind() == ("CONSUMER" if to == "consumer" else "CLASSIC"), group.kind()
    for member in group.members:
        member.close()
print(json.dumps({"read": len(group.seen)}))
