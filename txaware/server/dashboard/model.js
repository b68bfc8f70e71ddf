// What the overviews of the last minutes add up to: rates, ages, who waits for whom.

const KEPT = 60;
const SLOT_MS = 2000;
const SMOOTH_MS = 10_000;

/** Samples of the last two minutes, and what they say of each two seconds of those. */
class Lately {
  samples = [];

  /** Has no sample from later than this one: the clock was set back. */
  keep(sample) {
    const last = this.samples.at(-1);
    if (last?.ms === sample.ms) return;
    if (last && sample.ms < last.ms) this.samples = [];
    this.samples.push(sample);
    const oldest = sample.ms - (KEPT + 1) * SLOT_MS;
    while (this.samples.length > 2 && this.samples[1].ms < oldest) this.samples.shift();
  }

  /** What `of(start, end)` says of each slot, from the first sample on; two at least. */
  slots(of) {
    if (this.samples.length < 2) return [];
    const [first, end] = [this.samples[0].ms, this.samples.at(-1).ms];
    const count = Math.min(KEPT, Math.max(1, Math.round((end - first) / SLOT_MS)));
    return Array.from({ length: count }, (_, at) => {
      const start = Math.max(first, end - (count - at) * SLOT_MS);
      return of(start, end - (count - at - 1) * SLOT_MS);
    });
  }
}

/** Counts that only grow, and how fast they do. */
class History extends Lately {
  /** A count that went down began anew. */
  add(ms, counts) {
    const last = this.samples.at(-1);
    if (last && counts.some((c, at) => c < last.counts[at])) this.samples = [];
    this.keep({ ms, counts });
  }

  /** How many a second in the last seconds; null after the first look. */
  rate(at) {
    const last = this.samples.at(-1);
    const first = this.samples.find(({ ms }) => ms >= last.ms - SMOOTH_MS);
    const before = first === last ? this.samples.at(-2) : first;
    return before === undefined ? null : between(before, last, at);
  }

  /** How many a second in each of the last slots; looks may lie wherever they want. */
  rates(at) {
    let next = 1;
    const count = (ms) => {
      while (next < this.samples.length - 1 && this.samples[next].ms < ms) next += 1;
      const before = this.samples[next - 1];
      return before.counts[at] + (between(before, this.samples[next], at) * (ms - before.ms)) / 1000;
    };
    return this.slots((start, end) => {
      const before = count(start); // in their order: it only goes forward
      return Math.max(0, ((count(end) - before) * 1000) / (end - start));
    });
  }
}

function between(first, last, at) {
  return ((last.counts[at] - first.counts[at]) * 1000) / (last.ms - first.ms);
}

/** Values as they were at each look, and until the next one. */
export class Levels extends Lately {
  add(ms, value) {
    this.keep({ ms, value });
  }

  get values() {
    let at = 0;
    const found = this.slots((_, end) => {
      while (at < this.samples.length - 1 && this.samples[at + 1].ms <= end) at += 1;
      return this.samples[at].value;
    });
    return found.length ? found : this.samples.map(({ value }) => value);
  }
}

/** The rows that a group has yet to read, and the age of the oldest of them. */
class GroupLevels {
  #rows = new Levels();
  #unread = new Levels();

  add(ms, rows, unreadMs) {
    this.#rows.add(ms, rows);
    this.#unread.add(ms, unreadMs);
  }

  get values() {
    return { rows: this.#rows.values, unreadMs: this.#unread.values };
  }
}

/** One server, look after look. All ages are by its clock. */
export class Model {
  #total = new History();
  #behind = new Levels();
  #open = new Levels();
  #topics = new Map();
  #groups = new Map();
  #startedMs = null;

  /** The answer, with what can be worked out from it and from earlier ones. */
  take(answer) {
    if (this.#startedMs !== answer.startedMs) this.#topics.clear();
    this.#startedMs = answer.startedMs;
    for (const sample of answer.history ?? []) this.#remember(sample);
    const { nowMs } = answer;
    for (const transaction of answer.transactions) takeTransaction(transaction, nowMs);
    for (const producer of answer.producers) producer.usedMs = since(producer.lastMs, nowMs);
    for (const queue of answer.queues) takeQueue(queue, nowMs);
    for (const outbox of answer.outboxes) outbox.lookedAgoMs = since(outbox.lookedMs, nowMs);
    const more = new Set(answer.groups.filter((g) => g.hasMore).map((g) => g.topic));
    for (const topic of answer.topics) this.#takeTopic(topic, answer, more);
    for (const group of answer.groups) {
      group.unreadMs = since(group.unreadSinceMs, nowMs);
      group.aloneMs = since(group.readerSeenMs ?? answer.startedMs, nowMs);
      const topic = group.waitsFor && answer.topics.find((t) => t.topic === group.topic);
      group.waitsMs = topic?.blockedMs ?? null;
      this.#levelsOf(`${group.group} ${group.topic}`).add(nowMs, group.rows, group.unreadMs ?? 0);
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

  /** What the server remembers from before the page was opened. */
  #remember({ ms, messagesIn, messagesOut, unreadMs, open, topics, groups }) {
    if (messagesIn !== null) this.#total.add(ms, [messagesIn, messagesOut]);
    if (unreadMs !== null) this.#behind.add(ms, unreadMs);
    if (open !== null) this.#open.add(ms, open);
    for (const [topic, counts] of Object.entries(topics)) this.#historyOf(topic).add(ms, counts);
    for (const [pair, behind] of Object.entries(groups)) this.#levelsOf(pair).add(ms, ...behind);
  }

  /** How far a group was behind in each of the last slots. */
  behind(group, topic) {
    return this.#levelsOf(`${group} ${topic}`).values;
  }

  #levelsOf(pair) {
    if (!this.#groups.has(pair)) this.#groups.set(pair, new GroupLevels());
    return this.#groups.get(pair);
  }

  #historyOf(topic) {
    if (!this.#topics.has(topic)) this.#topics.set(topic, new History());
    return this.#topics.get(topic);
  }

  #takeTopic(topic, { nowMs, transactions }, more) {
    const history = this.#historyOf(topic.topic);
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

function takeQueue(queue, nowMs) {
  const { stats } = queue;
  queue.oldestMs = stats.depth ? stats.oldestAgeS * 1000 : null;
  queue.jobs = stats.jobs.map((job) => ({ ...job, ms: since(job.sinceMs, nowMs) }));
}

/** One of so many that it is not in the list. */
function unlisted({ pointer }, topic) {
  return { id: pointer, pointers: [pointer], blocks: [topic.topic], ageMs: topic.blockedMs };
}

function since(ms, nowMs) {
  return ms === null ? null : Math.max(0, nowMs - ms);
}
