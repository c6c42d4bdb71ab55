// Confluent's JavaScript serializers against the registry and the store, each format both ways.
//
// Usage: client.cjs REGISTRY_URL BOOTSTRAP PREFIX
// Exits non-zero on the first thing that is not as it should be.

const assert = require("node:assert");
const { Kafka, logLevel } = require("kafkajs");
const {
  AvroDeserializer,
  AvroSerializer,
  HeaderSchemaIdSerializer,
  JsonDeserializer,
  JsonSerializer,
  ProtobufDeserializer,
  ProtobufSerializer,
  SchemaRegistryClient,
  SerdeType,
} = require("@confluentinc/schemaregistry");
const { create, createFileRegistry, createMutableRegistry } = require("@bufbuild/protobuf");
const { FileDescriptorProtoSchema, FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");

const [url, bootstrap, prefix] = process.argv.slice(2);
const client = () => new SchemaRegistryClient({ baseURLs: [url] });

const AVRO = {
  type: "record",
  name: "Reading",
  fields: [
    { name: "sensor", type: "string" },
    { name: "celsius", type: "double" },
  ],
};
const JSON_SCHEMA = {
  $schema: "http://json-schema.org/draft-07/schema#",
  type: "object",
  properties: { sensor: { type: "string" }, celsius: { type: "number" } },
  required: ["sensor"],
};

// message Reading { string sensor = 1; double celsius = 2; }
function readingSchema() {
  const file = create(FileDescriptorProtoSchema, {
    name: "reading.proto",
    package: "lab",
    syntax: "proto3",
    messageType: [
      {
        name: "Reading",
        field: [
          { name: "sensor", number: 1, type: 9, label: 1, jsonName: "sensor" },
          { name: "celsius", number: 2, type: 1, label: 1, jsonName: "celsius" },
        ],
      },
    ],
  });
  const files = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
  return files.getMessage("lab.Reading");
}

async function main() {
  const registering = client();
  const reading = { sensor: "s1", celsius: 21.5 };
  const schema = readingSchema();
  const registered = async (topic, schemaType, text) => {
    const id = await registering.register(`${topic}-value`, { schemaType, schema: text });
    const again = await registering.register(`${topic}-value`, { schemaType, schema: text });
    assert.strictEqual(again, id);
  };
  await registered(`${prefix}-avro`, "AVRO", JSON.stringify(AVRO));
  await registered(`${prefix}-json`, "JSON", JSON.stringify(JSON_SCHEMA));
  const latest = { useLatestVersion: true };
  const writers = {
    avro: new AvroSerializer(client(), SerdeType.VALUE, latest),
    json: new JsonSerializer(client(), SerdeType.VALUE, latest),
    protobuf: new ProtobufSerializer(client(), SerdeType.VALUE, {
      autoRegisterSchemas: true,
      registry: createMutableRegistry(schema),
    }),
  };
  const readers = {
    avro: new AvroDeserializer(client(), SerdeType.VALUE, {}),
    json: new JsonDeserializer(client(), SerdeType.VALUE, {}),
    protobuf: new ProtobufDeserializer(client(), SerdeType.VALUE, {}),
  };

  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  const producer = kafka.producer();
  await producer.connect();
  for (const [name, writer] of Object.entries(writers)) {
    const topic = `${prefix}-${name}`;
    const value = name === "protobuf" ? create(schema, reading) : reading;
    const payload = await writer.serialize(topic, value);
    assert.strictEqual(payload[0], 0);
    await producer.send({ topic, messages: [{ value: payload }] });
  }
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: `${prefix}-readers` });
  await consumer.connect();
  const topics = Object.keys(readers).map((name) => `${prefix}-${name}`);
  await consumer.subscribe({ topics, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) => {
    consumer
      .run({
        eachMessage: async ({ topic, message }) => {
          try {
            const name = topic.slice(prefix.length + 1);
            const value = await readers[name].deserialize(topic, message.value);
            assert.strictEqual(value.sensor, reading.sensor, name);
            assert.strictEqual(value.celsius, reading.celsius, name);
            seen.add(name);
            if (seen.size === topics.length) resolve();
          } catch (error) {
            reject(error);
          }
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();

  // Who knows nothing yet reads a record that names its schema by GUID, in a header.
  const byGuid = { ...latest, schemaIdSerializer: HeaderSchemaIdSerializer };
  const named = new AvroSerializer(client(), SerdeType.VALUE, byGuid);
  const [topic, headers] = [`${prefix}-avro`, {}];
  const payload = await named.serialize(topic, reading, headers);
  assert.strictEqual(headers.__value_schema_id.length, 17);
  const newcomer = new AvroDeserializer(client(), SerdeType.VALUE, {});
  const value = await newcomer.deserialize(topic, payload, headers);
  assert.deepStrictEqual({ ...value }, reading);

  const broken = { type: "record", name: "Reading", fields: [{ name: "new", type: "int" }] };
  const text = JSON.stringify(broken);
  const subject = `${prefix}-avro-value`;
  const info = { schemaType: "AVRO", schema: text };
  assert.strictEqual(await client().testSubjectCompatibility(subject, info), false);
  await assert.rejects(client().register(subject, info), (error) => error.status === 409);
  console.log("ok");
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
