// Figures, times and events as people read them.

const whole = new Intl.NumberFormat("en-GB");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (number) => whole.format(Math.round(number));

// Three digits of a figure, but all of its whole ones; no zeros behind the point.
const brief = (value) => String(value < 100 ? Number(value.toPrecision(3)) : Math.round(value));

const tenths = (value) => String(Math.round(value * 10) / 10);

export function size(bytes) {
  let unit = 0;
  let value = bytes;
  while (Math.round(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : brief(value)} ${UNITS[unit]}`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond > 0 && perSecond < 0.05) return "< 0.1";
  return perSecond < 9.95 ? tenths(perSecond) : count(perSecond);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value <= 0) return "0 s";
  if (value < 0.5e-6) return "< 1 µs";
  if (value < 0.0009995) return `${Math.round(value * 1e6)} µs`;
  if (value < 0.9995) return `${brief(value * 1000)} ms`;
  if (value < 90) return `${value < 9.95 ? tenths(value) : Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129_600) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

export function time(ms, { withDate = false, withMs = false } = {}) {
  if (ms === null || ms === undefined) return "–";
  const at = new Date(ms);
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return `${withDate ? `${day(ms)} ` : ""}${clock}${withMs ? `.${pad(at.getMilliseconds(), 3)}` : ""}`;
}

// A time that is read next to another one, or next to the present: it has a date only if that is on another day.
export const timeBeside = (ms, other, options = {}) => time(ms, { ...options, withDate: day(ms) !== day(other) });

// A time noted by a writer may count from anything; one of our days is shown as a time, another as a number.
export const isTime = (ms) => ms > 1e11 && ms < 1e14;
export const noted = (ms) => (isTime(ms) ? time(ms, { withDate: true }) : count(ms));

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

const DEPTH_MAX = 100;
const PRETTY_LENGTH_MAX = 512 * 1024; // characters: each line begins with its indentation, so a short text may grow without bound
export const TOO_LARGE = Symbol("JSON that would be too large, or too deep, with line breaks");

// JSON with line breaks; null if it is none, or TOO_LARGE. The text is only cut apart: numbers beyond 2^53 and repeated names
// stay as they are.
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object") return null;
  } catch {
    return null;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let out = "";
  for (const [index, token] of tokens.entries()) {
    const next = tokens[index + 1];
    if (token === "{" || token === "[") {
      const closes = next === "}" || next === "]";
      depth += 1;
      out += token + (closes ? "" : `\n${"  ".repeat(depth)}`);
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const opened = tokens[index - 1] === "{" || tokens[index - 1] === "[";
      out += (opened ? "" : `\n${"  ".repeat(depth)}`) + token;
    } else if (token === ",") {
      out += `,\n${"  ".repeat(depth)}`;
    } else {
      out += token === ":" ? ": " : token;
    }
    if (depth > DEPTH_MAX || out.length > PRETTY_LENGTH_MAX) return TOO_LARGE;
  }
  return out;
}

export function hexDump(hex) {
  const lines = [];
  for (let place = 0; place < hex.length; place += 32) {
    const bytes = hex.slice(place, place + 32).match(/../g) ?? [];
    const text = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    lines.push(`${pad((place / 2).toString(16), 6)}  ${bytes.join(" ").padEnd(47)}  ${text.join("")}`);
  }
  return lines.join("\n");
}
