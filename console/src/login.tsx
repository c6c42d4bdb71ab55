// Who is logged in, and signing in and out by the issuer where the server offers that.

import { useEffect, useState } from "react";

import { read, send } from "./ask";

/** The way in while the server asks for a login, and else who is in with the way out. */
export function Login({ needs_login }: { needs_login: boolean }) {
  const [issuer, setIssuer] = useState<string | null>(null);
  const [principal, setPrincipal] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      const offer = await read<{ issuer: string | null }>("api/v1/sign-in/offer", abort.signal);
      setIssuer(offer.issuer);
      if (offer.issuer !== null && !needs_login) {
        setPrincipal((await read<{ principal: string }>("api/v1/me", abort.signal)).principal);
      }
    };
    // Whatever goes wrong is told by what the page itself asks for.
    ask().catch(() => undefined);
    return () => abort.abort();
  }, [needs_login]);
  useEffect(() => {
    if (issuer === null) {
      return undefined;
    }
    let timer = 0;
    const goOn = async () => {
      const again_ms = await renew().catch(() => RETRY_MS);
      if (again_ms === null) {
        return;
      }
      if (needs_login && await read("api/v1/me").then(() => true, () => false)) {
        // The token ended while nobody looked; there is a new one now.
        window.location.reload();
        return;
      }
      timer = window.setTimeout(() => void goOn(), Math.min(Math.max(again_ms, LEAST_MS), TIMER_MS_MAX));
    };
    void goOn();
    return () => window.clearTimeout(timer);
  }, [issuer, needs_login]);
  if (issuer === null) {
    return null;
  }
  if (needs_login) {
    return <a className="button" href="api/v1/sign-in" onClick={keepPlace}>Sign in with {hostOf(issuer)}</a>;
  }
  const out = async () => {
    const { address } = await send<{ address: string | null }>("POST", "api/v1/sign-out");
    if (address === null) {
      window.location.reload();
    } else {
      window.location.assign(address);
    }
  };
  return principal === null ? null : <span>{principal.replace(/^User:/, "")} <button onClick={() => void out()}>Sign out</button></span>;
}

/** Remembers the page that was asked for, since the issuer sends people back to the first one. */
function keepPlace(): void {
  try {
    sessionStorage.setItem(PLACE, location.hash);
  } catch {
    // A browser that keeps nothing shows the first page.
  }
}

/** Goes on where somebody was when they signed in. */
export function comeBack(): void {
  try {
    const place = sessionStorage.getItem(PLACE);
    sessionStorage.removeItem(PLACE);
    if (place !== null && location.hash === "") {
      history.replaceState(null, "", `${location.pathname}${place}`);
    }
  } catch {
    // As above.
  }
}

/** Has the login's token replaced when it is time; answers when to ask again, null where it ends. */
async function renew(): Promise<number | null> {
  const ask = async () => (await send<{ again_ms: number | null }>("POST", "api/v1/sign-in/renew")).again_ms;
  // A refresh token is often good for once: pages of one browser ask one after the other. Where the
  // address is not a secure one, browsers have no locks.
  const locks = navigator.locks as LockManager | undefined;
  return locks === undefined ? ask() : locks.request("thalweg-renewal", ask);
}

const PLACE = "thalweg-place";
/** When to ask again after the server did not answer, and at the earliest, in milliseconds. */
const RETRY_MS = 15_000;
const LEAST_MS = 1_000;
// A browser's timer of more fires at once.
const TIMER_MS_MAX = 2 ** 31 - 1;

function hostOf(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return address;
  }
}
