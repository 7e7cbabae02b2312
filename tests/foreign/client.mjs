// Drives MQTT.js against a node, and prints what it saw as one JSON object.
//
//   node client.mjs '{"url": "ws://127.0.0.1:8083/mqtt", "version": 5, "ca": "ca.pem", "prefix": "js1",
//                     "user": "mary", "password": "…"}'
//
// Every scenario reports facts; what they should be is for the test that called to say. A scenario that throws
// reports {"error": …}.

import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import mqtt from "mqtt";

const given = JSON.parse(process.argv[2]);
const five = given.version === 5;
const patience = 10_000;
const open = [];
let names = 0;

function timeout(what) {
  return new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), patience).unref());
}

function within(promise, what) {
  return Promise.race([promise, timeout(what)]);
}

function name(what) {
  names += 1;
  return `${given.prefix}-${what}-${names}`;
}

class Client {
  constructor(options = {}) {
    const { keep = false, expect = "connect", ...rest } = options;
    const settings = { clientId: name("client"), reconnectPeriod: 0, clean: !keep, ...rest };
    settings.protocolVersion = five ? 5 : 4;
    if (five && keep) settings.properties = { sessionExpiryInterval: 600 };
    if (given.ca) settings.ca = readFileSync(given.ca);
    this.messages = [];
    this.waiting = [];
    this.end = null;
    this.client = mqtt.connect(given.url, settings);
    this.client.on("message", (topic, payload, packet) => {
      const message = { topic, payload, qos: packet.qos, retain: packet.retain, properties: packet.properties };
      const next = this.waiting.shift();
      if (next) next(message);
      else this.messages.push(message);
    });
    this.client.on("disconnect", (packet) => { this.end = packet.reasonCode; });
    this.closed = new Promise((resolve) => this.client.on("close", resolve));
    this.refused = new Promise((resolve) => this.client.on("error", (error) => resolve(error)));
    this.connected = new Promise((resolve) => this.client.on("connect", (packet) => resolve(packet)));
    open.push(this);
  }

  static async connect(options) {
    const client = new Client(options);
    client.connack = await within(client.connected, "CONNACK");
    return client;
  }

  subscribe(filter, options) {
    return within(this.client.subscribeAsync(filter, options), "SUBACK");
  }

  publish(topic, payload, options) {
    return within(this.client.publishAsync(topic, payload, options), "acknowledgement");
  }

  message() {
    if (this.messages.length) return Promise.resolve(this.messages.shift());
    return within(new Promise((resolve) => this.waiting.push(resolve)), "message");
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.message());
    return taken;
  }

  leave() {
    return within(this.client.endAsync(), "end");
  }

  breakOff() {
    this.client.stream.destroy();
    return within(this.closed, "close");
  }
}

const text = (message) => ({ ...message, payload: message.payload.toString() });
const digest = (payload) => createHash("sha256").update(payload).digest("hex");

const scenarios = {
  async qos() {
    const topic = name("qos");
    const one = await Client.connect();
    const other = await Client.connect();
    const granted = await one.subscribe(`${topic}/#`, { qos: 2 });
    const got = [];
    for (const qos of [0, 1, 2]) {
      await other.publish(`${topic}/${qos}`, `message ${qos}`, { qos });
      const { topic: where, payload, qos: as, retain } = text(await one.message());
      got.push([where.slice(topic.length), payload, as, retain]);
    }
    return { granted: granted[0].qos, got };
  },

  async retained() {
    const topic = name("retained");
    const one = await Client.connect();
    await one.publish(topic, "kept", { qos: 1, retain: true });
    const late = await Client.connect();
    await late.subscribe(topic, { qos: 1 });
    const kept = text(await late.message());
    await one.publish(topic, "", { qos: 1, retain: true });
    const cleared = text(await late.message());
    const later = await Client.connect();
    await later.subscribe(topic, { qos: 1 });
    await one.publish(topic, "live", { qos: 1 });
    const live = text(await later.message());
    return [kept, cleared, live].map(({ payload, retain }) => [payload, retain]);
  },

  async will() {
    const topic = name("will");
    const watcher = await Client.connect();
    await watcher.subscribe(`${topic}/#`, { qos: 1 });
    const will = (which) => ({ will: { topic: `${topic}/${which}`, payload: Buffer.from("gone"), qos: 1 } });
    const polite = await Client.connect(will("polite"));
    const broken = await Client.connect(will("broken"));
    await polite.leave();
    await broken.breakOff();
    const { topic: where, payload, qos } = text(await watcher.message());
    return [where.slice(topic.length), payload, qos];
  },

  async queued() {
    const topic = name("queued");
    const clientId = name("keeper");
    const keeper = await Client.connect({ clientId, keep: true });
    await keeper.subscribe(topic, { qos: 2 });
    await keeper.breakOff();
    const other = await Client.connect();
    for (let number = 0; number < 30; number += 1) {
      await other.publish(topic, `${number}`, { qos: (number % 2) + 1 });
    }
    const again = await Client.connect({ clientId, keep: true });
    const got = (await again.take(30)).map(text).map(({ payload, qos }) => [qos, Number(payload)]);
    await again.leave();
    const fresh = await Client.connect({ clientId });
    const present = [keeper, again, fresh].map((each) => each.connack.sessionPresent);
    return { present, 1: got.filter(([qos]) => qos === 1), 2: got.filter(([qos]) => qos === 2) };
  },

  async password() {
    const known = await Client.connect({ username: given.user, password: given.password });
    const topic = name("password");
    await known.subscribe(topic);
    await known.publish(topic, "in");
    const { payload } = text(await known.message());
    const stranger = new Client({ username: given.user, password: "wrong" });
    const error = await within(stranger.refused, "refusal");
    await within(stranger.closed, "close");
    return { payload, refused: error.code };
  },

  async takeOver() {
    const clientId = name("taken");
    const topic = name("take-over");
    const first = await Client.connect({ clientId });
    const second = await Client.connect({ clientId });
    await within(first.closed, "close");
    await second.subscribe(topic);
    await second.publish(topic, "to the second");
    return { end: first.end, payload: text(await second.message()).payload };
  },

  async large() {
    const topic = name("large");
    const one = await Client.connect();
    await one.subscribe(topic, { qos: 2 });
    const same = [];
    for (const qos of [0, 1, 2]) {
      const payload = randomBytes(500_000);
      await one.publish(topic, payload, { qos });
      same.push(digest((await one.message()).payload) === digest(payload));
    }
    return same;
  },

  async many() {
    const topic = name("many");
    const one = await Client.connect();
    const other = await Client.connect();
    await one.subscribe(topic, { qos: 1 });
    const sent = [];
    for (let number = 0; number < 2000; number += 1) {
      sent.push(other.publish(topic, `${number}`, { qos: 1 }));
    }
    const got = (await one.take(2000)).map((message) => Number(message.payload));
    await Promise.all(sent);
    return { received: got.length, inOrder: got.every((number, index) => number === index) };
  },

  async properties() {
    if (!five) return null;
    const topic = name("properties");
    const one = await Client.connect();
    await one.subscribe(topic, { qos: 1, properties: { subscriptionIdentifier: 7 } });
    const properties = {
      payloadFormatIndicator: true,
      messageExpiryInterval: 100,
      responseTopic: "answer/here",
      correlationData: Buffer.from("sheep"),
      userProperties: { colour: ["blue", "green"], size: "1" },
      contentType: "text/plain",
    };
    await one.publish(topic, "hello", { qos: 1, properties });
    const got = (await one.message()).properties;
    return { ...got, correlationData: got.correlationData.toString(), userProperties: { ...got.userProperties } };
  },

  async topicAlias() {
    if (!five) return null;
    const topic = name("alias");
    const one = await Client.connect({ properties: { topicAliasMaximum: 5 }, autoUseTopicAlias: true });
    await one.subscribe(topic, { qos: 1 });
    for (let number = 0; number < 3; number += 1) await one.publish(topic, `${number}`, { qos: 1 });
    return (await one.take(3)).map(text).map(({ topic: where, payload }) => [where === topic, payload]);
  },
};

const results = {};
for (const [scenario, run] of Object.entries(scenarios)) {
  try {
    results[scenario] = await run();
  } catch (error) {
    results[scenario] = { error: String(error.stack ?? error) };
  }
  for (const each of open.splice(0)) each.client.end(true);
}
console.log(JSON.stringify(results));
process.exit(0);
