// The lasso: a line drawn by hand around points, and which points are inside.

/** Positions of the points inside a polygon [[x, y], …]; points given as two arrays. Even-odd, so a loop in a loop is a hole. */
export function within(polygon, xs, ys, n = xs.length) {
  const found = [];
  if (polygon.length < 3) return found;
  const px = polygon.map((p) => p[0]), py = polygon.map((p) => p[1]), m = polygon.length;
  const left = Math.min(...px), right = Math.max(...px), top = Math.min(...py), bottom = Math.max(...py);
  for (let i = 0; i < n; i++) {
    const x = xs[i], y = ys[i];
    if (x < left || x > right || y < top || y > bottom) continue;
    let inside = false;
    for (let a = 0, b = m - 1; a < m; b = a++) {
      if (py[a] > y !== py[b] > y && x < ((px[b] - px[a]) * (y - py[a])) / (py[b] - py[a]) + px[a]) inside = !inside;
    }
    if (inside) found.push(i);
  }
  return found;
}

/** A line under way, in pixels of the canvas. `add` leaves out points closer than `step`: a slow hand makes no longer list. */
export function trail(step = 3) {
  let points = [];
  return {
    points: () => points,
    start(x, y) { points = [[x, y]]; },
    add(x, y) {
      const [a, b] = points[points.length - 1];
      if (Math.hypot(x - a, y - b) >= step) points.push([x, y]);
    },
    end() { const whole = points; points = []; return whole; },
    draw(brush, ink, paper, ratio) {
      if (points.length < 2) return;
      brush.beginPath();
      points.forEach(([x, y], i) => (i ? brush.lineTo(x, y) : brush.moveTo(x, y)));
      brush.closePath();
      brush.globalAlpha = 0.12;
      brush.fillStyle = ink;
      brush.fill("evenodd");
      brush.globalAlpha = 1;
      brush.setLineDash([]);
      brush.strokeStyle = paper; brush.lineWidth = 4 * ratio; brush.stroke();
      brush.setLineDash([6 * ratio, 4 * ratio]);
      brush.strokeStyle = ink; brush.lineWidth = 2 * ratio; brush.stroke();
      brush.setLineDash([]);
    },
  };
}
