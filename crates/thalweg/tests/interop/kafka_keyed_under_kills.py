"""Keyed records and tombstones, and records that soon expire, while the broker compacts, expires and
is killed and started again.

Usage: kafka_keyed_under_kills.py BOOTSTRAP TABLE RECENT PROGRESS STOP

Four look at it at once until the file STOP is there, and take the kills as they come. A producer
writes numbered changes of keys to the compacted topic TABLE, and numbers to RECENT, which keeps few.
A reader reads TABLE again and again from its beginning: of each key it must find the last change
that was acknowledged before it began, or a later one. A follower consumes both topics for ever:
offsets grow, RECENT's numbers too. A watcher asks where RECENT begins and ends: neither goes back.
Counts of what each has done are kept in the file PROGRESS, as JSON. At last everything must be
acknowledged, and both reader and follower must know exactly the last change of each key.
"""

import json
import os
import random
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

bootstrap, table, recent, progress_path, stop_path = sys.argv[1:6]
KEYS = 2000
VALUE = b"x" * 700
# Tombstones stay for 10 s: a pass over the topic that takes longer may miss one.
PASS_SECONDS_MAX = 8
DEADLINE = 110

done = {"acked": 0, "tombstones": 0, "passes": 0, "followed": 0, "watched": 0}
sent = {}  # key -> (number, is tombstone), the last that was sent
acked = {}  # the same, the last that was acknowledged
ends = {table: 0, recent: 0}  # behind the last acknowledged offset
lock = threading.Lock()
written = threading.Event()
failures = []


def fail(message):
    failures.append(message)


def stopped():
    return bool(failures) or os.path.exists(stop_path)


def settings(**more):
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **more,
    }


def produce():
    producer = Producer(
        settings(
            **{
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": 60000,
                "message.timeout.ms": 120000,
            }
        )
    )

    def delivered(error, message, change):
        if error is not None:
            return fail(f"a record failed: {error}")
        topic = table if change else recent
        with lock:
            if message.offset() < ends[topic]:
                fail(f"{topic}: offset {message.offset()} after {ends[topic] - 1}")
            ends[topic] = message.offset() + 1
            done["acked"] += 1
            if change:
                key, number, is_tombstone = change
                acked[key] = (number, is_tombstone)
                done["tombstones"] += is_tombstone

    def send(topic, value, number, change):
        """Answers whether there was room for it."""
        try:
            producer.produce(
                topic,
                key=change and change[0],
                value=value,
                headers={"n": str(number)},
                partition=0,
                on_delivery=lambda error, message: delivered(error, message, change),
            )
            return True
        except BufferError:
            producer.poll(0.05)
            return False

    number = 0
    while not stopped():
        number += 1
        key = f"k{random.randrange(KEYS)}"
        value = None if random.random() < 0.3 else VALUE
        while not send(table, value, number, (key, number, value is None)) and not failures:
            pass
        while not send(recent, VALUE, number, None) and not failures:
            pass
        sent[key] = (number, value is None)
        producer.poll(0)
        if number % 50 == 0:
            time.sleep(0.02)
    if producer.flush(DEADLINE):
        fail("not everything was acknowledged")
    written.set()


def consumer(name):
    return Consumer(
        settings(
            **{
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed",
            }
        )
    )


def follows(state, message):
    """Takes a record of TABLE into what is known of each key."""
    state[message.key().decode()] = (int(dict(message.headers())["n"]), message.value() is None)


def problem(message):
    error = message.error()
    # The broker is away, or comes back.
    if error is not None and not error.retriable() and error.code() not in (
        KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    ):
        fail(f"a consumer is told {error}")
    return error is not None


def pass_over(name):
    """What each key is, by a read from the beginning to the end of now; none if it took too long."""
    with lock:
        wanted, end = dict(acked), ends[table]
    began, state, last = time.monotonic(), {}, -1
    reader = consumer(name)
    reader.assign([TopicPartition(table, 0, 0)])
    is_there = False
    while not failures:
        if last + 1 >= end:
            if is_there:
                break
            # What was gone before it was read was superseded by something before this end.
            try:
                end = reader.get_watermark_offsets(TopicPartition(table, 0), 1, cached=False)[1]
                is_there = True
            except KafkaException:
                pass
            continue
        if time.monotonic() - began > DEADLINE:
            fail(f"{name} comes no further than {last} of {end}")
        message = reader.poll(0.2)
        if message is None or problem(message):
            continue
        if message.offset() <= last:
            fail(f"{name}: offset {message.offset()} after {last}")
        last = message.offset()
        follows(state, message)
    reader.close()
    return (wanted, state) if time.monotonic() - began < PASS_SECONDS_MAX else (None, state)


def compare(name, wanted, state):
    for key, (number, is_tombstone) in wanted.items():
        found = state.get(key)
        if found is None and is_tombstone:
            continue
        if found is None or found[0] < number:
            fail(f"{name}: {key} is {found}, not {(number, is_tombstone)}")


def read():
    while not stopped():
        wanted, state = pass_over("reader")
        if wanted is not None:
            compare("reader", wanted, state)
            done["passes"] += 1


followed = {}


def follow():
    follower = consumer("follower")
    follower.assign([TopicPartition(topic, 0, 0) for topic in (table, recent)])
    last, number = {table: -1, recent: -1}, 0
    began = None
    while not failures:
        if written.is_set():
            began = began or time.monotonic()
            if last[table] + 1 >= ends[table]:
                break
            if time.monotonic() - began > DEADLINE:
                fail(f"the follower comes no further than {last} of {ends}")
        message = follower.poll(0.2)
        if message is None or problem(message):
            continue
        topic = message.topic()
        if message.offset() <= last[topic]:
            fail(f"{topic}: offset {message.offset()} after {last[topic]}")
        last[topic] = message.offset()
        if topic == table:
            follows(followed, message)
        else:
            read_number = int(dict(message.headers())["n"])
            if read_number <= number:
                fail(f"{topic}: {read_number} after {number}")
            number = read_number
        done["followed"] += 1
    follower.close()


def watch():
    watcher = consumer("watcher")
    seen = {table: (0, 0), recent: (0, 0)}
    while not stopped():
        for topic, (low, high) in seen.items():
            try:
                with lock:
                    acknowledged = ends[topic]
                now = watcher.get_watermark_offsets(TopicPartition(topic, 0), 1, cached=False)
            except KafkaException:
                continue
            if now[0] < low or now[1] < max(high, acknowledged):
                fail(f"{topic} went from {(low, high)} back to {now}, {acknowledged} acknowledged")
            seen[topic] = now
            done["watched"] += 1
        done["begins"] = seen[recent][0]
        with open(progress_path + ".new", "w") as file:
            json.dump(done, file)
        os.replace(progress_path + ".new", progress_path)
        time.sleep(0.01)
    watcher.close()


def guarded(task):
    def run():
        try:
            task()
        except Exception as error:  # whatever it is, the test has to hear of it
            fail(f"{task.__name__}: {error!r}")
            raise

    return run


threads = [threading.Thread(target=guarded(task)) for task in (produce, read, follow, watch)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if not failures:
    assert acked == sent, "acknowledged and sent differ"
    for name, state in [("follower", followed), ("last reader", pass_over("last")[1])]:
        compare(name, sent, state)
        alive = {key for key, (_, is_tombstone) in state.items() if not is_tombstone}
        expected = {key for key, (_, is_tombstone) in sent.items() if not is_tombstone}
        if alive != expected:
            fail(f"{name}: {sorted(alive ^ expected)[:5]} are not as they were left")
print(json.dumps(done))
sys.exit("\n".join(failures[:5]) if failures else 0)
