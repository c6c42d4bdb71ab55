"""librdkafka, and kafka-python beside it: a group's members are replaced one by one by such with the
other group protocol. kafka-python has the older one only.

Usage: kafka_migration.py BOOTSTRAP
"""

import json
import queue
import sys
import threading
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

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


class PythonMember:
    """kafka-python's consumer with the calls of librdkafka's, as far as they are used here. It joins
    on a thread of its own: a member that joins waits for the others."""

    def __init__(self, topic, group):
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self.messages, self.assigned, self.failure = queue.Queue(), [], None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.is_over.is_set():
                for records in self.consumer.poll(timeout_ms=100).values():
                    for record in records:
                        self.messages.put(PythonMessage(record))
                self.assigned = list(self.consumer.assignment())
            self.consumer.close()
        except Exception as failure:
            self.failure = failure

    def assignment(self):
        return self.assigned

    def poll(self, seconds):
        assert self.failure is None, repr(self.failure)
        try:
            return self.messages.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self):
        self.is_over.set()
        self.thread.join(30)
        assert not self.thread.is_alive() and self.failure is None, repr(self.failure)


class PythonMessage:
    def __init__(self, record):
        self.record = record

    def error(self):
        return None

    def partition(self):
        return self.record.partition

    def value(self):
        return self.record.value


class Group:
    def __init__(self):
        self.topic, self.name = f"migration-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(20)
        self.members, self.sent, self.seen = [], 0, set()

    def start(self, protocol):
        if protocol == "kafka-python":
            self.members.append(PythonMember(self.topic, self.name))
            return

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


for classic in ("range", "cooperative", "kafka-python"):
    group = Group()
    group.send()
    group.start(classic)
    group.start(classic)
    group.settle()
    # Who is left has been given what it held before: librdkafka's leader adds to that what it told.
    group.members.pop(0).close()
    group.settle()
    group.start(classic)
    group.settle()
    assert group.kind() == "CLASSIC", group.kind()
    for to in ("consumer", classic):
        for at in range(2):
            group.members.pop(0).close()
            # At times the others have shared anew before the next one comes.
            if classic != "range":
                group.settle()
            group.start(to)
            group.send()
            group.settle()
            if at == 0:
                assert group.kind() == "CONSUMER", group.kind()
        assert group.kind() == ("CONSUMER" if to == "consumer" else "CLASSIC"), group.kind()
    for member in group.members:
        member.close()
print(json.dumps({"read": len(group.seen)}))
