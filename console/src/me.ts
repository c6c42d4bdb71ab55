// What of the pages is the caller's: whoever is held to a tenant, or is to do its imports alone, is shown that.

import { useAsked } from "./ask";

interface Me {
  principal: string | null;
  roles: string[];
  /** The tenant that the caller is held to. */
  tenant?: string;
}

export interface Sight {
  /** Imports are all that the caller sees. */
  imports_only: boolean;
  /** The tenant whose imports are shown where the page names none; null for those of all. */
  tenant: string | null;
}

/** Null as long as it is not known. */
export function useSight(): Sight | null {
  const { value: me, error } = useAsked<Me>("api/v1/me", 60_000);
  if (me === null) {
    // What is wrong is told by what the pages ask for.
    return error === null ? null : { imports_only: false, tenant: null };
  }
  const imports = me.roles.filter((role) => role === IMPORTER || role.startsWith(`${IMPORTER}:`));
  const imports_only = imports.length > 0 && imports.length === me.roles.length;
  const sees_all = me.roles.some((role) => role === IMPORTER || !role.includes(":"));
  const named = imports.find((role) => role !== IMPORTER)?.slice(IMPORTER.length + 1);
  return { imports_only, tenant: me.tenant ?? (sees_all ? null : (named ?? null)) };
}

const IMPORTER = "importer";
