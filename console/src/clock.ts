// The server's time: what it tells of when is compared with that, since this machine's clock may go otherwise.

let ahead_ms = 0;

/** Hears what time it is where the server is. */
export function hear(server_now_ms: number): void {
  ahead_ms = server_now_ms - Date.now();
}

/** Milliseconds since 1970, by the server's clock as far as it was heard. */
export function now(): number {
  return Date.now() + ahead_ms;
}
