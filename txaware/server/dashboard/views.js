// The views of the page, each with an address that can be sent to a colleague: what
// stands behind the #, which no server sees. Its parts are names, its query what was
// asked for there.
//
//   #/                      everything at a glance; ?search= and ?namespace= choose
//   #/topics, #/groups, #/queues, #/tables, #/outboxes, #/transactions, #/producers
//                           one part of it
//   #/topics/NAME           messages; ?from= a time or an id, and what they are searched
//                           by: ?key=, ?header=NAME or NAME=VALUE, ?text=, ?until=
//   #/groups/GROUP/TOPIC    how far a group is behind, and moving it
//   #/queues/NAME           items; ?state=waiting, in_work, delayed or dead
//   #/tables/NAME           rows; ?prefix= and ?from= of their keys

/** The address that is shown: the names in it, and its query. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { names: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // it was cut where it was pasted
  }
}

/** The address of a view; what has no value is left out of its query. */
export function address(names, query = {}) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value ?? "") asked.set(name, value);
  const path = names.map((name) => encodeURIComponent(name).replaceAll("%3A", ":")).join("/");
  return `#/${path}${asked.size ? `?${asked}` : ""}`;
}

/** Has the view looked at again now. */
export function lookNow() {
  dispatchEvent(new Event("look"));
}

/** Says in the address what is asked for in this view, and adds no step to go back. */
export function say(query) {
  history.replaceState(null, "", address(here().names, query));
}
