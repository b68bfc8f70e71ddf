// Asks once more before anything is changed. Enter alone changes nothing: the button
// that leaves all as it is has the focus.

import { make, setText } from "./table.js";

const dialog = document.getElementById("ending");
const heading = document.getElementById("ending-heading");
const text = document.getElementById("ending-text");
const problem = document.getElementById("ending-problem");
const leave = dialog.querySelector(".close");
const confirm = document.getElementById("ending-now");
let asked;
let tellDone = () => {};

/** Has `tell` called with a sentence after each change. */
export function whenDone(tell) {
  tellDone = tell;
}

/**
 * Shows the question: `lines` say what is about to happen, `leave` and `label` are the
 * words of the buttons, and `act` does it and returns a sentence.
 */
export function askFirst({ heading: question, lines, leave: stay, label, act }) {
  asked = act;
  setText(heading, question);
  text.replaceChildren(...lines.map((line) => (typeof line === "string" ? make("p", "", line) : line)));
  setText(leave, stay);
  setText(confirm, label);
  problem.hidden = true;
  confirm.disabled = false;
  dialog.showModal();
}

confirm.addEventListener("click", async () => {
  const act = asked;
  confirm.disabled = true;
  problem.hidden = true;
  try {
    const sentence = await act();
    if (act === asked) dialog.close();
    tellDone(sentence);
  } catch (error) {
    if (act !== asked) return;
    setText(problem, error.message);
    problem.hidden = false;
    confirm.disabled = false;
    leave.focus(); // it was lost with the button, and Enter alone does nothing again
  }
});
leave.addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  if (!dialog.open) asked = undefined; // it may be asked again before this is told
});
