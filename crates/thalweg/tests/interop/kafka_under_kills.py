"""Produces numbered records with idempotence and acks=all while the broker is killed and restarted.

Usage: kafka_under_kills.py BOOTSTRAP TOPIC ACKED STOP
Appends each acknowledged number to the file ACKED; ends when the file STOP is there and all that
was sent is acknowledged.
"""

import os
import sys
import time

from confluent_kafka import Producer

bootstrap, topic, acked_path, stop_path = sys.argv[1:5]
acked = open(acked_path, "ab", buffering=0)
fatal = []


def delivered(error, message):
    if error is not None:
        fatal.append(str(error))
    else:
        acked.write(message.value().split(b" ", 1)[0] + b"\n")


producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 2,
        "delivery.timeout.ms": 120000,
        "message.timeout.ms": 120000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
    }
)
number = 0
while not os.path.exists(stop_path):
    try:
        producer.produce(topic, value=b"%d " % number + b"x" * 100, partition=0, on_delivery=delivered)
        number += 1
    except BufferError:
        producer.poll(0.05)
    producer.poll(0)
    if number % 200 == 0:
        time.sleep(0.01)
    if fatal:
        sys.exit(f"a record failed: {fatal[0]}")
left = producer.flush(110)
sys.exit(f"{left} records were not acknowledged, {fatal[:1]}" if left or fatal else 0)
