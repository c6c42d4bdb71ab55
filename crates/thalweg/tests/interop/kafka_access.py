"""Logins, refusals and ACLs as confluent-kafka sees them: kafka_access.py SERVER CA"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

server, ca = sys.argv[1:3]


def settings(name, password, mechanism, **more):
    return {
        "bootstrap.servers": server,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        **more,
    }


def produce(name, password, mechanism, topic, value):
    """The error code of one record's delivery, none when it was taken."""
    outcome = []
    producer = Producer(settings(name, password, mechanism))
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(30) == 0, "the record was not settled"
    return outcome[0] and outcome[0].code()


def login_error(name, password, mechanism):
    """The code of the first error of a login that must fail."""
    errors = []
    admin = AdminClient(settings(name, password, mechanism, error_cb=errors.append))
    deadline = time.monotonic() + 30
    while not errors and time.monotonic() < deadline:
        admin.poll(0.1)
    codes = {error.code() for error in errors}
    assert KafkaError._AUTHENTICATION in codes, errors


def consume(name, password, topic, group, count):
    consumer = Consumer(
        settings(
            name,
            password,
            "SCRAM-SHA-512",
            **{"group.id": group, "auto.offset.reset": "earliest"},
        )
    )
    consumer.subscribe([topic])
    values, deadline = [], time.monotonic() + 30
    try:
        while len(values) < count:
            assert time.monotonic() < deadline, "the records did not come"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                return message.error().code()
            values.append(message.value())
        return values
    finally:
        consumer.close()


mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
for mechanism in mechanisms:
    assert produce("ann", "ann-secret", mechanism, "open", mechanism) is None, mechanism
    login_error("ann", "wrong", mechanism)
    login_error("eve", "ann-secret", mechanism)
read = consume("ann", "ann-secret", "open", "ann-group", 3)
assert read == [m.encode() for m in mechanisms], read

# ann may touch nothing else: neither another topic nor another group.
refused = produce("ann", "ann-secret", "SCRAM-SHA-256", "closed", "x")
assert refused == KafkaError.TOPIC_AUTHORIZATION_FAILED, refused
refused = consume("ann", "ann-secret", "open", "other-group", 1)
assert refused == KafkaError.GROUP_AUTHORIZATION_FAILED, refused
ann = AdminClient(settings("ann", "ann-secret", "SCRAM-SHA-256"))
assert set(ann.list_topics(timeout=30).topics) == {"open"}, "ann sees more than hers"
try:
    gone = UserScramCredentialDeletion("admin", ScramMechanism.SCRAM_SHA_512)
    ann.alter_user_scram_credentials([gone])["admin"].result(30)
    raise AssertionError("ann may change users")
except KafkaException as error:
    assert error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED, error

# admin may do everything, such as making users, who may then log in.
admin = AdminClient(settings("admin", "admin-secret", "SCRAM-SHA-512"))
assert produce("admin", "admin-secret", "PLAIN", "closed", "x") is None
info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
change = UserScramCredentialUpsertion("bob", info, b"bob-secret")
for future in admin.alter_user_scram_credentials([change]).values():
    future.result(30)
told = admin.describe_user_scram_credentials(["bob"])["bob"].result(30)
assert told.scram_credential_infos[0].iterations == 4096, told
refused = produce("bob", "bob-secret", "SCRAM-SHA-512", "open", "x")
assert refused == KafkaError.TOPIC_AUTHORIZATION_FAILED, refused
# Gone again, bob cannot log in.
gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
for future in admin.alter_user_scram_credentials([gone]).values():
    future.result(30)
login_error("bob", "bob-secret", "SCRAM-SHA-512")
