// The small part of Markdown that model cards use, as nodes: no markup of the text ever becomes markup of the page.
import { el, scrolling } from "../dom.js";

/** Nodes for a card: headings, paragraphs, quotes, tables, code blocks, lists. */
export function markdown(text) {
  const lines = text.replace(/^---\n[\s\S]*?\n---\n/, "").split("\n"); // what stands before the card is for machines
  const found = [];
  while (lines.length) {
    const line = lines[0];
    if (!line.trim()) lines.shift();
    else if (line.startsWith("```")) found.push(code(lines));
    else if (/^#{1,6} /.test(line)) found.push(heading(lines.shift()));
    else if (line.startsWith("|")) found.push(table(taken(lines, (one) => one.startsWith("|"))));
    else if (line.startsWith(">")) found.push(quote(taken(lines, (one) => one.startsWith(">"))));
    else if (/^[-*] /.test(line)) found.push(bullets(taken(lines, (one) => /^[-*] /.test(one))));
    else found.push(el("p", {}, inline(taken(lines, (one) => one.trim() !== "" && !/^([|>#]|```|[-*] )/.test(one)).join(" "))));
  }
  return found;
}

function taken(lines, belongs) {
  const found = [lines.shift()];
  while (lines.length && belongs(lines[0])) found.push(lines.shift());
  return found;
}

function quote(lines) {
  return el("blockquote", { class: "note" }, inline(lines.map((one) => one.replace(/^> ?/, "")).join(" ")));
}

function bullets(lines) {
  return el("ul", { class: "bullets" }, lines.map((one) => el("li", {}, inline(one.slice(2)))));
}

function heading(line) {
  const level = /^#+/.exec(line)[0].length;
  return el(level === 1 ? "h3" : "h4", {}, inline(line.slice(level + 1)));
}

function code(lines) {
  lines.shift();
  const inside = [];
  while (lines.length && !lines[0].startsWith("```")) inside.push(lines.shift());
  lines.shift();
  return el("pre", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Code" }, el("code", {}, inside.join("\n")));
}

function table(rows) {
  const cells = (row) => row.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((one) => one.trim());
  const [head, , ...body] = rows;
  return scrolling("Table", el("table", { class: "table" },
    el("thead", {}, el("tr", {}, cells(head).map((one) => el("th", { scope: "col" }, inline(one))))),
    el("tbody", {}, body.map((row) => el("tr", {}, cells(row).map((one) => el("td", {}, inline(one))))))));
}

// **bold**, `code`, backslashes before signs; anything else stays as it was written
function inline(text) {
  return text.split(/(\*\*[^*]+\*\*|`[^`]+`)/).map((part) => {
    if (part.startsWith("**") && part.length > 4) return el("strong", {}, plain(part.slice(2, -2)));
    if (part.startsWith("`") && part.length > 2) return el("code", {}, part.slice(1, -1));
    return plain(part);
  });
}

const SIGNS = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&" };

function plain(text) {
  return text.replace(/\\([!-/:-@[-`{-~])|&(?:lt|gt|quot|amp);/g, (all, sign) => sign ?? SIGNS[all]);
}
