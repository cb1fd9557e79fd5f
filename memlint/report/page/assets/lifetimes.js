// Events at which each Buffer opens and closes, and live bytes after each event, from the columns in the page.
const CATEGORIES = ["parameter", "buffer", "optimizer_state", "gradient", "input", "kv_cache", "activation",
  "temporary", "communication", "workspace", "other"]; // from the bottom of the stack to its top

function spaced(category) {
  return category === "other" ? "made before the steps" : category.replace("_", " ");
}

function readLifetimes(packed) {
  const { sites, strings, stretches } = packed;
  const text = (position) => (position < 0 ? "" : strings[position]);
  const numEvents = packed.events.length;
  const rankOfSite = sites.category.map((position) => CATEGORIES.indexOf(text(position)));

  // Buffers are numbered in the order in which they open, and open once.
  const count = packed.nbytes.length;
  const opened = new Int32Array(count);
  const closed = new Int32Array(count).fill(numEvents);
  const nbytes = Float64Array.from(packed.nbytes);
  const ranks = Uint8Array.from(packed.buffer_sites, (site) => rankOfSite[site]);
  const total = new Float64Array(numEvents);
  const live = CATEGORIES.map(() => new Float64Array(numEvents));
  const now = new Float64Array(CATEGORIES.length);
  let sum = 0;
  packed.events.forEach((event, position) => {
    const buffer = event >= 0 ? event : ~event;
    (event >= 0 ? opened : closed)[buffer] = position;
    const change = event >= 0 ? nbytes[buffer] : -nbytes[buffer];
    sum += change;
    now[ranks[buffer]] += change;
    total[position] = sum;
    for (let rank = 0; rank < now.length; rank++) live[rank][position] = now[rank];
  });

  const ordered = stretches.first.map((first, number) => ({
    first,
    end: stretches.first[number + 1] ?? numEvents,
    phase: text(stretches.phase[number]),
    step: stretches.step[number],
  }));
  function stretchAt(event) {
    let low = 0;
    let high = ordered.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (ordered[middle].first <= event) low = middle;
      else high = middle - 1;
    }
    return ordered[low];
  }

  return {
    count, numEvents, opened, closed, nbytes, ranks, total, live, peak: packed.peak,
    failures: packed.failures,
    stretches: ordered,
    stretchAt,
    describe(buffer) {
      const site = packed.buffer_sites[buffer];
      const said = (name) => text(sites[name][site]);
      return {
        nbytes: nbytes[buffer],
        category: CATEGORIES[ranks[buffer]],
        tensor: said("dtype") && `${said("dtype")}[${said("shape")}]`,
        place: said("place"),
        name: said("name"),
        module: said("module"),
        op: said("op"),
      };
    },
    // Number, bytes and largest of the selected Buffers that are live after an event.
    biggest(event, most, isMeant) {
      const found = [];
      let number = 0;
      let sum = 0;
      for (let buffer = 0; buffer < count && opened[buffer] <= event; buffer++) {
        if (closed[buffer] <= event || !isMeant(buffer)) continue;
        number++;
        sum += nbytes[buffer];
        if (found.length === most && nbytes[buffer] <= nbytes[found[most - 1]]) continue;
        let at = found.length;
        while (at > 0 && nbytes[found[at - 1]] < nbytes[buffer]) at--;
        found.splice(at, 0, buffer);
        if (found.length > most) found.pop();
      }
      return { found, number, nbytes: sum };
    },
  };
}
