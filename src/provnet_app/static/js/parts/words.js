// Samples that are no pictures: a text or a row of a table, with what it shares with the one that was asked about marked.
import { el } from "../dom.js";

const WORD = /[\p{L}\p{N}]+/gu;
const SHORTEST = 3; // letters of a word that is worth a mark
const COMMON = new Set("about all also and any are been but can did does for from had has have her him his how into its just like more not now off one our out over she than that the their them then there these they this too very was were what when which who will with would you your".split(" "));
const MOST = 60; // columns that are listed before the rest is folded

const folded = (word) => word.toLocaleLowerCase();

/** The words of a text that can be found again in another one. */
export function wordsOf(text) {
  return new Set((text ?? "").match(WORD)?.map(folded).filter((word) => word.length >= SHORTEST && !COMMON.has(word)) ?? []);
}

/** A text with the words marked that `other` has as well; its nodes. */
export function marked(text, other) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(WORD)) {
    if (match[0].length < SHORTEST || !other.has(folded(match[0]))) continue;
    if (match.index > at) found.push(text.slice(at, match.index));
    found.push(el("mark", {}, match[0]));
    at = match.index + match[0].length;
  }
  return [...found, text.slice(at)];
}

/**
 * A sample in words: its text, or the columns of its row. `asked` is the sample that it is compared with: what both have
 * is marked. Null for samples without words.
 */
export function inWords(one, asked = null) {
  if (one.cells) return row(one.cells, asked?.cells ? new Map(asked.cells) : null);
  if (!one.text) return null;
  return el("div", { class: "sample-text", tabindex: "0", role: "region", "aria-label": "Text of the sample" }, asked?.text ? marked(one.text, wordsOf(asked.text)) : one.text);
}

function row(cells, other) {
  const line = ([name, value]) => el("tr", { class: other?.get(name) === value ? "same" : null }, el("th", { scope: "row" }, name), el("td", {}, other?.get(name) === value ? el("mark", {}, value) : value));
  const table = (some) => el("table", { class: "cells" }, el("tbody", {}, some.map(line)));
  return el("div", { class: "sample-text", tabindex: "0", role: "region", "aria-label": "Row of the sample" }, table(cells.slice(0, MOST)),
    cells.length > MOST ? el("details", { class: "small" }, el("summary", {}, `${cells.length - MOST} more columns`), table(cells.slice(MOST))) : null);
}
