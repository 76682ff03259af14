// Calls tools of transit-mcp with an official TypeScript client, `sdk` or `client`.
//
// The first argument names the client, the second is JSON: {"command", "args", "calls": [[tool, arguments], …],
// "parallel": N}. Prints one JSON line: {"server", "tools", "results", "parallel"}. Each result is what the client
// gives, or {"thrown"}; `parallel` counts the answers without error to N calls of whoami made at once.

const [which, asked] = process.argv.slice(2);
const { command, args, calls, parallel } = JSON.parse(asked);
const { Client } = await import(
  which === "sdk" ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
const { StdioClientTransport } = await import(
  which === "sdk" ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio");

const client = new Client({ name: "interop", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const { tools } = await client.listTools();
const call = (name, given) =>
  client.callTool({ name, arguments: given }).catch((err) => ({ thrown: String(err) }));
const results = [];
for (const [name, given] of calls) results.push(await call(name, given));
const all = await Promise.all(Array.from({ length: parallel }, () => call("whoami", {})));
const server = client.getServerVersion();
await client.close();
console.log(JSON.stringify({
  server, tools: tools.map((tool) => tool.name), results,
  parallel: all.filter((result) => !result.thrown && !result.isError).length,
}));
