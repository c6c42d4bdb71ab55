// Agents that speak the C2 protocol to the server under test, as many as a test wants.

import { setTimeout as sleep } from "node:timers/promises";

/** Agents of one class that beat until they are stopped, and do what they are told. */
export class Crowd {
  constructor(server, name, count, type = "minifi-java") {
    this.server = server;
    this.name = name;
    this.type = type;
    const digits = Math.max(4, String(count - 1).length);
    this.ids = Array.from({ length: count }, (_, number) => `${name}-${String(number).padStart(digits, "0")}`);
    /** The flow that each agent runs. */
    this.flows = new Map();
    this.stopped = false;
    /** Whether they say of which class they are; those that do not are parked. */
    this.names_class = true;
  }

  /** One beat of each agent, a few at a time. */
  async beat(at_once = 16) {
    const waiting = [...this.ids];
    const some = async () => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
        await this.one(id);
      }
    };
    await Promise.all(Array.from({ length: at_once }, some));
  }

  /** Beats every `every_ms` until `stop`. */
  async run(every_ms) {
    while (!this.stopped) {
      await this.beat();
      await sleep(every_ms);
    }
  }

  stop() {
    this.stopped = true;
  }

  async one(id) {
    const info = { identifier: id, ...(this.names_class && { agentClass: this.name }), agentManifestHash: `${this.name}-build` };
    const size = Math.floor(Math.random() * 500);
    const answer = await this.post("heartbeat", {
      deviceInfo: { identifier: `device-${id}`, networkInfo: { hostname: `host-${id}` }, systemInfo: { operatingSystem: "Linux", machineArch: "amd64" } },
      agentInfo: { ...info, status: { uptime: 5000, repositories: { flowFile: { dataSize: 1024, dataSizeMax: 4096 } } } },
      flowInfo: { flowId: this.flows.get(id) ?? null, queues: { "queue-1": { name: "to-broker", size, sizeMax: 1000 } } },
    });
    for (const operation of answer.requestedOperations) {
      const ack = { operationId: operation.identifier, operationState: { state: "FULLY_APPLIED" } };
      if (operation.operation === "DESCRIBE") {
        ack.agentInfo = { ...info, agentManifest: { agentType: this.type, version: "1.18.0", bundles: [] } };
      } else {
        this.flows.set(id, operation.args.flowId);
      }
      await this.post("acknowledge", ack);
    }
  }

  async post(what, body) {
    const response = await fetch(new URL(`c2/${what}`, this.server), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!response.ok) {
      throw new Error(`${what} was answered ${response.status}: ${await response.text()}`);
    }
    return response.json();
  }
}
