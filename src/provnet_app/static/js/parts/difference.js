// Two pictures taken from each other, point by point, on a canvas of the page.
import { el } from "../dom.js";

const MORE = [224, 122, 20]; // the query is brighter: orange
const LESS = [60, 120, 230]; // the sample is brighter: blue; the two are told apart by colour-blind people too

/** A canvas with query minus sample; empty until both pictures are loaded. */
export function difference(query, sample) {
  const canvas = el("canvas", { role: "img", "aria-label": "Difference between the query and the sample", width: 1, height: 1 });
  Promise.all([loaded(query), loaded(sample)]).then(([a, b]) => {
    const [width, height] = [Math.min(a.naturalWidth, b.naturalWidth), Math.min(a.naturalHeight, b.naturalHeight)];
    const [one, other] = [values(a, width, height), values(b, width, height)];
    canvas.width = width;
    canvas.height = height;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(width, height);
    let sum = 0;
    for (let i = 0; i < width * height; i += 1) {
      const apart = (one[i] - other[i]) / 255;
      const colour = apart > 0 ? MORE : LESS;
      const strength = Math.min(1, Math.abs(apart) ** 0.8);
      sum += Math.abs(apart);
      for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = colour[c];
      image.data[4 * i + 3] = Math.round(255 * strength);
    }
    pen.putImageData(image, 0, 0);
    canvas.dataset.mean = (sum / (width * height)).toFixed(4);
    canvas.setAttribute("aria-label", `Difference between the query and the sample: ${(100 * sum / (width * height)).toFixed(1)} % on average`);
  }).catch(() => canvas.setAttribute("aria-label", "The difference cannot be shown"));
  return canvas;
}

async function loaded(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}

function values(image, width, height) {
  const pen = el("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  pen.drawImage(image, 0, 0, width, height);
  const { data } = pen.getImageData(0, 0, width, height);
  return Float32Array.from({ length: width * height }, (_, i) => 0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]);
}
