// Axes: from values to places between 0 and 1, linear or logarithmic, with round numbers to label.

/** An axis over `values`; `min` and `max` fix its ends. `between(n)` gives values evenly over it. */
export function scale({ min, max, log = false, whole = false, shown = number }, values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value) && (!log || value > 0));
  const low = min ?? (known.length ? Math.min(...known) : 0);
  const top = max ?? (known.length ? Math.max(...known) : 1);
  // a single value stands in the middle, with a number of its own alone
  if (whole && top <= low) return { place: () => 0.5, shown, ticks: [low], between: (n) => Array.from({ length: n }, () => low) };
  const high = top > low ? top : low + (log ? low : 1);
  const linear = (value) => (value - low) / (high - low);
  const logarithmic = (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low);
  const at = (share) => (log ? low * (high / low) ** share : low + (high - low) * share);
  return {
    place: log ? logarithmic : linear,
    shown,
    ticks: log ? powers(low, high) : steps(low, high).filter((value) => !whole || Number.isInteger(value)),
    between: (n) => Array.from({ length: n }, (_, i) => at(i / (n - 1))),
  };
}

function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.0001; power += 1) found.push(10 ** power);
  return found;
}

function steps(low, high) {
  const rough = (high - low) / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * unit >= rough) * unit;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i += 1) found.push(i * step);
  return found;
}

/** A value in three digits. */
export function number(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toPrecision(3)));
}
