// What the overviews of the last minutes add up to: rates, ages, who waits for whom.

const KEPT = 60;
const SMOOTH_MS = 10_000;

/** Counts that only grow, and how fast they do. */
class History {
  #samples = [];

  /** A count that went down began anew. */
  add(ms, counts) {
    const last = this.#samples.at(-1);
    if (last?.ms === ms) return;
    if (last && (ms < last.ms || counts.some((c, at) => c < last.counts[at]))) {
      this.#samples = [];
    }
    this.#samples.push({ ms, counts });
    if (this.#samples.length > KEPT + 1) this.#samples.shift();
  }

  /** How many a second in the last seconds; null after the first look. */
  rate(at) {
    const last = this.#samples.at(-1);
    const first = this.#samples.find(({ ms }) => ms >= last.ms - SMOOTH_MS);
    return first === last ? null : between(first, last, at);
  }

  /** How many a second between each two of the last looks. */
  rates(at) {
    const samples = this.#samples;
    return samples.slice(1).map((sample, index) => between(samples[index], sample, at));
  }
}

function between(first, last, at) {
  return ((last.counts[at] - first.counts[at]) * 1000) / (last.ms - first.ms);
}

/** Values as they were at each look. */
class Levels {
  values = [];
  #ms = null;

  add(ms, value) {
    if (ms === this.#ms) return;
    this.#ms = ms;
    this.values.push(value);
    if (this.values.length > KEPT) this.values.shift();
  }
}

/** One server, look after look. All ages are by its clock. */
export class Model {
  #total = new History();
  #behind = new Levels();
  #open = new Levels();
  #topics = new Map();
  #startedMs = null;

  /** The answer, with what can be worked out from it and from earlier ones. */
  take(answer) {
    if (this.#startedMs !== answer.startedMs) this.#topics.clear();
    this.#startedMs = answer.startedMs;
    const { nowMs } = answer;
    for (const transaction of answer.transactions) takeTransaction(transaction, nowMs);
    const more = new Set(answer.groups.filter((g) => g.hasMore).map((g) => g.topic));
    for (const topic of answer.topics) this.#takeTopic(topic, answer, more);
    for (const group of answer.groups) {
      group.unreadMs = since(group.unreadSinceMs, nowMs);
      group.aloneMs = since(group.readerSeenMs ?? answer.startedMs, nowMs);
      const topic = group.waitsFor && answer.topics.find((t) => t.topic === group.topic);
      group.waitsMs = topic?.blockedMs ?? null;
    }
    answer.upMs = since(answer.startedMs, nowMs);
    this.#total.add(nowMs, [answer.messagesIn, answer.messagesOut]);
    answer.rates = [this.#total.rate(0), this.#total.rate(1)];
    answer.lately = [this.#total.rates(0), this.#total.rates(1)];
    const unread = answer.groups.map((group) => group.unreadMs ?? 0);
    this.#behind.add(nowMs, Math.max(0, ...unread));
    this.#open.add(nowMs, answer.transactionCount);
    answer.latelyBehind = this.#behind.values;
    answer.latelyOpen = this.#open.values;
    return answer;
  }

  #takeTopic(topic, { nowMs, transactions }, more) {
    if (!this.#topics.has(topic.topic)) this.#topics.set(topic.topic, new History());
    const history = this.#topics.get(topic.topic);
    history.add(nowMs, [topic.messagesIn, topic.messagesOut]);
    topic.rates = [history.rate(0), history.rate(1)];
    topic.lately = [history.rates(0), history.rates(1)];
    topic.newestAgeMs = since(topic.newestMs, nowMs);
    topic.oldestAgeMs = since(topic.oldestMs, nowMs);
    topic.hasMore = more.has(topic.topic);
    const by = topic.blockedBy;
    topic.blockedMs = by === null ? null : since(by.sinceMs, nowMs);
    topic.blocker = by && (transactions.find((one) => one.id === by.pointer) ?? unlisted(by, topic));
  }
}

function takeTransaction(transaction, nowMs) {
  transaction.ageMs = since(transaction.beganMs, nowMs);
  transaction.blocksMs = since(transaction.blocksSinceMs, nowMs);
  const { expiresMs } = transaction;
  transaction.leftMs = expiresMs === null ? null : Math.max(0, expiresMs - nowMs);
}

/** One of so many that it is not in the list. */
function unlisted({ pointer }, topic) {
  return { id: pointer, pointers: [pointer], blocks: [topic.topic], ageMs: topic.blockedMs };
}

function since(ms, nowMs) {
  return ms === null ? null : Math.max(0, nowMs - ms);
}
