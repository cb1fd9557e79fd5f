// Sizes and numbers as everywhere in memlint: three digits or more, at most two decimals, binary units.
const counted = new Intl.NumberFormat("en-US");

// Rounds a half to the even digit, as Python does; toFixed rounds it away from zero.
function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const whole = Math.floor(scaled);
  return scaled - whole === 0.5 && whole % 2 === 0 ? (whole / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

function formatBytes(nbytes) {
  if (nbytes < 1024) return `${nbytes} B`;
  let value = nbytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (Number(fixed(value, 1)) < 1024 || unit === "TiB") return `${fixed(value, value < 10 ? 2 : 1)} ${unit}`;
  }
}

// Two to five round numbers of bytes up to `top`, with their names.
function ticks(top) {
  let unit = 1;
  let name = "B";
  for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
    if (top < unit * 1024) break;
    unit *= 1024;
    name = larger;
  }
  let power = -1;
  while (5 * 5 * 10 ** power * unit < top) power++;
  const size = [1, 2, 5].find((digit) => digit * 5 * 10 ** power * unit >= top) * 10 ** power;
  return Array.from({ length: Math.floor(top / (size * unit)) },
    (_, number) => [(number + 1) * size * unit, `${Number(((number + 1) * size).toPrecision(6))} ${name}`]);
}
