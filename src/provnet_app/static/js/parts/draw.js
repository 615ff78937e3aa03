// Drawing by hand for models of small grey pictures: white on black, as the digits are; brought to their place and size.
import { el } from "../dom.js";

const SIDE = 280;
const SHARE = 20 / 28; // handwritten digits fill 20 of 28 pixels, centred on their mass
const INK = 24; // darker than this is no ink

/** A board of `width` x `height` pixels; `take(blob)` gets a PNG after each stroke. */
export function board({ width, height, take }) {
  const tall = Math.round((SIDE * height) / width);
  const words = "Drawing board: draw with the mouse, a finger or a pen";
  const canvas = el("canvas", { class: "board", width: SIDE, height: tall, role: "img", "aria-label": words });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const centre = el("input", { type: "checkbox", checked: true, onChange: () => give() });
  let last = null;
  let drawn = false;

  function wipe() {
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, SIDE, tall);
    drawn = false;
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * tall];
  }
  function line(from, to) {
    pen.strokeStyle = "#fff";
    pen.lineWidth = SIDE / 13;
    pen.lineCap = "round";
    pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(to[0] + 0.01, to[1]); // a tap leaves a dot
    pen.stroke();
    drawn = true;
  }
  function give() {
    if (!drawn) return;
    const small = el("canvas", { width, height });
    const ink = small.getContext("2d");
    ink.imageSmoothingQuality = "high";
    ink.fillRect(0, 0, width, height);
    const { sx, sy, side, dx, dy, scaled } = centre.checked ? fit() : { sx: 0, sy: 0, side: SIDE, dx: 0, dy: 0, scaled: width };
    ink.drawImage(canvas, sx, sy, side, (side * tall) / SIDE, dx, dy, scaled, (scaled * tall) / SIDE);
    small.toBlob((blob) => blob && take(blob), "image/png");
  }
  // the whole board, scaled so that the ink's box has its share and its mass stands in the middle
  function fit() {
    const { data } = pen.getImageData(0, 0, SIDE, tall);
    let [left, top, right, bottom, mass, x, y] = [SIDE, tall, 0, 0, 0, 0, 0];
    for (let i = 0; i < data.length; i += 4) {
      const value = data[i];
      if (value < INK) continue;
      const column = (i / 4) % SIDE;
      const row = Math.floor(i / 4 / SIDE);
      [left, right, top, bottom] = [Math.min(left, column), Math.max(right, column), Math.min(top, row), Math.max(bottom, row)];
      [mass, x, y] = [mass + value, x + value * column, y + value * row];
    }
    const scale = (Math.min(width, height) * SHARE) / Math.max(right - left + 1, bottom - top + 1, SIDE / 10);
    return { sx: 0, sy: 0, side: SIDE, dx: width / 2 - (x / mass) * scale, dy: height / 2 - (y / mass) * scale, scaled: SIDE * scale };
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    line(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    const next = at(event);
    line(last, next);
    last = next;
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { if (last) { last = null; give(); } });
  wipe();
  return el(
    "div", { class: "stack tight drawing" }, canvas,
    el("div", { class: "row apart" },
      el("label", { class: "row small" }, centre, "Centre what I draw"),
      el("button", { type: "button", class: "button small", onClick: wipe }, "Wipe")),
  );
}
