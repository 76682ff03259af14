// Transit's adapter for OpenCode (opencode-ai, 1.18 or newer): a server plugin.
//
// Each session of the process has a connection of its own; those of sub-agents have none. A delivery becomes a
// prompt of the session, with the agent and the model of the prompt before it, and is acknowledged once OpenCode
// gives it back as a stored message. What a person is typing is not touched.
//
// OpenCode has one MCP child for all sessions, which could not tell whose call it makes. So the tools of Transit are
// tools of this plugin, which is told the session of each call.

import { Link, Refused, holds, pause, transitAgent, transitTools } from "../link.js";

/** How often a session is looked at while a delivery is on its way, in ms. */
const LOOK = 100;
/** A message that is not there after so many ms was not taken. */
const NOT_TAKEN = 20_000;
/** How many of the newest messages are looked at for one that was just sent. */
const NEWEST = 50;

/** TRANSIT_AGENT_NAME names the first session of the process; the others get a name from transitd. */
let isNameTaken = false;

export const Transit = async ({ client, directory }) => {
  const links = new Map(); // session -> its link
  const parents = new Map(); // session of a sub-agent -> the session that began it
  let isOver = false;

  function isOurs(info) {
    if (info.parentID) parents.set(info.id, info.parentID);
    return !info.parentID && (info.directory ?? directory) === directory;
  }

  function enter(info) {
    // What was looked up while OpenCode let go of this plugin is the next one's.
    if (isOver || !isOurs(info)) return;
    const known = links.get(info.id);
    if (known) {
      known.title = info.title;
      return;
    }
    const isFirst = !isNameTaken;
    isNameTaken = true;
    const link = new Link({
      register: () => ({
        harness: "opencode",
        session_id: info.id,
        cwd: directory,
        title: link.title ?? "",
        ...(!isFirst && { name: undefined }),
      }),
      deliver: (id, envelope) => deliver(client, info.id, link, id, envelope),
      tell: (message) => client.tui.showToast({ body: { message, variant: "warning" } }).catch(() => {}),
    });
    link.title = info.title;
    links.set(info.id, link.start());
  }

  /** A session that was there before this process tells nothing of itself until it is used. */
  async function look(id) {
    if (links.has(id) || parents.has(id)) return;
    const { data } = await client.session.get({ path: { id } });
    if (data) enter(data);
  }

  function leave(id) {
    links.get(id)?.close();
    links.delete(id);
  }

  async function root(id) {
    while (!links.has(id)) {
      const { data } = parents.has(id) ? {} : await client.session.get({ path: { id } });
      const parent = parents.get(id) ?? data?.parentID;
      if (!parent) return id;
      parents.set(id, parent);
      id = parent;
    }
    return id;
  }

  const status = (id, state) => links.get(id)?.status(state);
  const handlers = {
    "session.created": ({ info }) => enter(info),
    "session.updated": ({ info }) => enter(info),
    "session.deleted": ({ info }) => leave(info.id),
    "session.status": async ({ sessionID, status: { type } }) => {
      await look(sessionID);
      status(sessionID, type === "idle" ? "idle" : "working");
    },
    "session.idle": ({ sessionID }) => status(sessionID, "idle"),
    "permission.asked": ({ sessionID }) => status(sessionID, "blocked"),
    "permission.replied": ({ sessionID }) => status(sessionID, "working"),
    "question.asked": ({ sessionID }) => status(sessionID, "blocked"),
    "question.replied": ({ sessionID }) => status(sessionID, "working"),
    "question.rejected": ({ sessionID }) => status(sessionID, "working"),
  };

  // One after the other: one that has to look a session up must not end behind the next.
  let last = Promise.resolve();
  function handle({ type, properties }) {
    const done = last.then(() => handlers[type]?.(properties));
    last = done.catch(() => {});
    return done;
  }

  const { tool, schemas } = await tools(root);
  return {
    event: ({ event }) => handle(event),
    tool,
    // OpenCode takes every parameter of a plugin's tool for one that must be there.
    "tool.definition": async ({ toolID }, output) => {
      if (schemas[toolID]) output.jsonSchema = schemas[toolID];
    },
    dispose: async () => {
      isOver = true;
      [...links.keys()].forEach(leave);
    },
  };
};

/** Puts an envelope into the session, once, and waits until the session has it as a message. */
async function deliver(client, sessionID, link, id, envelope) {
  let sentAt;
  while (link.isOpen) {
    // The whole session is read once: the envelope may have come before this process was started.
    const query = sentAt === undefined ? {} : { limit: NEWEST };
    const { data: messages, error } = await client.session.messages({ path: { id: sessionID }, query });
    if (error) throw new Refused("session_not_readable");
    const asked = messages.filter(({ info }) => info.role === "user");
    if (asked.some(({ parts }) => parts.some((part) => part.type === "text" && holds(part.text, id, envelope)))) return;
    if (sentAt === undefined) {
      const { agent, model } = asked.at(-1)?.info ?? {};
      const parts = [{ type: "text", text: envelope }];
      const body = { parts, ...(agent && { agent }), ...(model && { model }) };
      const { error: refused } = await client.session.promptAsync({ path: { id: sessionID }, body });
      if (refused) throw new Refused("prompt_refused");
      sentAt = Date.now();
    } else if (Date.now() - sentAt > NOT_TAKEN) {
      throw new Refused("not_taken");
    }
    await pause(LOOK);
  }
  throw new Refused("session_gone");
}

/** The tools of Transit, each in the name of the session that calls it; none without transit-mcp. */
async function tools(root) {
  const list = await transitTools().catch(() => []);
  const schemas = {};
  const tool = {};
  for (const { name, description, inputSchema } of list) {
    schemas[`transit_${name}`] = inputSchema;
    tool[`transit_${name}`] = {
      description,
      args: inputSchema.properties ?? {},
      execute: async (args, { sessionID }) => {
        const env = { TRANSIT_SESSION_ID: await root(sessionID) };
        return (await transitAgent(["call", name, "-"], { env, input: JSON.stringify(args) })).trimEnd();
      },
    };
  }
  return { tool, schemas };
}
