// One consumer of kafkajs as a process: `members.py` runs it.
//
// The same interface as pymember.py: standard input takes `start`, `stop`, `hold` and `exit` lines
// with words separated by tabs, standard output gives one JSON event a line, standard error is the
// client's log. SIGTERM stops it too. The setting `plan.text` holds a plan's own text for kafkajs, in
// hexadecimals: it is run as it is, and gives the list.
"use strict";

const readline = require("node:readline");
const { Kafka, PartitionAssigners, logLevel } = require("kafkajs");

const REFUSED = "INCONSISTENT_GROUP_PROTOCOL";
const commands = readline.createInterface({ input: process.stdin });
let member = "";
let holdMs = 0;
let records = 0;

function emit(event, fields) {
  const record = { t_ms: Date.now(), id: member, event, ...fields };
  process.stdout.write(`${JSON.stringify(record)}\n`);
}

function failed(error) {
  const refused = error.type === REFUSED || String(error.message).includes(REFUSED);
  emit("error", { kind: refused ? "refused" : error.name, message: String(error.message) });
}

function logger() {
  return ({ namespace, label, log }) =>
    process.stderr.write(`${log.timestamp} ${label} [${namespace}] ${log.message}\n`);
}

// Assigners of the application's own, by any name: kafkajs's round robin under that name.
const assigners = new Proxy({}, {
  get: (_, name) => (given) => ({ ...PartitionAssigners.roundRobin(given), name }),
});

function listOf(settings) {
  const text = settings["plan.text"];
  if (text) {
    let made = {};
    const kafka = { consumer: (options) => (made = options) };
    const code = Buffer.from(text, "hex").toString().replace("{ …, ", "{ ");
    new Function("require", "kafka", "assigners", code)(require, kafka, assigners);
    return made;
  }
  const names = settings["partition.assignment.strategy"];
  return names ? { partitionAssigners: names.split(",").map((name) => assigners[name]) } : {};
}

async function start(settings) {
  for (const key of ["group.instance.id", "group.protocol"]) {
    if (settings[key]) {
      throw new Error(`kafkajs has nothing like ${key}`);
    }
  }
  const kafka = new Kafka({
    clientId: settings["client.id"],
    brokers: settings["bootstrap.servers"].split(","),
    logLevel: logLevel.INFO,
    logCreator: logger,
  });
  const consumer = kafka.consumer({
    ...listOf(settings),
    groupId: settings["group.id"],
    sessionTimeout: Number(settings["session.timeout.ms"]),
    heartbeatInterval: Number(settings["heartbeat.interval.ms"]),
    metadataMaxAge: Number(settings["metadata.max.age.ms"]),
    // It looks for a rebalance only between fetches.
    maxWaitTimeInMs: 250,
  });
  let owned = {};
  const revoke = () => {
    emit("revoked", { partitions: owned });
    owned = {};
  };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    emit("joined", { member_id: payload.memberId, generation: null });
    owned = payload.memberAssignment;
    emit("assigned", { partitions: owned });
  });
  consumer.on(consumer.events.REBALANCING, revoke);
  consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
  emit("started", { pid: process.pid });
  await consumer.connect();
  await consumer.subscribe({ topics: settings.topics.split(","), fromBeginning: true });
  await consumer.run({
    autoCommitInterval: Number(settings["auto.commit.interval.ms"]),
    eachMessage: async () => {
      records += 1;
      const pause = holdMs;
      holdMs = 0;
      await new Promise((resume) => setTimeout(resume, pause));
    },
  });
  return async () => {
    await consumer.disconnect();
    revoke();
  };
}

let running = null;

async function stop() {
  const close = await running;
  await close();
  emit("closed", { records });
  process.exit(0);
}

function die(error) {
  failed(error);
  process.exit(1);
}

commands.on("line", (line) => {
  const words = line.split("\t");
  if (words[0] === "start") {
    member = words[1];
    const pairs = words.slice(2).map((word) => {
      const at = word.indexOf("=");
      return [word.slice(0, at), word.slice(at + 1)];
    });
    running = start(Object.fromEntries(pairs));
    running.catch(die);
  } else if (words[0] === "hold") {
    holdMs = Number(words[2]);
  } else if (words[0] === "stop" || words[0] === "exit") {
    stop().catch(die);
  }
});
commands.on("close", () => process.exit(3));
process.on("SIGTERM", () => stop().catch(die));
