"""Confluent's Python serializers and the REST proxy: what one writes, the other reads.

Usage: rest_formats.py REST_URL REGISTRY_URL BOOTSTRAP
For each format, records are produced through the proxy and read with Confluent's deserializers, then
produced with Confluent's serializers and read through a consumer instance of the proxy, and by its
version 3. Exits non-zero on the first thing that is not as it should be.
"""

import json
import sys
import urllib.request

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

rest, registry_url, bootstrap = sys.argv[1:]
registry = SchemaRegistryClient({"url": registry_url})

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "raw", "type": "bytes"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "map", "values": "double"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        ],
    }
)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
        "required": ["id"],
    }
)
PROTO = """syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  string item = 2;
  repeated Part parts = 3;
  message Part { string name = 1; }
}
"""


def protobuf_class():
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Order")
    optional = field.LABEL_OPTIONAL
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=optional)
    message.field.add(name="item", number=2, type=field.TYPE_STRING, label=optional)
    message.nested_type.add(name="Part").field.add(
        name="name", number=1, type=field.TYPE_STRING, label=optional
    )
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
proto_order = Order(id=2**53 + 1, item="wine")
proto_order.parts.add(name="cork")
modern = {"use.deprecated.format": False}

# Format: the schema, the value as the client has it, as the proxy has it, serializer, deserializer.
FORMATS = {
    "avro": (
        AVRO,
        {"id": 2**53 + 1, "raw": b"\x00\xff", "note": "x", "tags": {"a": 0.1}, "kind": "B"},
        {
            "id": 2**53 + 1,
            "raw": "\x00\xff",
            "note": {"string": "x"},
            "tags": {"a": 0.1},
            "kind": "B",
        },
        lambda: AvroSerializer(registry, AVRO),
        lambda: AvroDeserializer(registry),
    ),
    "jsonschema": (
        JSON,
        {"id": 7, "item": "bread"},
        {"id": 7, "item": "bread"},
        lambda: JSONSerializer(JSON, registry),
        lambda: JSONDeserializer(JSON, schema_registry_client=registry),
    ),
    "protobuf": (
        PROTO,
        proto_order,
        {"id": str(2**53 + 1), "item": "wine", "parts": [{"name": "cork"}]},
        lambda: ProtobufSerializer(Order, registry, modern),
        lambda: ProtobufDeserializer(Order, modern, schema_registry_client=registry),
    ),
}


def call(method, path, content_type=None, body=None, accept=None):
    request = urllib.request.Request(rest + path, method=method)
    if content_type:
        request.add_header("Content-Type", content_type)
    if accept:
        request.add_header("Accept", accept)
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=30) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def produced_by_the_proxy(topic, form, schema, proxy_value):
    """The same value by version 2 with its schema, by its id, and by version 3."""
    media = f"application/vnd.kafka.{form}.v2+json"
    body = {"value_schema": schema, "records": [{"value": proxy_value}]}
    answer = call("POST", f"/topics/{topic}", media, body)
    assert answer["offsets"][0]["error_code"] is None, answer
    schema_id = answer["value_schema_id"]
    body = {"value_schema_id": schema_id, "records": [{"value": proxy_value}]}
    assert call("POST", f"/topics/{topic}", media, body)["value_schema_id"] == schema_id
    cluster = call("GET", "/v3/clusters")["data"][0]["cluster_id"]
    record = {"value": {"type": form.upper(), "schema": schema, "data": proxy_value}}
    path = f"/v3/clusters/{cluster}/topics/{topic}/records"
    receipt = call("POST", path, "application/json", record)
    assert receipt["error_code"] == 200 and receipt["value"]["schema_id"] == schema_id, receipt


def read_by_the_client(topic, value, deserializer):
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    context = SerializationContext(topic, MessageField.VALUE)
    for _ in range(3):
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message and message.error()
        read = deserializer(message.value(), context)
        assert read == value, (topic, read)
    consumer.close()


def read_by_the_proxy(topic, form, value, proxy_value, serializer):
    call("POST", f"/topics/{topic}", "application/vnd.kafka.binary.v2+json", {"records": [{}]})
    payload = serializer(value, SerializationContext(topic, MessageField.VALUE))
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic, payload, on_delivery=lambda error, _: failures.append(error) if error else None
    )
    assert producer.flush(30) == 0 and not failures, failures
    plain = "application/vnd.kafka.v2+json"
    config = {"name": "reader", "format": form, "auto.offset.reset": "earliest"}
    call("POST", f"/consumers/{topic}", plain, config)
    instance = f"/consumers/{topic}/instances/reader"
    call("POST", f"{instance}/subscription", plain, {"topics": [topic]})
    records = []
    for _ in range(30):
        media = f"application/vnd.kafka.{form}.v2+json"
        records += call("GET", f"{instance}/records", accept=media)
        if len(records) >= 2:
            break
    assert [record["value"] for record in records] == [None, proxy_value], records
    call("DELETE", instance, plain)
    cluster = call("GET", "/v3/clusters")["data"][0]["cluster_id"]
    read = call("GET", f"/v3/clusters/{cluster}/topics/{topic}/records")["data"][1]["value"]
    assert (read["type"], read["data"]) == (form.upper(), proxy_value), read


for form, (schema, value, proxy_value, serializer, deserializer) in FORMATS.items():
    produced_by_the_proxy(f"{form}-out", form, schema, proxy_value)
    read_by_the_client(f"{form}-out", value, deserializer())
    read_by_the_proxy(f"{form}-in", form, value, proxy_value, serializer())
print("ok")
