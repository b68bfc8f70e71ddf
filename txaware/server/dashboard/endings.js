// Ends a transaction that keeps readers waiting, once somebody said so. One that is open
// is aborted; as `txaware transaction abort`, that makes it invalid, since nobody has
// undone what it wrote. One that is prepared is committed or rolled back by its name.

import { askFirst } from "./asking.js";
import { ask } from "./server.js";
import { button, child } from "./table.js";
import { begunBy, duration, short, some } from "./words.js";

const LAST = "This cannot be taken back.";

const ABORT = {
  isOfPrepared: false,
  label: "Abort",
  heading: "Abort this transaction?",
  after: ["Its commit will be refused, and nothing that it wrote will be delivered.", LAST],
  async end({ id }) {
    const answer = await ask(`v1/transactions/${id}/invalidate`, { method: "POST", body: "{}" });
    return answer.invalidated ? `Transaction ${id} is aborted.` : `Transaction ${id} had ended already.`;
  },
};
const COMMIT = {
  isOfPrepared: true,
  label: "Commit",
  heading: "Commit this prepared transaction?",
  after: ["All that it wrote is seen from then on. Commit it where the others of its decision have committed.", LAST],
  end: (transaction) => endPrepared(transaction, "commit-prepared", "committed"),
};
const ROLL_BACK = {
  isOfPrepared: true,
  label: "Roll back",
  heading: "Roll back this prepared transaction?",
  after: ["Nobody will see what it wrote. Roll it back where the others of its decision have not committed.", LAST],
  end: (transaction) => endPrepared(transaction, "rollback-prepared", "rolled back"),
};

// By the class of their buttons.
const ENDINGS = { abort: ABORT, commit: COMMIT, "roll-back": ROLL_BACK };

/** Shows the buttons that end a transaction, `what` in words; none where it is null. */
export function showEndings(parent, transaction, what) {
  const place = child(parent, "div", "endings");
  place.hidden = !transaction;
  if (!transaction) return;
  for (const [name, ending] of Object.entries(ENDINGS)) {
    const shown = button(place, name, `${ending.label}…`, () => askToEnd(transaction, ending));
    shown.hidden = ending.isOfPrepared !== Boolean(transaction.prepared);
    shown.setAttribute("aria-label", `${ending.label} ${what}`);
  }
}

function askToEnd(transaction, ending) {
  const { id, prepared } = transaction;
  const open = `has been open for ${duration(transaction.ageMs)}`;
  const lines = [
    prepared ? `${prepared} is prepared: transaction ${id}, which ${open}.` : `Transaction ${id} ${open}.`,
    `Begun by: ${begunBy(transaction)}.`,
  ];
  if (transaction.blocks.length) {
    lines.push(`Readers of ${some(transaction.blocks, 10, short)} are waiting for it to end; they go on at once.`);
  }
  askFirst({
    heading: ending.heading,
    lines: [...lines, ...ending.after],
    leave: prepared ? "Leave it prepared" : "Leave it open",
    label: ending.label,
    act: () => ending.end(transaction),
  });
}

/** The id tells it from a later one of that name; JSON has it as the number that it is. */
async function endPrepared({ id, prepared }, call, done) {
  const body = `{"name": ${JSON.stringify(prepared)}, "transactionId": ${id}}`;
  await ask(`v1/transactions/${call}`, { method: "POST", body });
  return `${short(prepared)} is ${done}.`;
}
