// The timeline as pixels. `owners` holds the owner of each pixel's band: NOBODY, a category by its rank, or FIRST + a
// buffer. The pointer's target is read from it, so it is always the visible band.
const NOBODY = -1;
const FIRST = 16;
const MOST_SINGLE = 4000;

// The event shown in each column: of all events that fall into it, the one with the most live bytes.
function shownEvents(lifetimes, from, to, width) {
  const events = new Int32Array(width);
  for (let column = 0; column < width; column++) {
    const first = from + Math.floor((column * (to - from)) / width);
    const end = Math.max(first + 1, from + Math.floor(((column + 1) * (to - from)) / width));
    let shown = first;
    for (let event = first + 1; event < end; event++) if (lifetimes.total[event] > lifetimes.total[shown]) shown = event;
    events[column] = shown;
  }
  return events;
}

function highest(lifetimes, events) {
  return events.reduce((most, event) => Math.max(most, lifetimes.total[event]), 0);
}

// Buffers with bands of their own: the largest of those with at least `least` bytes, in the order in which they open.
function singles(lifetimes, from, to, least) {
  let found = [];
  for (let buffer = 0; buffer < lifetimes.count; buffer++) {
    const isSeen = lifetimes.nbytes[buffer] >= least && lifetimes.closed[buffer] > from
      && lifetimes.opened[buffer] < to;
    if (isSeen) found.push(buffer);
  }
  if (found.length > MOST_SINGLE) {
    found.sort((a, b) => lifetimes.nbytes[b] - lifetimes.nbytes[a]);
    found = found.slice(0, MOST_SINGLE).sort((a, b) => a - b);
  }
  return found;
}

function layOut(lifetimes, { from, to, view, width, height, least }) {
  const events = shownEvents(lifetimes, from, to, width);
  const top = highest(lifetimes, events) * 1.08 || 1;
  const owners = new Int32Array(width * height).fill(NOBODY);
  let column = 0;
  let sum = 0;
  let row = height;
  const begin = (number) => {
    column = number;
    sum = 0;
    row = height;
  };
  const put = (owner, amount) => {
    sum += amount;
    const upper = Math.round(height * (1 - sum / top));
    while (row > upper) owners[--row * width + column] = owner;
  };
  if (view === "categories") {
    for (let number = 0; number < width; number++) {
      begin(number);
      for (let rank = 0; rank < CATEGORIES.length; rank++) put(rank, lifetimes.live[rank][events[number]]);
    }
    return { events, owners, top, width, height, single: null };
  }
  const single = singles(lifetimes, from, to, (least * top) / height);
  let live = [];
  let next = 0;
  for (let number = 0; number < width; number++) {
    const event = events[number];
    live = live.filter((buffer) => lifetimes.closed[buffer] > event);
    for (; next < single.length && lifetimes.opened[single[next]] <= event; next++) {
      if (lifetimes.closed[single[next]] > event) live.push(single[next]);
    }
    const merged = CATEGORIES.map((_, rank) => lifetimes.live[rank][event]);
    for (const buffer of live) merged[lifetimes.ranks[buffer]] -= lifetimes.nbytes[buffer];
    begin(number);
    merged.forEach((amount, rank) => put(rank, amount));
    for (const buffer of live) put(FIRST + buffer, lifetimes.nbytes[buffer]);
  }
  return { events, owners, top, width, height, single: new Set(single) };
}

// Current colours of the categories and of the page, from its style.
function readColors(figure) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (color) => {
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data.slice(0, 3);
  };
  const style = getComputedStyle(figure);
  const swatch = figure.querySelector(".probe");
  const categories = CATEGORIES.map((name) => {
    swatch.setAttribute("class", `probe fill-${name}`);
    return parse(getComputedStyle(swatch).fill);
  });
  return { categories, surface: parse(style.backgroundColor), text: style.color, font: style.fontFamily };
}

function paintBands(context, layout, ranks, colors) {
  const { owners, width, height } = layout;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const mix = (color, share) => color.reduce(
    (bits, part, number) => bits | (Math.round(part + (colors.surface[number] - part) * share) << (8 * number)),
    0xff000000) >>> 0;
  // Three strengths of a colour distinguish neighbours of one category, upper edges distinguish bands.
  const shades = colors.categories.map((color) => [0, 0.14, 0.28].map((share) => mix(color, share)));
  const edges = colors.categories.map((color) => mix(color, 0.62));
  for (let at = 0; at < owners.length; at++) {
    const owner = owners[at];
    if (owner === NOBODY) continue;
    const rank = owner < FIRST ? owner : ranks[owner - FIRST];
    const isEdge = at >= width && owners[at - width] !== owner && owners[at + 3 * width] === owner;
    pixels[at] = isEdge ? edges[rank] : shades[rank][owner < FIRST ? 0 : owner % 3];
  }
  context.putImageData(image, 0, 0);
}

// The names of the categories in bands that have room for them.
function paintNames(context, layout, scale, style) {
  const { owners, width, height } = layout;
  const reach = Math.max(2, Math.round(120 * scale));
  const room = CATEGORIES.map(() => ({ high: 0 }));
  const step = Math.max(1, reach >> 2);
  for (let start = 0; start + reach <= width; start += step) {
    const lower = new Float64Array(CATEGORIES.length).fill(height);
    const upper = new Float64Array(CATEGORIES.length).fill(0);
    for (let column = start; column < start + reach; column += 2) {
      const first = new Int32Array(CATEGORIES.length).fill(-1);
      const last = new Int32Array(CATEGORIES.length).fill(-1);
      for (let row = 0; row < height; row += 2) {
        const owner = owners[row * width + column];
        if (owner === NOBODY) continue;
        if (first[owner] < 0) first[owner] = row;
        last[owner] = row;
      }
      for (let rank = 0; rank < CATEGORIES.length; rank++) {
        upper[rank] = Math.max(upper[rank], first[rank] < 0 ? height : first[rank]);
        lower[rank] = Math.min(lower[rank], last[rank]);
      }
    }
    room.forEach((best, rank) => {
      const high = lower[rank] - upper[rank];
      if (high > best.high) room[rank] = { high, x: start + reach / 2, y: (lower[rank] + upper[rank]) / 2 };
    });
  }
  room.forEach(({ high, x, y }, rank) => {
    if (high > 18 * scale) haloed(context, spaced(CATEGORIES[rank]), x, y, "center", scale, style);
  });
}
