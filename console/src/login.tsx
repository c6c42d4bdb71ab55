// Who is logged in, and signing in and out by the issuer where the server offers that.

import { useEffect, useState } from "react";

import { read } from "./ask";

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
  if (issuer === null) {
    return null;
  }
  if (needs_login) {
    return <a className="button" href="api/v1/sign-in">Sign in with {hostOf(issuer)}</a>;
  }
  const out = async () => {
    await fetch("api/v1/sign-out", { method: "POST" });
    window.location.reload();
  };
  return principal === null ? null : <span>{principal.replace(/^User:/, "")} <button onClick={() => void out()}>Sign out</button></span>;
}

function hostOf(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return address;
  }
}
