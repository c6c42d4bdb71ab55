// A long list that the server tells whole: what is looked for in it, its order, and a page of it. All three
// stand in the address.

import type { ReactNode } from "react";

import { count } from "./format";
import { Section } from "./parts";
import type { Size } from "./parts";
import { address, go } from "./route";

export interface Column<T> {
  /** What the address calls it when it is sorted by. */
  name: string;
  title: string;
  /** What it is sorted by. */
  value: (one: T) => string | number | null;
  is_number?: boolean;
  /** What is shown, where that is something else. */
  cell?: (one: T) => ReactNode;
}

interface Props<T> {
  id: string;
  title: string;
  empty: string;
  size: Size;
  items: T[];
  /** The first one names what the row is of. */
  columns: [Column<T>, ...Column<T>[]];
  key_of: (one: T) => string;
  /** The texts of one in which is looked for what is looked for. */
  texts: (one: T) => string[];
  path: string[];
  query: URLSearchParams;
}

export function Listing<T>({ id, title, empty, size, items, columns, key_of, texts, path, query }: Props<T>) {
  const search = query.get("search") ?? "";
  const sort = query.get("sort") ?? "";
  const found = sorted(items.filter((one) => holds(texts(one), search)), columns, sort);
  const pages = Math.max(1, Math.ceil(found.length / ROWS));
  const page = Math.min(pages, Math.max(1, Math.floor(Number(query.get("page") ?? 1)) || 1));
  const shown = found.slice((page - 1) * ROWS, page * ROWS);
  const to = (change: Record<string, string>) => address(path, { search, sort, ...change });
  const told = search.trim() === "" ? count(items.length) : `${count(found.length)} of ${count(items.length)}`;
  const note = pages === 1 ? told : `${told}, page ${page} of ${pages}`;
  const filter = (items.length > 0 || search !== "") && (
    <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
      <label>
        Find
        <input type="search" value={search} placeholder="a part of it" onChange={(event) => go(to({ search: event.currentTarget.value }), true)} />
      </label>
    </form>
  );
  const isNone = typeof size === "number" && size > 0 && found.length === 0;
  return (
    <>
      <Section id={id} title={title} empty={isNone ? "None is like that." : empty} size={isNone ? 0 : size} note={<span aria-live="polite">{note}</span>} above={filter}>
        <thead>
          <tr>{columns.map((column) => <Head key={column.name} column={column} sort={sort} to={to} />)}</tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={key_of(one)} data-id={key_of(one)}>
              {columns.map((column, at) => (at === 0
                ? <th key={column.name} scope="row">{written(column, one)}</th>
                : <td key={column.name} className={column.is_number ? "number" : undefined}>{written(column, one)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </Section>
      {pages > 1 && (
        <nav className="pager" aria-label={`Pages of ${title.toLowerCase()}`}>
          {page > 1 && <a href={to({ page: String(page - 1) })}>Previous page</a>}
          {page < pages && <a href={to({ page: String(page + 1) })}>Next page</a>}
        </nav>
      )}
    </>
  );
}

/** A column's title, by which the list is sorted, and the other way round when it is already. */
function Head<T>({ column, sort, to }: { column: Column<T>; sort: string; to: (change: Record<string, string>) => string }) {
  const [up, down] = [column.name, `-${column.name}`];
  // Of numbers the largest are what is looked for.
  const [first, second] = column.is_number ? [down, up] : [up, down];
  const order = sort === up ? "ascending" : sort === down ? "descending" : undefined;
  const mark = sort === up ? " ↑" : sort === down ? " ↓" : "";
  return (
    <th scope="col" className={column.is_number ? "number" : undefined} aria-sort={order}>
      <a href={to({ sort: sort === first ? second : first })}>{column.title}<span aria-hidden="true">{mark}</span></a>
    </th>
  );
}

function written<T>(column: Column<T>, one: T): ReactNode {
  if (column.cell !== undefined) {
    return column.cell(one);
  }
  const value = column.value(one);
  return typeof value === "number" ? count(value) : (value ?? "–");
}

function holds(texts: string[], search: string): boolean {
  const sought = search.trim().toLowerCase();
  return sought === "" || texts.some((text) => text.toLowerCase().includes(sought));
}

/** In the order that the server told them in where nothing is asked for. */
function sorted<T>(items: T[], columns: Column<T>[], sort: string): T[] {
  const isDown = sort.startsWith("-");
  const column = columns.find((one) => one.name === (isDown ? sort.slice(1) : sort));
  if (column === undefined) {
    return items;
  }
  const order = (a: T, b: T) => compared(column.value(a), column.value(b));
  return [...items].sort((a, b) => (isDown ? order(b, a) : order(a, b)));
}

/** What is not known comes before all. */
function compared(a: string | number | null, b: string | number | null): number {
  if (a === null || b === null) {
    return (a === null ? 0 : 1) - (b === null ? 0 : 1);
  }
  return typeof a === "number" && typeof b === "number" ? a - b : WORDS.compare(String(a), String(b));
}

const WORDS = new Intl.Collator("en", { numeric: true });

/** Rows of one page. */
const ROWS = 100;
