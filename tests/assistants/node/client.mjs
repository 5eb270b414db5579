// A client made with the TypeScript SDK, for the tests: starts a server, takes a JSON list of
// steps from stdin, writes what each came to as a line of JSON.
//
//   node client.mjs 1|2 COMMAND ARGUMENT... < steps
//   node client.mjs 1|2 http://127.0.0.1:8642/mcp < steps
//
// 1 and 2 are versions of the SDK. A step is {"call": TOOL, "arguments": {...}} or {"read": URI}.
import { text } from "node:stream/consumers";

const MODULES = {
  1: [
    "@modelcontextprotocol/sdk/client/index.js",
    "@modelcontextprotocol/sdk/client/stdio.js",
    "@modelcontextprotocol/sdk/client/streamableHttp.js",
  ],
  2: [
    "@modelcontextprotocol/client",
    "@modelcontextprotocol/client/stdio",
    "@modelcontextprotocol/client",
  ],
};

const [version, command, ...args] = process.argv.slice(2);
const steps = JSON.parse(await text(process.stdin));
const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] = await Promise.all(
  MODULES[version].map((name) => import(name)),
);

const client = new Client({ name: `typescript-sdk-${version}`, version: "0" });
client.onerror = (error) => console.error(`client: ${error.message}`);
await client.connect(
  command.startsWith("http:")
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, env: process.env }),
);
// The SDK holds results against the schemas of the tools that it has listed.
const { tools } = await client.listTools();
console.log(JSON.stringify({ server: client.getServerVersion(), tools }));

for (const step of steps) {
  try {
    const result =
      "read" in step
        ? await client.readResource({ uri: step.read })
        : await client.callTool({ name: step.call, arguments: step.arguments });
    console.log(JSON.stringify({ result }));
  } catch (error) {
    console.log(JSON.stringify({ threw: error.message, code: error.code }));
  }
}
await client.close();
