// The console: which page is shown, and the way between pages.

import { StrictMode, useEffect, useRef } from "react";
import { createRoot } from "react-dom/client";

import { useAsked } from "./ask";
import type { Status } from "./api";
import { AgentPage } from "./fleet/agent";
import { ClassPage } from "./fleet/class";
import { EventsPage } from "./fleet/events";
import { Overview } from "./fleet/overview";
import { hear } from "./clock";
import { age } from "./format";
import { JobPage } from "./imports/job";
import { ImportsPage } from "./imports/jobs";
import { TenantPage, TenantsPage } from "./imports/tenants";
import { LinePage } from "./line";
import { comeBack, Login } from "./login";
import { useSight } from "./me";
import { MqttPage } from "./mqtt";
import { Trouble } from "./parts";
import { SchemasPage, SubjectPage } from "./schemas";
import { StatementPage, StatementsPage } from "./statements/pages";
import { GroupPage, GroupsPage } from "./streams/groups";
import { TopicPage, TopicsPage } from "./streams/topics";
import { address, useRoute } from "./route";
import type { Route } from "./route";
import "./style.css";

function Console() {
  const route = useRoute();
  const status = useAsked<Status>("api/v1/status", 5000);
  const sight = useSight();
  const imports_only = sight !== null && sight.imports_only;
  const [first = imports_only ? "imports" : undefined, ...rest] = route.path;
  const now_ms = status.value?.now_ms;
  useEffect(() => {
    if (now_ms !== undefined) {
      hear(now_ms);
    }
  }, [now_ms]);
  const title = [...route.path.slice(0, 2).reverse(), "Thalweg"].join(" – ");
  useEffect(() => {
    document.title = title;
  }, [title]);
  // Who goes to another page goes on from its beginning, by keyboard and screen reader too.
  const place = route.path.join("/");
  const shown = useRef(place);
  useEffect(() => {
    if (shown.current !== place) {
      shown.current = place;
      toPage();
    }
  }, [place]);
  const tab = (href: string, name: string, is_here: boolean) => <a href={href} aria-current={is_here ? "page" : undefined}>{name}</a>;
  return (
    <>
      <header>
        <a className="skip" href={location.hash} onClick={(event) => { event.preventDefault(); toPage(); }}>Skip to the page</a>
        <h1>Thalweg</h1>
        <nav className="tabs" aria-label="Pages">
          {!imports_only && tab("#/", "Line", first === undefined)}
          {!imports_only && status.value !== null && ("streams" in status.value.endpoints || "rest" in status.value.endpoints) && (
            <>
              {tab(address(["topics"]), "Topics", first === "topics")}
              {tab(address(["groups"]), "Groups", first === "groups")}
              {("schemas" in status.value.endpoints || "rest" in status.value.endpoints) && tab(address(["schemas"]), "Schemas", first === "schemas")}
            </>
          )}
          {!imports_only && status.value?.mqtt != null && tab(address(["mqtt"]), "MQTT", first === "mqtt")}
          {!imports_only && tab(address(["statements"]), "Statements", first === "statements")}
          {tab(address(["imports"]), "Imports", first === "imports")}
          {!imports_only && tab(address(["tenants"]), "Tenants", first === "tenants")}
          {!imports_only && status.value !== null && "fleet" in status.value.endpoints && (
            <>
              {tab(address(["fleet"]), "Fleet", first === "fleet" || first === "agents" || first === "classes")}
              {tab(address(["events"]), "Events", first === "events")}
            </>
          )}
        </nav>
        {status.value !== null && <span>{status.value.version}, up {age(status.value.uptime_ms)}</span>}
        {status.error !== null && !status.needs_login && <span className="badge bad" role="alert">No answer{status.at_ms > 0 && ` for ${age(performance.now() - status.at_ms)}; what is shown is from then`}: {status.error}</span>}
        {status.needs_login && <span className="badge bad" role="alert">{status.error}</span>}
        <Login needs_login={status.needs_login} />
      </header>
      {sight === null ? <main /> : <Page route={first === undefined ? route : { ...route, path: [first, ...rest] }} />}
    </>
  );
}

function toPage(): void {
  const page = document.querySelector("main");
  if (page !== null) {
    page.tabIndex = -1;
    page.focus();
    window.scrollTo(0, 0);
  }
}

function Page({ route }: { route: Route }) {
  const [first, name] = route.path;
  switch (first) {
    case undefined:
      return <LinePage />;
    case "fleet":
      // What is typed stays; what the address asks for anew is shown anew.
      return <Overview query={route.query} />;
    case "statements":
      return name === undefined ? <StatementsPage query={route.query} /> : <StatementPage key={name} id={name} />;
    case "topics":
      return name === undefined ? <TopicsPage query={route.query} /> : <TopicPage key={name} name={name} query={route.query} />;
    case "groups":
      return name === undefined ? <GroupsPage query={route.query} /> : <GroupPage key={name} name={name} />;
    case "schemas":
      return name === undefined ? <SchemasPage query={route.query} /> : <SubjectPage key={name} name={name} query={route.query} />;
    case "mqtt":
      return <MqttPage query={route.query} />;
    case "imports":
      return name === undefined ? <ImportsPage query={route.query} /> : <JobPage key={name} id={name} query={route.query} />;
    case "tenants":
      return name === undefined ? <TenantsPage query={route.query} /> : <TenantPage key={name} name={name} />;
    case "events":
      return <EventsPage query={route.query} />;
    case "agents":
      return name === undefined ? <Overview query={route.query} /> : <AgentPage key={name} id={name} />;
    case "classes":
      return name === undefined ? <Overview query={route.query} /> : <ClassPage key={name} name={name} />;
    default:
      return <main><Trouble text={`There is no page '${first}'.`} /><p><a href="#/">To the first page</a></p></main>;
  }
}

comeBack();
const root = document.getElementById("root");
if (root !== null) {
  createRoot(root).render(<StrictMode><Console /></StrictMode>);
}
