"""aiokafka against one broker: every codec, groups, idempotence, transactions, admin.

Usage: aiokafka_client.py BOOTSTRAP
Prints one JSON object with the topic of each codec and the bytes of its payloads; exits non-zero on
the first thing that is not as Kafka has it.
"""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

bootstrap = sys.argv[1]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
payloads = [b"x" * 90 + os.urandom(6) + b"%d" % i for i in range(1000)] + [b"", b"y" * 200_000]


async def create(admin, topic, partitions):
    answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
    return answer.topic_errors[0][1]


async def produce(topic, values, partition=0, **settings):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings) as producer:
        sent = [
            await producer.send(
                topic, value, key=b"k%d" % i, partition=partition, headers=[("i", b"%d" % i)]
            )
            for i, value in enumerate(values)
        ]
        await producer.flush()
        return [(await future).offset for future in sent]


async def take(consumer, count):
    return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]


async def read(topic, count, **settings):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", **settings
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return await take(consumer, count)


async def codecs(admin):
    for codec in CODECS:
        topic = f"aiokafka-{codec}"
        assert await create(admin, topic, 1) == 0
        compression = None if codec == "none" else codec
        await produce(topic, payloads, acks="all", compression_type=compression)
        records = await read(topic, len(payloads))
        assert [r.value for r in records] == payloads, codec
        assert [r.offset for r in records] == list(range(len(payloads))), codec
        assert (records[7].key, records[7].headers) == (b"k7", (("i", b"7"),)), records[7]


async def groups(admin):
    topic, group = "aiokafka-group", "aiokafka-group"
    assert await create(admin, topic, 3) == 0

    async def member(count):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            records = await take(consumer, count)
            await consumer.commit()
            return sorted((r.partition, r.value) for r in records)

    old, new = [b"old %d" % i for i in range(50)], [b"new %d" % i for i in range(10)]
    for partition in range(3):
        await produce(topic, old, partition)
    assert await member(150) == sorted((p, v) for p in range(3) for v in old)
    for partition in range(3):
        await produce(topic, new, partition)
    # The next member goes on after the commits: all that is new, and nothing twice.
    assert await member(30) == sorted((p, v) for p in range(3) for v in new)
    committed = await admin.list_consumer_group_offsets(group)
    assert {at.partition: offset.offset for at, offset in committed.items()} == {0: 60, 1: 60, 2: 60}
    listed = await admin.list_consumer_groups()
    assert (group, "consumer") in listed, listed


async def idempotence(admin):
    assert await create(admin, "aiokafka-idempotent", 1) == 0
    offsets = await produce("aiokafka-idempotent", payloads, enable_idempotence=True)
    assert offsets == list(range(len(payloads)))


async def transactions(admin):
    topic = "aiokafka-transactions"
    assert await create(admin, topic, 1) == 0
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka")
    async with producer:
        for number, commits in enumerate((True, False, True)):
            await producer.begin_transaction()
            for _ in range(10):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    committed = await read(topic, 20, isolation_level="read_committed")
    assert [r.value for r in committed] == [b"0"] * 10 + [b"2"] * 10
    assert len(await read(topic, 30, isolation_level="read_uncommitted")) == 30


async def administration(admin):
    topic = "aiokafka-admin"
    assert await create(admin, topic, 3) == 0
    assert await create(admin, topic, 3) == 36, "a topic was created twice"
    assert topic in await admin.list_topics()
    [described] = await admin.describe_topics([topic])
    assert len(described["partitions"]) == 3, described
    deleted = await admin.delete_topics([topic])
    assert deleted.topic_error_codes == [(topic, 0)], deleted
    async with asyncio.timeout(20):
        while topic in await admin.list_topics():
            await asyncio.sleep(0.05)


STEPS = (codecs, groups, idempotence, transactions, administration)


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    for step in STEPS:
        await step(admin)
    await admin.close()


asyncio.run(main())
print(json.dumps({
    "steps": [step.__name__ for step in STEPS],
    "topics": {codec: f"aiokafka-{codec}" for codec in CODECS},
    "bytes": sum(map(len, payloads)),
}))
