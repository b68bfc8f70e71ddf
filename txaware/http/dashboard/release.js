// Invalidates a transaction that keeps readers waiting, once somebody said so.

import { ask } from "./server.js";
import { make, setText } from "./table.js";
import { begunBy, duration, some } from "./words.js";

const dialog = document.getElementById("release");
const text = document.getElementById("release-text");
const problem = document.getElementById("release-problem");
const confirm = document.getElementById("release-now");
let asked;
let released;

/** Has `tell` called with a sentence after each release. */
export function whenReleased(tell) {
  released = tell;
}

/** Asks whether to invalidate a transaction of the overview. */
export function askToRelease(transaction) {
  asked = transaction;
  const lines = [
    `Transaction ${transaction.id} has been open for ${duration(transaction.ageMs)}.`,
    `Begun by: ${begunBy(transaction)}.`,
  ];
  if (transaction.blocks.length) {
    lines.push(`Readers of ${some(transaction.blocks, 10)} are waiting for it to end; they go on at once.`);
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
    released(
      answer.invalidated
        ? `Transaction ${transaction.id} is invalid now.`
        : `Transaction ${transaction.id} had ended already.`,
    );
  } catch (error) {
    setText(problem, error.message);
    problem.hidden = false;
    confirm.disabled = false;
  }
});
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
