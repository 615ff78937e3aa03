// Finding samples by a part of their id: the shortest ids first, a button for each; Enter goes to the first.
const finder = (data, n, go) => {
  const field = document.getElementById("find"), box = document.getElementById("found");
  let hits = [];
  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    hits = [];
    let total = 0;
    if (text) for (let i = 0; i < n; i++) if (data.ids[i].toLowerCase().includes(text)) { total++; if (hits.length < 8 || data.ids[i].toLowerCase() === text) hits.push(i); }
    hits.sort((a, b) => data.ids[a].length - data.ids[b].length);
    box.replaceChildren();
    for (const i of hits.slice(0, 8)) {
      const button = document.createElement("button");
      button.textContent = data.ids[i];
      button.type = "button";
      button.addEventListener("click", () => go(i));
      box.append(button);
    }
    const said = document.createElement("span");
    said.className = "soft small";
    said.textContent = total ? `${total.toLocaleString("en")} found` : "no such id";
    if (text) box.append(said);
  });
  field.addEventListener("keydown", (event) => { if (event.key === "Enter" && hits.length) { event.preventDefault(); go(hits[0]); } });
};
