// What is drawn on a map: discs as rows of points, and names that do not lie on each other.

/** Half the width of a disc in each of its 2 r + 1 rows. */
export function halfWidths(r) {
  return Array.from({ length: 2 * r + 1 }, (_, row) => Math.floor(Math.sqrt(r * r + r * 0.6 - (row - r) ** 2)));
}

/**
 * Where names can stand without lying on each other or leaving the picture. `wanted`: [{text, x, y, wide}], the most
 * important first; gives those that found room, each where it is wanted or a line above or below that. `right`: what
 * buttons cover of the picture.
 */
export function roomFor(wanted, { width, height, line, most = Infinity, right = 0 }) {
  const placed = [];
  for (const one of wanted) {
    if (placed.length >= most) break;
    if (one.x < 0 || one.y < 0 || one.x > width || one.y > height) continue; // its samples are not in view
    const half = one.wide / 2, x = Math.max(half + 4, Math.min(width - right - half - 4, one.x));
    const free = (y) => y >= line / 2 && y <= height - line / 2
      && placed.every((other) => Math.abs(other.y - y) >= line || Math.abs(other.x - x) >= half + other.wide / 2 + 6);
    const tried = Math.max(line / 2, Math.min(height - line / 2, one.y));
    const y = [tried, tried - line, tried + line].find(free);
    if (y !== undefined) placed.push({ ...one, x, y });
  }
  return placed;
}
