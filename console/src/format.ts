// Numbers as people read them.

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** So many of something, which takes an s where it is not one. */
export function plural(value: number, noun: string, several = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : several}`;
}

export function rate(value: number | null): string {
  if (value === null) {
    return "–";
  }
  return value >= 100 || value === 0 ? count(Math.round(value)) : value.toFixed(1);
}

export function bytes(value: number | null): string {
  if (value === null) {
    return "–";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${units[unit]}`;
}

export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) {
    return `${seconds} s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return `${minutes} min ${seconds % 60} s`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 24) {
    return `${hours} h ${minutes % 60} min`;
  }
  return `${count(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** A value in as many digits as tell something. */
export function figure(value: number): string {
  return Math.abs(value) >= 100 ? count(Math.round(value)) : value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** An instant in the reader's own zone, to the second or the millisecond. */
export function local(at_ms: number, is_exact = false): string {
  return stamp(at_ms - new Date(at_ms).getTimezoneOffset() * 60_000, is_exact);
}

/** The same in UTC, which says so. */
export function utc(at_ms: number, is_exact = false): string {
  return `${stamp(at_ms, is_exact)} UTC`;
}

function stamp(at_ms: number, is_exact: boolean): string {
  const at = new Date(at_ms);
  // Of records there may be times that no calendar has.
  return Number.isNaN(at.getTime()) ? String(at_ms) : at.toISOString().replace("T", " ").slice(0, is_exact ? -1 : -5);
}

/** The reader's zone, as people call it. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
