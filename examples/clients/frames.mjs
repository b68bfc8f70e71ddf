// A client of txaware's frames in JavaScript (docs/format.md), without any package.
//
//   node frames.mjs HOST PORT [TOKEN]
// creates a topic and a queue, publishes and polls, all on one connection.
import net from "node:net";

const KIND = { HELLO: 1, REQUEST: 2, REPLY: 3, PIECE: 4, CREDIT: 5, CANCEL: 6 };
const PIECE_BYTES = 65536, CREDIT_BYTES = 1 << 20;
// Numbers of verbs, of docs/verbs.md.
const VERB = { position: 1, listQueues: 23, createQueue: 24, queueStats: 28 };

// ---- msgpack, as far as frames need it
function pack(value) {
  const bytes = (...list) => Buffer.from(list);
  const sized = (size, small, most, code) => (size <= most ? bytes(small | size)
    : bytes(code, size >>> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255));
  if (value === null || value === undefined) return bytes(0xc0);
  if (typeof value === "boolean") return bytes(value ? 0xc3 : 0xc2);
  if (typeof value === "bigint" || Number.isInteger(value)) {
    const number = Buffer.alloc(9, 0xd3);
    number.writeBigInt64BE(BigInt(value), 1);
    return number;
  }
  if (typeof value === "string") {
    const text = Buffer.from(value);
    return Buffer.concat([sized(text.length, 0xa0, 31, 0xdb), text]);
  }
  if (Array.isArray(value))
    return Buffer.concat([sized(value.length, 0x90, 15, 0xdd), ...value.map(pack)]);
  const pairs = Object.entries(value);
  return Buffer.concat([sized(pairs.length, 0x80, 15, 0xdf), ...pairs.flat().map(pack)]);
}
function unpack(data) {
  let at = 0;
  const number = (size) => {
    at += size;
    return data.readUIntBE(at - size, size);
  };
  const text = (size) => data.toString("utf8", at, (at += size));
  const list = (size) => Array.from({ length: size }, next);
  const map = (size) =>
    Object.fromEntries(Array.from({ length: size }, () => [next(), next()]));
  const long = (read) => {
    const found = data[read](at);
    at += 8;
    return Number.isSafeInteger(Number(found)) ? Number(found) : found;
  };
  function next() {
    const code = data[at++];
    if (code < 0x80) return code;
    if (code < 0x90) return map(code & 15);
    if (code < 0xa0) return list(code & 15);
    if (code < 0xc0) return text(code & 31);
    if (code >= 0xe0) return code - 256;
    switch (code) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xcb: return long("readDoubleBE");
      case 0xcc: case 0xcd: case 0xce: return number(1 << (code - 0xcc));
      case 0xcf: return long("readBigUInt64BE");
      case 0xd0: return data.readInt8((at += 1) - 1);
      case 0xd1: return data.readInt16BE((at += 2) - 2);
      case 0xd2: return data.readInt32BE((at += 4) - 4);
      case 0xd3: return long("readBigInt64BE");
      case 0xd9: case 0xda: case 0xdb: return text(number(1 << (code - 0xd9)));
      case 0xdc: case 0xdd: return list(number(2 << (code - 0xdc)));
      case 0xde: case 0xdf: return map(number(2 << (code - 0xde)));
    }
    throw new Error(`no msgpack: ${code}`);
  }
  return next();
}
// ---- frames
class Frames {
  constructor(socket, came) {
    this.socket = socket;
    this.begun = came;
    this.last = 0n;
    this.calls = new Map();
    socket.on("data", (data) => this.feed(data));
    socket.on("close", () => this.fail(new Error("the connection was lost")));
    this.send(KIND.HELLO, 0n, pack({ version: 1, creditBytes: CREDIT_BYTES }));
    this.feed(Buffer.alloc(0));
  }
  static connect(host, port, token) {
    return new Promise((resolve, reject) => {
      const socket = net.connect(port, host);
      const bearer = token ? `Authorization: Bearer ${token}\r\n` : "";
      let came = Buffer.alloc(0);
      socket.setNoDelay(true);
      socket.on("error", reject);
      socket.write(`GET /v1/frames HTTP/1.1\r\nHost: ${host}:${port}\r\n${bearer}` +
        "Connection: upgrade\r\nUpgrade: txaware/1\r\n\r\n");
      socket.on("data", function head(data) {
        came = Buffer.concat([came, data]);
        const end = came.indexOf("\r\n\r\n");
        if (end < 0) return;
        socket.off("data", head);
        const status = came.toString("latin1").split(" ")[1];
        if (status !== "101") return reject(new Error(`no frames: ${status}`));
        resolve(new Frames(socket, came.subarray(end + 4)));
      });
    });
  }
  send(kind, stream, body) {
    const head = Buffer.alloc(13, kind);
    head.writeUInt32BE(9 + body.length);
    head.writeBigUInt64BE(stream, 4);
    this.socket.write(Buffer.concat([head, body]));
  }
  feed(data) {
    let rest = Buffer.concat([this.begun, data]);
    while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE()) {
      const end = 4 + rest.readUInt32BE();
      this.take(rest[12], rest.readBigUInt64BE(4), rest.subarray(13, end));
      rest = rest.subarray(end);
    }
    this.begun = rest;
  }
  take(kind, stream, body) {
    const call = this.calls.get(stream);
    if (kind === KIND.CREDIT && call) this.go_on(stream, call, body.readUInt32BE());
    if (kind === KIND.CANCEL && call) call.reject(new Error("the answer was cut off"));
    if (kind === KIND.REPLY) {
      const size = body.readUInt16BE();
      const [status, bytes] = unpack(body.subarray(2, 2 + size));
      body = body.subarray(2 + size);
      if (!call) return stream || this.fail(new Error(body.toString()));
      Object.assign(call, { status, bytes, body: [], came: 0 });
    } else if (kind !== KIND.PIECE || !call) return;
    call.body.push(body);
    call.came += body.length;
    const ends = call.bytes === null ? kind === KIND.PIECE && !body.length
      : call.came >= call.bytes;
    if (!ends && body.length) {
      const credit = Buffer.alloc(4);
      credit.writeUInt32BE(body.length);
      return this.send(KIND.CREDIT, stream, credit);
    }
    if (!ends) return;
    this.calls.delete(stream);
    const whole = Buffer.concat(call.body);
    if (call.status < 400) return call.resolve(whole);
    const { error, message } = JSON.parse(whole);
    call.reject(new Error(`${error}: ${message}`));
  }
  go_on(stream, call, credit) {
    for (call.credit += credit; call.credit > 0 && call.left.length;) {
      const size = Math.min(PIECE_BYTES, call.credit, call.left.length);
      this.send(KIND.PIECE, stream, call.left.subarray(0, size));
      call.left = call.left.subarray(size);
      call.credit -= size;
    }
  }
  request(head, body) {
    const stream = ++this.last, encoded = pack(head), size = Buffer.alloc(2);
    return new Promise((resolve, reject) => {
      const call = { resolve, reject, left: body, credit: 0 };
      this.calls.set(stream, call);
      size.writeUInt16BE(encoded.length);
      this.send(KIND.REQUEST, stream, Buffer.concat([size, encoded]));
      this.go_on(stream, call, CREDIT_BYTES);
    });
  }
  async verb(number, ...fields) {
    const body = pack(fields);
    const answer = await this.request([number, body.length], body);
    return answer.length ? unpack(answer) : null;
  }
  async http(method, path, value) {
    const body = value === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(value));
    const json = { "content-type": "application/json" };
    const answer = await this.request([0, body.length, null, null, method, path, json], body);
    return answer.length ? JSON.parse(answer) : null;
  }
  fail(error) {
    for (const call of this.calls.values()) call.reject(error);
    this.calls.clear();
  }
}

const [host, port, token] = process.argv.slice(2);
const frames = await Frames.connect(host, Number(port), token);
const topic = "/v1/namespaces/default/topics/from-node";
await frames.http("PUT", topic, {});
const waiting = frames.http("POST", `${topic}/poll`, { payloadAs: "utf8", waitMs: 30000 });
await frames.verb(VERB.createQueue, "mail", 30); // meanwhile, on the same connection
console.log("queues", await frames.verb(VERB.listQueues, "default"));
await frames.http("POST", `${topic}/publish`, { messages: [{ utf8: "hello" }] });
console.log("polled", (await waiting).map((message) => message.payload));
const large = Array.from({ length: 50 }, () => ({ utf8: "x".repeat(100000) }));
await frames.http("POST", `${topic}/publish`, { messages: large });
const page = await frames.http("POST", `${topic}/poll`, { payloadAs: "utf8" });
console.log("polled", page.length, "messages");
console.log("pushed", (await frames.verb(VERB.queueStats, "mail")).pushed);
console.log("position", await frames.verb(VERB.position, "billing", "from-node"));
await frames.verb(VERB.queueStats, "nowhere").catch((error) => console.log(error.message));
frames.socket.end();
