// Hashes JSON payloads by the service's rule (docs/architecture/requests.md): RFC 8785, SHA-256, credentials left out, integers
// beyond ±(2^53-1) as {"$int": "digits"}. Reads lines {"name", "text"} and writes lines {"name", "canonical", "hash"}.
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const canonicalize = require("canonicalize");
const { parse } = require("lossless-json");

function number(text) {
  if (!/^-?\d+$/.test(text)) return Number(text);
  const exact = BigInt(text);
  return Number.isSafeInteger(Number(exact)) ? Number(exact) : { $int: exact.toString() };
}

function hashed(text) {
  const document = parse(text, undefined, number);
  const parameters = document.operation_parameters;
  if (parameters !== null && typeof parameters === "object" && !Array.isArray(parameters)) {
    delete parameters.config;
    delete parameters["storage-credentials"];
  }
  const canonical = canonicalize(document);
  return { canonical, hash: createHash("sha256").update(canonical, "utf8").digest("hex") };
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { name, text } = JSON.parse(line);
  console.log(JSON.stringify({ name, ...hashed(text) }));
}
