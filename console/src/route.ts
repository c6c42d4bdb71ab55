// Which page is shown: the part of the address after `#/`. What stands there can be sent to others,
// kept as a bookmark and gone back from; so filters stand there too.

import { useEffect, useState } from "react";

export interface Route {
  /** The steps of the path, such as `["agents", "pump-7"]`; none for the first page. */
  path: string[];
  query: URLSearchParams;
}

export function read(hash: string): Route {
  if (!hash.startsWith("#/")) {
    return { path: [], query: new URLSearchParams() };
  }
  const [path = "", query = ""] = hash.slice(2).split("?", 2);
  const steps = path.split("/").filter((step) => step !== "");
  return { path: steps.map(decoded), query: new URLSearchParams(query) };
}

/** The address of a page; parameters without a value are left out. */
export function address(path: string[], query: Record<string, string> = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** Goes to a page; `replaces` leaves no step to go back to, as for each letter of a search. */
export function go(to: string, replaces = false): void {
  if (replaces) {
    history.replaceState(null, "", to);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => read(location.hash));
  useEffect(() => {
    const change = () => setRoute(read(location.hash));
    window.addEventListener("hashchange", change);
    return () => window.removeEventListener("hashchange", change);
  }, []);
  return route;
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}
