// Aborts a transaction that keeps readers waiting, once somebody said so; as `txaware
// transactions abort`, it makes it invalid, since nobody has undone what it wrote.

import { ask } from "./server.js";
import { make, setText } from "./table.js";
import { begunBy, duration, short, some } from "./words.js";

const dialog = document.getElementById("abort");
const text = document.getElementById("abort-text");
const problem = document.getElementById("abort-problem");
const confirm = document.getElementById("abort-now");
let asked;
let tellAborted;

/** Has `tell` called with a sentence after each. */
export function whenAborted(tell) {
  tellAborted = tell;
}

/** Asks whether to abort a transaction of the overview. */
export function askToAbort(transaction) {
  asked = transaction;
  const lines = [
    `Transaction ${transaction.id} has been open for ${duration(transaction.ageMs)}.`,
    `Begun by: ${begunBy(transaction)}.`,
  ];
  if (transaction.blocks.length) {
    lines.push(`Readers of ${some(transaction.blocks, 10, short)} are waiting for it to end; they go on at once.`);
  }
  lines.push("Its commit will be refused, and nothing that it wrote will be delivered.");
  lines.push("This cannot be taken back.");
  text.replaceChildren(...lines.map((line) => make("p", "", line)));
  problem.hidden = true;
  confirm.disabled = false;
  dialog.showModal();
}

confirm.addEventListener("click", async () => {
  const transaction = asked;
  confirm.disabled = true;
  problem.hidden = true;
  try {
    const answer = await ask(`v1/transactions/${transaction.id}/invalidate`, {
      method: "POST",
      body: {},
    });
    dialog.close();
    tellAborted(
      answer.invalidated
        ? `Transaction ${transaction.id} is aborted.`
        : `Transaction ${transaction.id} had ended already.`,
    );
  } catch (error) {
    setText(problem, error.message);
    problem.hidden = false;
    confirm.disabled = false;
  }
});
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
