// Labels around the bands: sizes, phases and steps, the peak.
const AXIS = 40; // CSS pixels below the plot, for phases and steps

function columnIn(width, { from, to }, event) {
  return Math.max(0, Math.min(width - 1, Math.floor(((event + 0.5 - from) * width) / (to - from))));
}

function haloed(context, text, x, y, align, scale, { text: color, surface, font }, weight = 600) {
  context.font = `${weight} ${11.5 * scale}px ${font}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 3 * scale;
  context.strokeStyle = `rgb(${surface.join(" ")} / 85%)`;
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}

function paintTicks(context, { layout, colors, scale }) {
  for (const [nbytes, text] of ticks(layout.top)) {
    const y = Math.round(layout.height * (1 - nbytes / layout.top)) + 0.5;
    if (y < 14 * scale) continue;
    context.strokeStyle = colors.text;
    context.globalAlpha = 0.22;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(layout.width, y);
    context.stroke();
    context.globalAlpha = 1;
    haloed(context, text, 5 * scale, y - 8 * scale, "left", scale, colors, 400);
  }
}

// Phases below the plot, and below them the steps, whose lines cross the plot.
function paintAxis(context, { layout, lifetimes, colors, scale, from, to }) {
  const row = (AXIS / 2) * scale;
  const toX = (event) => ((event - from) * layout.width) / (to - from);
  const segment = (first, end, text, y, isLine) => {
    const left = Math.max(0, toX(first));
    const right = Math.min(layout.width, toX(end));
    if (right <= left) return;
    context.strokeStyle = colors.text;
    context.lineWidth = scale;
    context.globalAlpha = 0.55;
    context.beginPath();
    if (left > 0 || first === from) {
      context.moveTo(Math.round(left) + 0.5, isLine ? 0 : y);
      context.lineTo(Math.round(left) + 0.5, y + row);
    }
    context.moveTo(left, layout.height + 0.5);
    context.lineTo(right, layout.height + 0.5);
    context.stroke();
    context.globalAlpha = 1;
    context.font = `${11.5 * scale}px ${colors.font}`;
    if (context.measureText(text).width + 8 * scale > right - left) return;
    context.fillStyle = colors.text;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, left + 5 * scale, y + row / 2 + scale);
  };
  let step = null;
  for (const { first, end, phase, step: number } of lifetimes.stretches) {
    if (first >= to || end <= from) continue;
    segment(first, end, number < 0 && phase === "other" ? "set-up" : phase, layout.height, false);
    if (step && step.number === number) step.end = end;
    else {
      if (step && step.number >= 0) segment(step.first, step.end, `step ${step.number}`, layout.height + row, true);
      step = { first, end, number };
    }
  }
  if (step && step.number >= 0) segment(step.first, step.end, `step ${step.number}`, layout.height + row, true);
}

function paintFailures(context, { layout, lifetimes, colors, scale, from, to }) {
  lifetimes.failures.forEach((failure, number, all) => {
    if (failure < from || failure >= to) return;
    const x = columnIn(layout.width, { from, to }, failure) + 0.5;
    context.strokeStyle = colors.text;
    context.lineWidth = 2 * scale;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, layout.height);
    context.stroke();
    if (number < all.length - 1) return;
    const side = 120 * scale; // the label of a peak close by is on the other one
    const isRight = x < layout.width / 2 ? x < side : x < layout.width - side;
    haloed(context, "a request failed", x + (isRight ? 9 : -9) * scale, 10 * scale, isRight ? "left" : "right", scale,
      colors);
  });
}

function paintPeak(context, { layout, lifetimes, colors, scale, from, to }) {
  const { peak } = lifetimes;
  if (peak < from || peak >= to) return;
  const x = columnIn(layout.width, { from, to }, peak) + 0.5;
  const y = layout.height * (1 - lifetimes.total[peak] / layout.top);
  context.strokeStyle = colors.text;
  context.lineWidth = scale;
  context.setLineDash([4 * scale, 3 * scale]);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x, layout.height);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = colors.text;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 5 * scale, y - 8 * scale);
  context.lineTo(x + 5 * scale, y - 8 * scale);
  context.fill();
  const isRight = x < layout.width / 2;
  haloed(context, `peak ${formatBytes(lifetimes.total[peak])}`, x + (isRight ? 9 : -9) * scale, y - 7 * scale,
    isRight ? "left" : "right", scale, colors);
}
