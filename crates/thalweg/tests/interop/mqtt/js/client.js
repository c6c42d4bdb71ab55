// MQTT.js against one server, in 3.1.1 and 5.0: all qualities, retained, a kept session, a will.
//
// Usage: client.js PORT
const assert = require("node:assert");
const mqtt = require("mqtt");

const url = `mqtt://127.0.0.1:${process.argv[2]}`;

async function open(clientId, options) {
  const client = mqtt.connect(url, { clientId, reconnectPeriod: 0, ...options });
  const inbox = [];
  const waiting = [];
  client.on("message", (topic, payload, packet) => {
    const got = { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain, properties: packet.properties };
    const next = waiting.shift();
    if (next) next(got);
    else inbox.push(got);
  });
  const connack = await new Promise((resolve, reject) => {
    client.once("connect", resolve);
    client.once("error", reject);
  });
  const take = () =>
    inbox.length
      ? Promise.resolve(inbox.shift())
      : new Promise((resolve, reject) => {
          const timer = setTimeout(() => reject(new Error("nothing came")), 20000);
          waiting.push((got) => {
            clearTimeout(timer);
            resolve(got);
          });
        });
  return { client, connack, take };
}

async function steps(protocolVersion) {
  const is5 = protocolVersion === 5;
  const name = `js${protocolVersion}`;
  const kept = is5 ? { clean: false, properties: { sessionExpiryInterval: 60 } } : { clean: false };
  const publisher = await open(`${name}-p`, { protocolVersion });
  let subscriber = await open(`${name}-s`, { protocolVersion, ...kept });
  assert.equal(subscriber.connack.sessionPresent, false);
  await subscriber.client.subscribeAsync(`${name}/#`, { qos: 2 });
  const user = { b: ["1", "3"], a: "2" };
  for (const qos of [0, 1, 2]) {
    const properties = is5 ? { userProperties: user, responseTopic: "answer", messageExpiryInterval: 60 } : undefined;
    await publisher.client.publishAsync(`${name}/${qos}`, `m${qos}`, { qos, properties });
    const got = await subscriber.take();
    assert.deepEqual([got.topic, got.payload, got.qos, got.retain], [`${name}/${qos}`, `m${qos}`, qos, false]);
    if (is5) {
      assert.deepEqual({ ...got.properties.userProperties }, user);
      assert.equal(got.properties.responseTopic, "answer");
    }
  }
  await subscriber.client.endAsync();
  await publisher.client.publishAsync(`${name}/away`, "one", { qos: 1 });
  await publisher.client.publishAsync(`${name}/away`, "two", { qos: 2, retain: true });
  subscriber = await open(`${name}-s`, { protocolVersion, ...kept });
  assert.equal(subscriber.connack.sessionPresent, true);
  assert.equal((await subscriber.take()).payload, "one");
  assert.equal((await subscriber.take()).payload, "two");
  await subscriber.client.subscribeAsync(`${name}/away`, { qos: 1 });
  const retained = await subscriber.take();
  assert.deepEqual([retained.payload, retained.qos, retained.retain], ["two", 1, true]);
  const dying = await open(`${name}-d`, { protocolVersion, will: { topic: `${name}/will`, payload: "gone", qos: 1 } });
  dying.client.stream.destroy();
  assert.equal((await subscriber.take()).payload, "gone");
  await publisher.client.endAsync();
  await subscriber.client.endAsync();
}

(async () => {
  await steps(4);
  await steps(5);
  console.log(JSON.stringify({ checked: true }));
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
