"""Confluent's Python serializers against the registry and the store, each format both ways.

Usage: schemas_python.py REGISTRY_URL BOOTSTRAP PREFIX write|read
`write` registers and produces, `read` (another process, perhaps after a restart) consumes with what
the registry tells. Exits non-zero on the first thing that is not as it should be.
"""

import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

url, bootstrap, prefix, what = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})

AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "item", "type": "string"},
  {"name": "note", "type": ["null", "string"], "default": null},
  {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}]}"""
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
  "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}, "required": ["id"]}"""


def protobuf_class():
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=optional)
    message.field.add(name="item", number=2, type=field.TYPE_STRING, label=optional)
    part = message.nested_type.add(name="Part")
    part.field.add(name="name", number=1, type=field.TYPE_STRING, label=optional)
    message.field.add(
        name="parts",
        number=3,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".shop.Order.Part",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = protobuf_class()
avro_order = {"id": 2**53 + 1, "item": "Käse", "note": None, "tags": ["a", "b"]}
json_order = {"id": 7, "item": "bread"}
proto_order = Order(id=9, item="wine")
proto_order.parts.add(name="cork")

FORMATS = {
    "avro": (
        avro_order,
        lambda: AvroSerializer(registry, AVRO),
        lambda: AvroDeserializer(registry),
    ),
    "json": (
        json_order,
        lambda: JSONSerializer(JSON, registry),
        lambda: JSONDeserializer(JSON, schema_registry_client=registry),
    ),
    "protobuf": (
        proto_order,
        lambda: ProtobufSerializer(Order, registry, {"use.deprecated.format": False}),
        lambda: ProtobufDeserializer(
            Order, {"use.deprecated.format": False}, schema_registry_client=registry
        ),
    ),
}


def write():
    producer = Producer({"bootstrap.servers": bootstrap})
    failures = []
    for name, (value, serializer, _) in FORMATS.items():
        topic = f"{prefix}-{name}"
        context = SerializationContext(topic, MessageField.VALUE)
        payload = serializer()(value, context)
        assert payload[0] == 0, payload
        producer.produce(
            topic, payload, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        latest = registry.get_latest_version(f"{topic}-value")
        assert latest.version == 1, latest
        assert int.from_bytes(payload[1:5], "big") == latest.schema_id, latest
        assert latest.schema.schema_type == name.upper(), latest
        looked_up = registry.lookup_schema(f"{topic}-value", latest.schema)
        assert looked_up.schema_id == latest.schema_id, looked_up
    assert producer.flush(30) == 0 and not failures, failures
    name_by_guid()
    manage()


def name_by_guid():
    """Who knows nothing yet reads a record that names its schema by GUID, in a header."""
    context = SerializationContext(f"{prefix}-by-guid", MessageField.VALUE, [])
    by_guid = {"schema.id.serializer": header_schema_id_serializer}
    payload = AvroSerializer(registry, AVRO, conf=by_guid)(avro_order, context)
    [(header, named)] = context.headers
    assert header == "__value_schema_id" and named[0] == 1 and len(named) == 17, context.headers
    newcomer = SchemaRegistryClient({"url": url})
    assert AvroDeserializer(newcomer)(payload, context) == avro_order


def manage():
    """What the client's other calls do."""
    subject = f"{prefix}-managed"
    first = Schema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', "AVRO")
    broken = Schema('{"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}', "AVRO")
    first_id = registry.register_schema(subject, first)
    assert registry.get_schema(first_id).schema_str.replace(" ", "") == first.schema_str.replace(" ", "")
    assert not registry.test_compatibility(subject, broken)
    try:
        registry.register_schema(subject, broken)
        raise AssertionError("registered what is not compatible")
    except SchemaRegistryError as error:
        assert (error.http_status_code, error.error_code) == (409, 409), error
    registry.set_compatibility(subject, "NONE")
    assert registry.get_compatibility(subject) == "NONE"
    assert registry.register_schema(subject, broken) != first_id
    assert registry.get_versions(subject) == [1, 2]
    reference = SchemaReference("R", subject, 1)
    naming = Schema(
        '{"type": "record", "name": "S", "fields": [{"name": "r", "type": "R"}]}', "AVRO", [reference]
    )
    naming_id = registry.register_schema(f"{prefix}-naming", naming)
    assert registry.get_schema(naming_id).references[0].subject == subject
    try:
        registry.delete_version(subject, 1)
        raise AssertionError("deleted what another schema names")
    except SchemaRegistryError as error:
        assert error.error_code == 42206, error
    assert registry.delete_version(subject, 2) == 2
    try:
        registry.get_version(subject, 2)
        raise AssertionError("found what was deleted")
    except SchemaRegistryError as error:
        assert (error.http_status_code, error.error_code) == (404, 40402), error
    assert registry.delete_subject(f"{prefix}-naming") == [1]
    assert registry.delete_subject(subject) == [1]
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    configure(f"{prefix}-configured")
    subjects = registry.get_subjects()
    assert subject not in subjects and f"{prefix}-avro-value" in subjects, subjects


def configure(subject):
    """What a subject's configuration gives new schemas, as the client tells it and is told it."""
    rule = Rule("checked", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "true", None, None, False)
    config = ServerConfig(
        default_metadata=Metadata(None, MetadataProperties({"owner": "ann"}), None),
        override_rule_set=RuleSet(None, [rule]),
    )
    registry.set_config(subject, config)
    told = registry.get_config(subject)
    assert told.default_metadata.properties.properties == {"owner": "ann"}, told
    registered = registry.register_schema_full_response(subject, Schema('"int"', "AVRO"))
    latest = registry.get_latest_version(subject)
    for version in (registered, latest):
        assert version.version == 1, version
        assert version.schema.metadata.properties.properties == {"owner": "ann"}, version
        assert [rule.name for rule in version.schema.rule_set.domain_rules] == ["checked"], version
    registry.delete_config(subject)


def read():
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{prefix}-readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([f"{prefix}-{name}" for name in FORMATS])
    seen = {}
    while len(seen) < len(FORMATS):
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message and message.error()
        name = message.topic().removeprefix(f"{prefix}-")
        context = SerializationContext(message.topic(), MessageField.VALUE)
        value = FORMATS[name][2]()(message.value(), context)
        assert value == FORMATS[name][0], (name, value)
        seen[name] = value
    consumer.close()


{"write": write, "read": read}[what]()
print("ok")
