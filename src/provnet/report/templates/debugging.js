"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll(".suspect")];
  if (!cards.length) return;
  // names as they are are JSON; what is shown may be written another way, and the text of an option loses spaces
  const names = [...find("class-names").options].map((option) => [JSON.parse(option.value), option.textContent]);
  find("tools").hidden = false;
  for (const card of cards) {
    const choice = card.querySelector(".choice");
    const menu = choice.querySelector("select");
    const wanted = JSON.parse(card.dataset.exact)[1];
    for (const [name, words] of names) {
      const option = document.createElement("option");
      option.value = name;
      option.textContent = words;
      option.selected = name === wanted;
      menu.append(option);
    }
    menu.addEventListener("change", () => { choice.querySelector("[value=relabel]").checked = true; });
    choice.hidden = false;
  }
  const show = () => {
    const [given, wanted, least, named] = ["given", "wanted", "least", "named"].map((id) => find(id).value);
    let count = 0;
    for (const card of cards) {
      const { given: label, wanted: other, score, id } = card.dataset;
      card.hidden = !((!given || label === given) && (!wanted || other === wanted) && Number(score) * 100 >= Number(least) - 1e-9
        && id.toLowerCase().includes(named.toLowerCase()));
      count += card.hidden ? 0 : 1;
    }
    find("least-words").textContent = `${least} %`;
    find("shown").textContent = `${count} of ${cards.length} shown`;
    find("none").hidden = count > 0;
  };
  // a spreadsheet computes what begins with = + - @: `provnet train --apply` takes the quote away again
  const harmless = (text) => (/^'*[=+\-@\x00-\x1f\x7f]/.test(text) ? `'${text}` : text);
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cell = (text) => quoted(harmless(text));
  const save = () => {
    const rows = [["sample_id", "sha256", "decision", "new_label", "label", "mislabel"]];
    for (const card of cards) {
      const decision = card.querySelector(".choice input:checked").value;
      const label = decision === "relabel" ? card.querySelector(".choice select").value : "";
      rows.push([JSON.parse(card.dataset.exact)[0], card.dataset.sha, decision, label, card.dataset.given, card.dataset.score]);
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  for (const id of ["given", "wanted", "least", "named"]) find(id).addEventListener("input", show);
  find("export").addEventListener("click", save);
  show();
})();
