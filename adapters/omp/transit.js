// Transit's adapter for OMP (@oh-my-pi/pi-coding-agent, 18.2 or newer): an extension.
//
// A delivery becomes a user message at the next step of the session, which begins a turn if OMP is idle; what a person
// is typing is not touched. It is acknowledged once the session's file holds it. OMP writes that file only once there
// is an answer of the model, so that the first message of a new session is acknowledged with its answer.

import { Link, Refused, pause } from "../link.js";
import { find, isStored } from "../sessions.js";

/** How often the session is looked at while a delivery is on its way, in ms. */
const LOOK = 50;
/** A message that is not stored after so many ms of an idle session was not taken, or there is no model. */
const NOT_TAKEN = 15_000;

export default function transit(pi) {
  // Pi loads extensions from the same directory when PI_CODING_AGENT_DIR is set. It has an adapter of its own.
  if (typeof pi.registerMcpServer === "function") return;
  let link;
  let approvals = 0;

  /** The session is another one: its connection goes, and the new one has its own. */
  function enter(ctx) {
    link?.close();
    link = undefined;
    // A sub-agent, and a run that answers one prompt and ends, are nobody to write to.
    if (ctx.mode !== "tui" && ctx.mode !== "rpc") return;
    const session = ctx.sessionManager;
    // Nothing that is sent to a session without a file can be said to have arrived.
    if (!session.getSessionFile()) return;
    const id = session.getSessionId();
    const own = new Link({
      register: () => ({ harness: "omp", session_id: id, cwd: ctx.cwd, title: session.getSessionName() ?? "" }),
      deliver: (delivery, envelope) => deliver(pi, ctx, own, delivery, envelope),
      tell: (text) => ctx.ui.notify(text, "warning"),
    });
    approvals = 0;
    link = own.start();
  }

  // The tools of Transit are in mcp.json: OMP's MCP child is a child of this process, which has one session at a time.
  pi.on("session_start", (_event, ctx) => enter(ctx));
  pi.on("session_switch", (_event, ctx) => enter(ctx));
  pi.on("session_branch", (_event, ctx) => enter(ctx));
  pi.on("session_shutdown", () => link?.close());

  pi.on("agent_start", () => link?.status("working"));
  pi.on("agent_end", () => link?.status("idle"));
  pi.on("tool_approval_requested", () => {
    approvals += 1;
    link?.status("blocked");
  });
  pi.on("tool_approval_resolved", (_event, ctx) => {
    approvals = Math.max(0, approvals - 1);
    if (approvals === 0) link?.status(ctx.isIdle() ? "idle" : "working");
  });
}

/** Puts an envelope into the session, once, and waits until it is in the session's file. */
async function deliver(pi, ctx, link, id, envelope) {
  let isSent = false;
  let restingSince = Date.now();
  while (link.isOpen) {
    const text = find(ctx.sessionManager, id, envelope);
    if (text !== undefined && (await isStored(ctx.sessionManager, text))) return;
    if (text === undefined && !isSent) {
      // In an idle session "steer" and "followUp" only queue, and nothing begins.
      pi.sendUserMessage(envelope, { deliverAs: "aside" });
      isSent = true;
    }
    if (!ctx.isIdle()) restingSince = Date.now();
    if (Date.now() - restingSince > NOT_TAKEN) throw new Refused(text === undefined ? "not_taken" : "not_stored");
    await pause(LOOK);
  }
  throw new Refused("session_gone");
}
