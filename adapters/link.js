// What the adapters in JavaScript share: one session on transitd's agent.sock (transit-agent/1).
// `transit-agent install` puts this text and the adapter's own into one file, without the import and the export.

import { execFile } from "node:child_process";
import { connect } from "node:net";

/** The program that knows where transitd's sockets are. `transit-agent install` writes its place here. */
const TRANSIT_AGENT = "transit-agent";
/** Waits between attempts to connect, in ms: from the first, doubling, to the longest. */
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;
/** More bytes without a newline come from no transitd. */
const LONGEST_LINE = 8 * 1024 * 1024;

/** Runs one of Transit's programs and answers what it prints. By its parent, this process, transitd knows the child. */
function run(program, args, { env, input } = {}) {
  return new Promise((resolve, reject) => {
    const options = { env: { ...process.env, ...env }, maxBuffer: LONGEST_LINE };
    const child = execFile(program, args, options, (error, stdout, stderr) => {
      if (error) reject(new Error(stderr.trim() || error.message));
      else resolve(stdout);
    });
    child.stdin.on("error", () => {}); // a child that reads nothing
    child.stdin.end(input);
  });
}

export function transitAgent(args, options) {
  return run(TRANSIT_AGENT, args, options);
}

/** Where transit-mcp is: beside transit-agent. */
export const TRANSIT_MCP = TRANSIT_AGENT.replace(/transit-agent$/, "transit-mcp");

/** The tools of Transit: a list of name, description and inputSchema. */
export async function transitTools() {
  const lines = await run(TRANSIT_MCP, ["--tools"]);
  return lines.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** Waits so many ms, without keeping the process alive for it. */
export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms).unref?.());
}

/** The opening tag of an envelope is its first line. */
function head(envelope) {
  return envelope.slice(0, envelope.indexOf("\n") + 1 || undefined);
}

/**
 * Whether `text`, a message of a session, holds the delivery `id` as `envelope` has it. A delivery that is shown
 * again on purpose keeps its id and counts its redeliveries, so both are compared.
 */
export function holds(text, id, envelope) {
  const count = (tag) => / redelivery="(\d+)"/.exec(tag)?.[1];
  const wanted = count(head(envelope));
  const tags = text.matchAll(/^<transit [^\n]*>$/gm);
  return [...tags].some(([tag]) => tag.includes(` id="${id}"`) && count(tag) === wanted);
}

/** Why a delivery did not get into the session. */
export class Refused extends Error {
  constructor(code, retryable = true) {
    super(code);
    Object.assign(this, { code, retryable });
  }
}

/**
 * A session's place at transitd, for as long as the session lives: registers, connects again when the connection
 * breaks, hands deliveries over one at a time in their order, and answers each.
 *
 * `register()` answers what is said of the session: harness, session_id, cwd, title, and name, if another one than
 * that of TRANSIT_AGENT_NAME.
 * `deliver(id, envelope)` resolves once the envelope is durably in the session, and throws Refused when it is not.
 * `tell(text)` says something to the person.
 */
export class Link {
  constructor({ register, deliver, tell = () => {} }) {
    Object.assign(this, { register, deliver, tell });
    this.state = "idle";
    this.wait = FIRST_WAIT;
    this.open = new Map(); // what was handed over and not answered: first line of the envelope -> id
    this.answers = []; // what could not be said yet
    this.queue = Promise.resolve();
    this.told = "";
  }

  /** Connects, and stays connected until `close`. */
  start() {
    this.isStarted = true;
    this.dial();
    return this;
  }

  /** Ends the session's place; what was not answered stays in transitd's spool. */
  close() {
    this.isStarted = false;
    clearTimeout(this.timer);
    this.socket?.destroy();
  }

  /** Says what the session is doing: idle, working or blocked. */
  status(state) {
    const isNews = state !== this.state;
    this.state = state;
    // Another process has this session open. Whoever works in it last has its mail.
    if (this.isReplaced && state === "working") {
      this.isReplaced = false;
      this.dial();
    }
    if (isNews) this.sayStatus();
  }

  sayStatus() {
    // Before the registration is answered nothing can be said; it is made up for then.
    if (this.say({ t: "status", status: this.state })) this.saidState = this.state;
  }

  /** Whether the session is still the one that a delivery was for. */
  get isOpen() {
    return this.isStarted && !this.isReplaced;
  }

  async dial() {
    // One attempt at a time, and one connection: a second one would take the session's place from the first.
    if (this.isDialing) return;
    this.isDialing = true;
    clearTimeout(this.timer);
    let path;
    let failed;
    try {
      path = (await transitAgent(["socket"])).trim();
    } catch (error) {
      failed = `Transit: ${error.message}`;
    }
    this.isDialing = false;
    if (path === undefined) return this.lost(failed);
    if (!this.isStarted) return;
    this.socket?.destroy();
    this.capability = undefined;
    const socket = connect(path);
    this.socket = socket;
    let rest = "";
    let why = "";
    socket.setEncoding("utf8");
    socket.unref();
    socket.on("connect", () => {
      const { TRANSIT_AGENT_NAME: name, HERDR_PANE_ID: pane_id } = process.env;
      this.saidState = this.state;
      const own = { pid: process.pid, status: this.state, name: name || undefined, pane_id: pane_id || undefined };
      socket.write(`${JSON.stringify({ t: "register", proto: 1, ...own, ...this.register() })}\n`);
    });
    socket.on("data", (text) => {
      if (this.socket !== socket) return;
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      if (rest.length > LONGEST_LINE) socket.destroy();
      for (const line of lines) why = this.hear(line) ?? why;
    });
    socket.on("error", () => {}); // followed by close
    socket.on("close", () => {
      if (this.socket !== socket) return;
      this.capability = undefined;
      this.lost(why);
    });
  }

  /** The connection is gone, or could not be made. `why` is for the person, once. */
  lost(why) {
    if (!this.isStarted || this.isReplaced || this.isDialing) return;
    if (why && why !== this.told) this.tell(why);
    this.told = why || this.told;
    this.timer = setTimeout(() => this.dial(), this.wait);
    this.timer.unref?.();
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  /** Takes one frame; answers why the connection is about to close, if it says so. */
  hear(line) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      return;
    }
    switch (frame?.t) {
      case "registered":
        this.capability = frame.capability;
        this.address = frame.address;
        this.wait = FIRST_WAIT;
        this.told = "";
        if (this.state !== this.saidState) this.sayStatus();
        for (const answer of this.answers.splice(0)) this.say(answer);
        return;
      case "register_err":
        this.isReplaced = frame.code === "replaced";
        if (this.isReplaced) return `Transit: this session is open elsewhere, and gets its messages there`;
        return `Transit: ${frame.error} (${frame.code})`;
      case "ping":
        return void this.say({ t: "pong" });
      case "deliver":
        return void this.take(frame.id, frame.envelope);
    }
  }

  /** Takes a delivery on, unless it is in hand: the same one comes again after a connection broke. */
  take(id, envelope) {
    const key = head(envelope);
    if (this.open.has(key)) return;
    this.open.set(key, id);
    this.queue = this.queue.then(async () => {
      try {
        if (this.isOpen) await this.deliver(id, envelope);
        else throw new Refused("session_gone");
        this.answer({ t: "deliver_ack", id, persisted: true });
      } catch (error) {
        this.answer({ t: "deliver_nak", id, code: error.code ?? "adapter_failed", retryable: error.retryable ?? true });
      }
      this.open.delete(key);
    });
  }

  /** Says what became of a delivery: now, or on the next connection. */
  answer(frame) {
    if (!this.say(frame)) this.answers.push(frame);
  }

  say(frame) {
    if (!this.capability) return false;
    this.socket.write(`${JSON.stringify({ ...frame, capability: this.capability })}\n`);
    return true;
  }
}
