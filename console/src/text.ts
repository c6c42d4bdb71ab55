// Texts of others as people can look at them: JSON in lines, bytes as hex, and no character that hides.

/** JSON with a line for each part, its numbers and names as they were written; anything else as it is. */
export function inLines(json: string): string {
  const out: string[] = [];
  let depth = 0;
  const line = () => out.push("\n", "  ".repeat(Math.min(depth, INDENTED_MAX)));
  let before = "";
  for (const [part] of json.matchAll(PARTS)) {
    const is_end = part === "}" || part === "]";
    if (is_end) {
      depth = Math.max(0, depth - 1);
      if (before !== "{" && before !== "[") {
        line();
      }
    } else if (before === "{" || before === "[") {
      line();
    }
    out.push(part === ":" ? ": " : part);
    if (part === "{" || part === "[") {
      depth += 1;
    } else if (part === ",") {
      line();
    }
    before = part;
  }
  return out.join("");
}

/** A text in which what cannot be seen is told: control characters, and those that turn the order of others. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`);
}

/** Lines of sixteen bytes, each with where it begins and what is text of it. */
export function hexLines(base64: string): string {
  const bytes = fromBase64(base64);
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += LINE_BYTES) {
    const line = bytes.subarray(at, at + LINE_BYTES);
    const text = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex(line).padEnd(LINE_BYTES * 3 - 1)}  ${text}`);
  }
  return lines.join("\n");
}

/** The first bytes in one line. */
export function hexStart(base64: string): string {
  const bytes = fromBase64(base64.slice(0, 4 * Math.ceil(START_BYTES / 3)));
  return hex(bytes.subarray(0, START_BYTES));
}

function hex(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function fromBase64(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

const PARTS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const INDENTED_MAX = 40;
const LINE_BYTES = 16;
const START_BYTES = 24;
