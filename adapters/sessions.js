// What the adapters of Pi and OMP share: how their sessions keep what was said, in memory as entries and in a file of
// JSON lines.
// `transit-agent install` puts this text and the adapter's own into one file, without the import and the export.

import { open, readFile } from "node:fs/promises";
import { holds } from "./link.js";

/** How much of the end of a session's file is read first, in bytes. */
const TAIL = 512 * 1024;

/** The text of the session's message that holds the delivery. */
export function find(session, id, envelope) {
  return session
    .getEntries()
    .filter((entry) => entry.type === "message" && entry.message.role === "user")
    .flatMap(({ message: { content } }) => (typeof content === "string" ? [content] : content.map(({ text }) => text ?? "")))
    .findLast((text) => holds(text, id, envelope));
}

/** Whether the session's file has a message of this text. It is JSON, written by the same JSON.stringify. */
export async function isStored(session, text) {
  const path = session.getSessionFile();
  const wanted = JSON.stringify(text).slice(1, -1);
  let file;
  try {
    file = await open(path);
    const { size } = await file.stat();
    const tail = Buffer.alloc(Math.min(size, TAIL));
    await file.read(tail, 0, tail.length, size - tail.length);
    return tail.includes(wanted) || (size > TAIL && (await readFile(path)).includes(wanted));
  } catch (error) {
    if (error.code === "ENOENT") return false; // the file is not there yet
    throw error;
  } finally {
    await file?.close();
  }
}
