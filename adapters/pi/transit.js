// Transit's adapter for Pi (@earendil-works/pi-coding-agent, 1.6 or newer): an extension.
//
// A delivery becomes a user message of the session once Pi is idle, so that nothing is queued that an Escape would
// put into the editor, and nothing there is touched. It is acknowledged once the session's file holds it.

import { Link, Refused, TRANSIT_MCP, pause } from "../link.js";
import { find, isStored } from "../sessions.js";

/** How often the session is looked at while a delivery is on its way, in ms. */
const LOOK = 50;
/** A message that is not there after so many ms of an idle session was not taken. */
const NOT_TAKEN = 10_000;

export default function transit(pi) {
  // OMP loads extensions from the same directory when PI_CODING_AGENT_DIR is set. It has an adapter of its own.
  if (typeof pi.registerMcpServer !== "function") return;
  let link;
  let prompts = 0;

  // Every /new, /resume, /fork and /reload makes a new extension and starts it here.
  pi.on("session_start", (_event, ctx) => {
    // A run that answers one prompt and ends is nobody to write to.
    if (ctx.mode !== "tui" && ctx.mode !== "rpc") return;
    const session = ctx.sessionManager;
    // Nothing that is sent to a session without a file (--no-session) can be said to have arrived.
    if (!session.getSessionFile()) return;
    link?.close();
    link = new Link({
      register: () => ({
        harness: "pi",
        session_id: session.getSessionId(),
        cwd: ctx.cwd,
        title: session.getSessionName() ?? "",
      }),
      deliver: (id, envelope) => deliver(pi, ctx, link, id, envelope),
      tell: (text) => ctx.ui.notify(text, "warning"),
    }).start();
    // The tools of Transit, by a child that says which session it belongs to.
    pi.registerMcpServer("transit", {
      command: TRANSIT_MCP,
      env: { TRANSIT_SESSION_ID: session.getSessionId() },
      exposure: "direct",
    });
  });
  pi.on("session_shutdown", () => link?.close());

  // agent_end comes before what Pi does by itself afterwards (another try, a queued message); agent_settled after.
  pi.on("agent_start", () => link?.status("working"));
  pi.on("agent_settled", () => link?.status("idle"));
  pi.on("ui_prompt_start", () => {
    prompts += 1;
    link?.status("blocked");
  });
  pi.on("ui_prompt_end", (_event, ctx) => {
    prompts = Math.max(0, prompts - 1);
    if (prompts === 0) link?.status(ctx.isIdle() ? "idle" : "working");
  });
}

/** Puts an envelope into the session, once, and waits until it is in the session's file. */
async function deliver(pi, ctx, link, id, envelope) {
  let sentAt;
  while (link.isOpen) {
    const text = find(ctx.sessionManager, id, envelope);
    if (text !== undefined && (await isStored(ctx.sessionManager, text))) return;
    const isIdle = ctx.isIdle() && !ctx.hasPendingMessages();
    if (text === undefined && isIdle) {
      if (sentAt === undefined) {
        // An idle Pi takes it at once. Were it to begin something in this very moment, the message would wait.
        pi.sendUserMessage(envelope, { deliverAs: "followUp" });
        sentAt = Date.now();
      } else if (Date.now() - sentAt > NOT_TAKEN) {
        throw new Refused("not_taken");
      }
    } else if (sentAt !== undefined && !isIdle) {
      sentAt = Date.now();
    }
    await pause(LOOK);
  }
  throw new Refused("session_gone");
}
