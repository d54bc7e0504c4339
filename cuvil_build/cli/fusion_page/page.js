"use strict";

const SVG = "http://www.w3.org/2000/svg";
const API = "/api/v1/fusion";
const ACTIONS = [
  ["accept", "Accept", "this rule wins here, whatever contests it"],
  ["deny", "Deny", "this rule makes no region with these nodes"],
  ["pin", "Pin", "exactly these nodes are one region, before anything else"],
  ["clear", "Clear", "the rules decide again"],
];
const TABS = {
  regions: { title: "Regions", has: (row) => row.applied && row.stage !== "fold" },
  rewrites: { title: "Rewrites", has: (row) => row.applied && row.stage === "fold" },
  refused: { title: "Refused", has: (row) => !row.applied },
  review: { title: "Review", has: (row) => row.review },
};
const COLUMNS = [
  { key: "rule", title: "rule", of: (row) => row.rule },
  { key: "nodes", title: "nodes", of: (row) => row.nodes.join(", ") },
  { key: "mask", title: "fusion_src", of: (row) => row.fusion_src, number: true, show: (row) => hex(row.fusion_src) },
  { key: "bytes", title: "bytes saved", of: (row) => row.bytes_saved, number: true, gained: true },
  { key: "flops", title: "FLOPs saved", of: (row) => row.flops_saved, number: true, gained: true },
  { key: "trust", title: "trust", of: (row) => row.decision_trust, number: true, show: (row) => row.decision_trust.toFixed(2) },
  { key: "error", title: "error", of: (row) => row.error ?? -1, number: true, show: (row) => (row.error === null ? "" : row.error.toExponential(1)), measured: true },
  { key: "why", title: "refused by", of: (row) => row.refused_by, refused: true },
  { key: "override", title: "decided by", of: (row) => row.override || (row.applied ? "rules" : "") },
];

const kept = document.getElementById("data").textContent;
const token = new URLSearchParams(location.search).get("token") ?? "";
const served = kept === "";
const state = { data: null, step: 0, tab: "regions", sort: "bytes", down: true, chosen: null, zoom: 1, said: null, waiting: new Map() };
const find = (id) => document.getElementById(id);
const hex = (mask) => "0x" + BigInt(mask).toString(16);

function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Data ------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const answer = await fetch(API + path, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.hint ? `${data.error} (${data.hint})` : data.error);
  return data;
}

async function load() {
  state.data = served ? await ask("/decisions") : JSON.parse(kept);
  if (!state.data.steps.some((step) => step.stale)) state.waiting.clear();
  state.step = Math.min(state.step, state.data.steps.length - 1);
  show();
}

async function decide(action, row) {
  for (const button of document.querySelectorAll("[data-action]")) button.disabled = true;
  try {
    state.said = await ask("/override", { action, rule: row.rule, nodes: row.nodes });
    state.data.text = state.said.text;
    state.waiting.set(row.id, action);
    state.problem = "";
  } catch (problem) {
    state.problem = problem.message;
  }
  showNotes();
  showTable();
  showDetails();
  showChange();
}

const view = () => state.data.steps[state.step];
const rows = () => view().explanation.decisions;

/** The region that a node is part of: fusions come after the rewrites that they contain. */
function regionsByNode() {
  const found = new Map();
  const applied = rows().filter((row) => row.applied);
  const order = [...applied.filter((row) => row.stage === "fold"), ...applied.filter((row) => row.stage !== "fold")];
  for (const row of order) for (const name of row.nodes) found.set(name, row);
  return found;
}

/** Regions that follow each other are far apart in colour; a rewrite has the colour of its region. */
function hues() {
  const region = regionsByNode();
  const shown = [...new Set(region.values())];
  const hue = new Map(shown.map((row, at) => [row, Math.round(at * 137.5) % 360]));
  const applied = rows().filter((row) => row.applied);
  return new Map(applied.map((row) => [row, hue.get(row) ?? hue.get(region.get(row.nodes[0])) ?? 0]));
}

// Picture ---------------------------------------------------------------------------------------------------

function showPicture() {
  const { drawing } = view();
  const region = regionsByNode();
  const hue = hues();
  const of = drawing.nodes.map((node) => node.names.map((name) => region.get(name)).find(Boolean));
  const picture = find("picture");
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${drawing.width} ${drawing.height}`);
  for (const edge of drawing.edges) {
    const [first, second] = edge.between;
    const inner = of[first] && of[first] === of[second];
    const path = draw("path", { d: curve(edge.points), class: inner ? "edge inner" : "edge" });
    if (inner) path.style.setProperty("--hue", hue.get(of[first]));
    picture.append(path);
  }
  drawing.nodes.forEach((node, at) => picture.append(box(node, of[at], hue.get(of[at]), drawing)));
  zoom(state.zoom);
}

function curve(points) {
  let text = `M${points[0].join(",")}`;
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    const middle = (y1 + y2) / 2;
    text += x1 === x2 ? `L${x2},${y2}` : `C${x1},${middle} ${x2},${middle} ${x2},${y2}`;
  }
  return text;
}

function box(node, row, hue, drawing) {
  const group = draw("g", { class: row ? "node fused" : "node", transform: `translate(${node.x},${node.y})`, tabindex: 0 });
  if (row) group.style.setProperty("--hue", hue);
  group.append(draw("rect", { width: drawing.node_width, height: drawing.node_height, rx: 5 }));
  const op = draw("text", { x: 8, y: 15 });
  op.textContent = shorten(node.op, 20);
  const name = draw("text", { x: 8, y: 29, class: "name" });
  name.textContent = shorten(node.names[0], 22);
  const title = draw("title", {});
  title.textContent = [node.op, ...node.names, row ? `region of ${row.rule}` : "in no region"].join("\n");
  group.append(op, name, title);
  group.dataset.names = JSON.stringify(node.names);
  const choose = () => {
    const mine = (other) => other.nodes.some((one) => node.names.includes(one));
    pick(row ?? rows().find(mine) ?? null, false);
  };
  group.addEventListener("click", choose);
  group.addEventListener("keydown", (event) => event.key === "Enter" && choose());
  return group;
}

/** File and folder: as much of a line's path as an override needs. */
const tail = (line) => line.split(/[\\/]/).slice(-2).join("/");

/** The end of a name says more than its start. */
const shorten = (text, most) => (text.length <= most ? text : "…" + text.slice(1 - most));

/** What is in the middle stays there. */
function zoom(scale) {
  const { drawing } = view();
  const paper = find("paper");
  const before = state.zoom;
  state.zoom = Math.min(3, Math.max(0.05, scale));
  const middle = [paper.scrollLeft + paper.clientWidth / 2, paper.scrollTop + paper.clientHeight / 2];
  find("picture").setAttribute("width", drawing.width * state.zoom);
  find("picture").setAttribute("height", drawing.height * state.zoom);
  if (state.zoom === before) return;
  paper.scrollLeft = (middle[0] * state.zoom) / before - paper.clientWidth / 2;
  paper.scrollTop = (middle[1] * state.zoom) / before - paper.clientHeight / 2;
}

/** As wide as the paper, and never so small that nothing can be read where scrolling helps. */
function fit() {
  const { drawing } = view();
  const paper = find("paper");
  zoom(Math.min(1, Math.max(0.4, paper.clientWidth / drawing.width)));
}

// Table -----------------------------------------------------------------------------------------------------

function columns() {
  const measured = rows().some((row) => row.error !== null);
  const refused = state.tab === "refused";
  return COLUMNS.filter((column) => !(column.measured && (refused || !measured)) && !(column.refused && !refused) &&
    !(column.gained && refused));
}

function shownRows() {
  const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const column = COLUMNS.find((one) => one.key === state.sort);
  const found = rows().filter((row) => {
    const text = [row.rule, ...row.nodes, row.refused_by, row.override].join(" ").toLowerCase();
    return TABS[state.tab].has(row) && words.every((word) => text.includes(word));
  });
  const sign = state.down ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [column.of(a), column.of(b)];
    return sign * (column.number ? x - y : String(x).localeCompare(String(y))) || a.rule.localeCompare(b.rule);
  });
}

function showTable() {
  const head = document.querySelector("thead");
  const line = make("tr");
  for (const column of columns()) {
    const cell = make("th", column.title, column.number ? "number" : "");
    cell.tabIndex = 0;
    cell.setAttribute("aria-sort", column.key === state.sort ? (state.down ? "descending" : "ascending") : "none");
    const sort = () => {
      state.down = state.sort === column.key ? !state.down : Boolean(column.number);
      state.sort = column.key;
      showTable();
    };
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => event.key === "Enter" && sort());
    line.append(cell);
  }
  head.replaceChildren(line);
  const hue = hues();
  document.querySelector("tbody").replaceChildren(...shownRows().map((row) => rowLine(row, hue)));
  markNodes();
}

function rowLine(row, hue) {
  const line = make("tr");
  line.tabIndex = 0;
  line.dataset.id = row.id;
  line.setAttribute("aria-selected", row === state.chosen);
  for (const column of columns()) {
    const text = column.show ? column.show(row) : column.number ? column.of(row).toLocaleString("en") : column.of(row);
    const cell = make("td", text, column.number ? "number" : column.key);
    if (column.key === "rule") cell.prepend(swatch(row, hue));
    if (column.key === "override" && state.waiting.has(row.id)) cell.append(" ", make("span", `next: ${state.waiting.get(row.id)}`, "tag"));
    if (column.key === "trust" && row.review) cell.append(" ", make("span", "review", "tag"));
    line.append(cell);
  }
  line.addEventListener("click", () => pick(row, true));
  line.addEventListener("keydown", (event) => event.key === "Enter" && pick(row, true));
  return line;
}

function swatch(row, hue) {
  const mark = make("span", "", row.applied ? "swatch" : "swatch none");
  if (row.applied) mark.style.setProperty("--hue", hue.get(row));
  return mark;
}

function pick(row, scroll) {
  state.chosen = row;
  state.problem = "";
  state.said = null;
  for (const line of document.querySelectorAll("tbody tr")) {
    line.setAttribute("aria-selected", row !== null && line.dataset.id === row.id);
  }
  markNodes();
  showNotes();
  showDetails();
  showChange();
  if (scroll) document.querySelector(".node.chosen")?.scrollIntoView({ block: "center", inline: "center" });
}

function markNodes() {
  const chosen = new Set(state.chosen?.nodes ?? []);
  const filtered = find("filter").value.trim() !== "";
  const shown = new Set(filtered ? shownRows().flatMap((row) => row.nodes) : []);
  for (const group of document.querySelectorAll(".node")) {
    const names = JSON.parse(group.dataset.names);
    group.classList.toggle("chosen", names.some((name) => chosen.has(name)));
    group.classList.toggle("away", filtered && !names.some((name) => shown.has(name)));
  }
}

// Panels ----------------------------------------------------------------------------------------------------

function show() {
  const steps = find("step");
  steps.replaceChildren(...state.data.steps.map((one) => make("option", one.explanation.step.replace("fuse:", ""))));
  steps.selectedIndex = state.step;
  const before = state.chosen;
  state.chosen = rows().find((row) => before && row.id === before.id) ?? null;
  find("summary").textContent = `${view().drawing.nodes.length} nodes, for ${view().explanation.variants.join(", ")}`;
  find("legend").textContent = "fusion_src: " +
    view().explanation.rules.map((bit) => `${hex(bit.mask)} ${bit.rule}`).join(", ");
  find("legend").title = find("legend").textContent;
  find("reload").hidden = !served;
  showNotes();
  showTabs();
  showPicture();
  showTable();
  showDetails();
  showChange();
}

function showNotes() {
  const notes = [];
  if (state.problem) notes.push(make("p", state.problem, "bad"));
  if (view().stale) notes.push(make("p", "The override file, the rules or the model have changed since these decisions were made: run 'cuvil build', then reload.", "warn"));
  if (served && !state.data.file) notes.push(make("p", "cuvil.yaml names no override file: with fusion: {overrides: fusion.overrides.yaml} decisions can be written.", "warn"));
  notes.push(...state.data.warnings.map((text) => make("p", text, "warn")));
  find("notes").replaceChildren(...notes);
}

function showTabs() {
  const buttons = Object.entries(TABS).map(([key, tab]) => {
    const button = make("button", `${tab.title} (${rows().filter(tab.has).length})`);
    button.type = "button";
    button.role = "tab";
    button.dataset.tab = key;
    button.setAttribute("aria-selected", key === state.tab);
    button.addEventListener("click", () => {
      state.tab = key;
      showTabs();
      showTable();
    });
    return button;
  });
  find("tabs").replaceChildren(...buttons);
}

function showDetails() {
  const panel = find("details");
  const row = state.chosen;
  if (row === null) {
    panel.replaceChildren(make("p", "Choose a node, or a line of the table.", "quiet"));
    return;
  }
  const facts = make("dl");
  const fact = (name, text, kind = "") => text !== "" && facts.append(make("dt", name), make("dd", text, kind));
  fact("outcome", row.applied ? "applied" : "refused");
  fact("refused by", row.refused_by);
  fact("decided by", row.override);
  fact("contested by", row.contested_by.join(", "));
  fact("to review", row.review && row.contested_by.length === 0 ? "a gain on some CPUs and a loss on others" : "");
  fact("stage", [row.stage, row.granularity].filter(Boolean).join(", "));
  const parts = row.trust ? `: pattern ${row.trust.pattern}, cost model ${row.trust.model}, numbers ${row.trust.numeric}` : "";
  fact("trust", row.decision_trust.toFixed(2) + parts);
  fact("saves", `${row.bytes_saved.toLocaleString("en")} bytes, ${row.flops_saved.toLocaleString("en")} FLOPs`);
  fact("error", row.error === null ? "" : row.error.toExponential(1));
  fact("function", row.function);
  fact(row.nodes.length === 1 ? "node" : `${row.nodes.length} nodes`, row.nodes.join("\n"), "nodes");
  const lines = view().drawing.nodes.filter((node) => node.names.some((name) => row.nodes.includes(name)))
    .flatMap((node) => node.lines);
  fact("source", [...new Set(lines)].map(tail).join("\n"), "nodes");
  const actions = make("div", "", "actions");
  for (const [action, title, meaning] of served && state.data.file ? ACTIONS : []) {
    const button = make("button", title);
    button.type = "button";
    button.title = meaning;
    button.dataset.action = action;
    button.addEventListener("click", () => decide(action, row));
    actions.append(button);
  }
  panel.replaceChildren(make("h2", row.rule), facts, actions);
}

function showChange() {
  const panel = find("change");
  const parts = [];
  if (state.said) {
    const said = state.said;
    parts.push(make("h2", said.changed ? `Written to ${said.file}` : `${said.file} says so already`));
    if (said.diff) parts.push(difference(said.diff));
    if (said.changed) parts.push(make("p", "It holds from the next build on.", "quiet"));
    if (said.entries.length) parts.push(make("p", `About this region: ${said.entries.join("; ")}`, "quiet"));
  }
  if (state.data.file && state.data.text.trim()) {
    parts.push(make("h2", state.data.file));
    parts.push(make("pre", state.data.text));
  }
  panel.replaceChildren(...parts);
}

function difference(text) {
  const block = make("pre");
  block.id = "diff";
  for (const line of text.trimEnd().split("\n")) {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "gone" : "";
    block.append(make("span", line + "\n", kind));
  }
  return block;
}

// Start -----------------------------------------------------------------------------------------------------

function fail(problem) {
  find("notes").replaceChildren(make("p", `The decisions can't be shown: ${problem.message}`, "bad"));
}

find("step").addEventListener("change", () => {
  state.step = find("step").selectedIndex;
  state.chosen = null;
  show();
  fit();
});
find("reload").addEventListener("click", () => load().catch(fail));
find("larger").addEventListener("click", () => zoom(state.zoom * 1.25));
find("smaller").addEventListener("click", () => zoom(state.zoom / 1.25));
find("fit").addEventListener("click", fit);
find("filter").addEventListener("input", showTable);
load().then(() => { fit(); document.body.dataset.ready = "yes"; }, fail);
