// Description of the pointer's or cursor's target. Strings only ever become text.
const BIGGEST = 5;

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function plural(number, noun) {
  return `${counted.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function nameOf({ phase, step }) {
  if (step >= 0) return `step ${step}, ${phase}`;
  return phase === "other" ? "set-up" : `before the first step, ${phase}`;
}

// The target at one point: the event, its name, and its Buffers.
function readAt(lifetimes, event, owner, single) {
  const { ranks } = lifetimes;
  const where = `Event ${counted.format(event)} of ${counted.format(lifetimes.numEvents)}, ${nameOf(lifetimes.stretchAt(event))}: `
    + `${formatBytes(lifetimes.total[event])} live`;
  const rank = owner === NOBODY ? null : owner < FIRST ? owner : ranks[owner - FIRST];
  const name = rank === null ? "all" : spaced(CATEGORIES[rank]);
  if (owner >= FIRST) {
    return { where, rank, title: name, nbytes: lifetimes.nbytes[owner - FIRST], found: [owner - FIRST], number: 1 };
  }
  const isMeant = (buffer) => (rank === null || ranks[buffer] === rank) && !single?.has(buffer);
  const biggest = lifetimes.biggest(event, BIGGEST, isMeant);
  const small = single ? ` too small for ${biggest.number === 1 ? "a band of its" : "bands of their"} own` : "";
  return { ...biggest, where, rank, title: `${name}, ${plural(biggest.number, "Buffer")}${small}` };
}

function lifeOf(lifetimes, buffer) {
  const opened = lifetimes.opened[buffer];
  const closed = lifetimes.closed[buffer];
  const start = lifetimes.stretchAt(opened);
  const number = counted.format(opened);
  if (closed === lifetimes.numEvents) return `${number} (${nameOf(start)}) to the end`;
  const end = lifetimes.stretchAt(closed);
  const when = start === end ? nameOf(start)
    : start.step === end.step ? `${nameOf(start)} to ${end.phase}` : `${nameOf(start)} to ${nameOf(end)}`;
  return `${number} to ${counted.format(closed)} (${when})`;
}

function spoken(lifetimes, read) {
  const said = `${read.title} ${formatBytes(read.nbytes)}. ${read.where}.`;
  if (read.number !== 1) return said;
  const { tensor, name, place, module, op } = lifetimes.describe(read.found[0]);
  return [said, tensor, name, place, module, op, lifeOf(lifetimes, read.found[0])].filter(Boolean).join(" ");
}

function showReadout(target, lifetimes, read) {
  const swatch = element("span", "swatch");
  if (read.rank !== null) swatch.classList.add(`back-${CATEGORIES[read.rank]}`);
  const rows = read.found.map((buffer) => {
    const { nbytes, tensor, name, place, module, op } = lifetimes.describe(buffer);
    const row = element("tr", "",
      element("td", "number", formatBytes(nbytes)),
      element("td", "", tensor),
      element("td", "", [name, place].filter(Boolean).join(", ")),
      element("td", "", module),
      element("td", "", op),
      element("td", "", lifeOf(lifetimes, buffer)));
    row.dataset.nbytes = nbytes;
    return row;
  });
  const rest = read.number - rows.length;
  target.replaceChildren(
    element("p", "where", read.where),
    element("p", "what", swatch, element("span", "", read.title), " ",
      element("b", "", formatBytes(read.nbytes))),
    ...(rows.length ? [element("table", "", element("tbody", "", ...rows))] : []),
    ...(rest > 0 ? [element("p", "rest", `and ${plural(rest, "smaller Buffer")}`)] : []));
}
