// Interactive timelines: bands under the pointer, zoom by dragging, everything by keyboard.
const FEWEST = 8; // events in the closest view

function startTimeline(figure, lifetimes) {
  const live = figure.querySelector(".live");
  const [base, overlay] = live.querySelectorAll("canvas");
  const readout = figure.querySelector(".readout");
  const status = figure.querySelector("[role=status]");
  const state = { from: 0, to: lifetimes.numEvents, view: "categories", cursor: null, drag: null };
  let layout = null;
  let colors = null;
  let scale = 1;
  let speaking = 0;

  const columnOf = (event) => columnIn(layout.width, state, event);
  const eventAt = (x) => state.from + Math.floor((x / live.clientWidth) * (state.to - state.from));

  function draw() {
    scale = window.devicePixelRatio || 1;
    const width = Math.round(live.clientWidth * scale);
    const height = Math.round((live.clientHeight - AXIS) * scale);
    if (width < 2 || height < 2) return;
    for (const canvas of [base, overlay]) {
      canvas.width = width;
      canvas.height = height + Math.round(AXIS * scale);
    }
    colors = readColors(figure);
    layout = layOut(lifetimes, { ...state, width, height, least: scale });
    const context = base.getContext("2d");
    paintBands(context, layout, lifetimes.ranks, colors);
    const frame = { layout, lifetimes, colors, scale, from: state.from, to: state.to };
    paintTicks(context, frame);
    if (state.view === "categories") paintNames(context, layout, scale, colors);
    paintAxis(context, frame);
    paintFailures(context, frame);
    paintPeak(context, frame);
    // Values that a test or a person with a debugger can compare with the report.
    Object.assign(live.dataset, { from: state.from, to: state.to, top: layout.top, singles: layout.single?.size ?? 0 });
    if (state.cursor && (state.cursor.event < state.from || state.cursor.event >= state.to)) state.cursor = null;
    paintOverlay();
  }

  function paintOverlay() {
    const context = overlay.getContext("2d");
    context.clearRect(0, 0, overlay.width, overlay.height);
    if (!layout) return;
    if (state.drag) {
      const [left, right] = [state.drag.start, state.drag.now].map((x) => x * scale).sort((a, b) => a - b);
      context.fillStyle = colors.text;
      context.globalAlpha = 0.18;
      context.fillRect(left, 0, right - left, layout.height);
      context.globalAlpha = 1;
    }
    const { cursor } = state;
    if (!cursor) return;
    if (cursor.owner !== NOBODY) {
      // The band's outline: each of its pixels that borders on another band.
      const { owners, width, height } = layout;
      const wide = cursor.owner < FIRST ? 0 : Math.round(scale); // a thin line would hide a thin band
      context.fillStyle = colors.text;
      for (let column = 0; column < width; column++) {
        for (let row = 0, at = column; row < height; row++, at += width) {
          if (owners[at] !== cursor.owner) continue;
          const isInner = column > 0 && column < width - 1 && row > 0 && row < height - 1
            && owners[at - 1] === cursor.owner && owners[at + 1] === cursor.owner
            && owners[at - width] === cursor.owner && owners[at + width] === cursor.owner;
          if (!isInner) context.fillRect(column - wide, row - wide, 1 + 2 * wide, 1 + 2 * wide);
        }
      }
    }
    const x = columnOf(cursor.event) + 0.5;
    context.strokeStyle = colors.text;
    context.globalAlpha = 0.6;
    context.lineWidth = scale;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, layout.height + AXIS * scale);
    context.stroke();
    context.globalAlpha = 1;
  }

  function point(column, row, isTyped) {
    const event = layout.events[column];
    const owner = layout.owners[row * layout.width + column];
    state.cursor = { event, owner, row };
    const read = readAt(lifetimes, event, owner, owner === NOBODY ? null : layout.single);
    showReadout(readout, lifetimes, read);
    paintOverlay();
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      status.textContent = spoken(lifetimes, read);
    }, isTyped ? 50 : 600);
  }

  function zoom(from, to) {
    const length = Math.min(lifetimes.numEvents, Math.max(Math.min(FEWEST, lifetimes.numEvents), Math.round(to - from)));
    state.from = Math.max(0, Math.min(lifetimes.numEvents - length, Math.round(from)));
    state.to = state.from + length;
    draw();
    const isAll = length === lifetimes.numEvents;
    for (const button of figure.querySelectorAll("[data-needs-zoom]")) button.disabled = isAll;
  }

  function zoomBy(factor) {
    const length = (state.to - state.from) * factor;
    const center = state.cursor ? state.cursor.event : (state.from + state.to) / 2;
    const share = (center - state.from) / (state.to - state.from);
    zoom(center - share * length, center + (1 - share) * length);
  }

  // Puts the cursor on an event, on the band of `owner` if it has one there, else at the same height.
  function moveTo(event, owner, row) {
    const length = state.to - state.from;
    if (event < state.from || event >= state.to) zoom(event - length / 2, event + length / 2);
    const column = columnOf(event);
    const rows = [];
    for (let at = 0; at < layout.height; at++) if (layout.owners[at * layout.width + column] === owner) rows.push(at);
    point(column, owner !== NOBODY && rows.length ? rows[rows.length >> 1] : row, true);
  }

  function moveAcross(direction) {
    const column = columnOf(state.cursor.event);
    const at = (row) => layout.owners[row * layout.width + column];
    let row = state.cursor.row;
    while (row >= 0 && row < layout.height && at(row) === state.cursor.owner) row += direction;
    if (row < 0 || row >= layout.height) return;
    const first = row;
    while (row >= 0 && row < layout.height && at(row) === at(first)) row += direction;
    point(column, (first + row - direction) >> 1, true);
  }

  function toPeak() {
    const column = columnOf(Math.max(state.from, Math.min(state.to - 1, lifetimes.peak)));
    let row = 0;
    while (row < layout.height - 1 && layout.owners[row * layout.width + column] === NOBODY) row++;
    moveTo(lifetimes.peak, NOBODY, row);
  }

  live.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const length = state.to - state.from;
    const stride = Math.max(1, Math.round(length / (event.shiftKey ? 20 : 200)));
    const along = (by) => {
      if (!state.cursor) return toPeak();
      const next = state.cursor.event + by;
      return moveTo(Math.max(0, Math.min(lifetimes.numEvents - 1, next)), state.cursor.owner, state.cursor.row);
    };
    const keys = {
      ArrowLeft: () => along(-stride),
      ArrowRight: () => along(stride),
      ArrowUp: () => (state.cursor ? moveAcross(-1) : toPeak()),
      ArrowDown: () => (state.cursor ? moveAcross(1) : toPeak()),
      Home: () => along(-lifetimes.numEvents),
      End: () => along(lifetimes.numEvents),
      "+": () => zoomBy(1 / 2),
      "=": () => zoomBy(1 / 2),
      "-": () => zoomBy(2),
      0: () => zoom(0, lifetimes.numEvents),
      Escape: () => zoom(0, lifetimes.numEvents),
      p: toPeak,
      P: toPeak,
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  const place = (event) => {
    const box = live.getBoundingClientRect();
    return [Math.max(0, Math.min(live.clientWidth - 1, event.clientX - box.left)), event.clientY - box.top];
  };
  live.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x] = place(event);
    state.drag = { start: x, now: x };
    live.setPointerCapture(event.pointerId);
  });
  live.addEventListener("pointermove", (event) => {
    if (!layout) return;
    const [x, y] = place(event);
    if (state.drag) state.drag.now = x;
    const column = Math.min(layout.width - 1, Math.floor(x * scale));
    point(column, Math.max(0, Math.min(layout.height - 1, Math.floor(y * scale))), false);
  });
  live.addEventListener("pointerup", () => {
    const { drag } = state;
    state.drag = null;
    if (drag && Math.abs(drag.now - drag.start) > 4) {
      const [left, right] = [drag.start, drag.now].sort((a, b) => a - b);
      zoom(eventAt(left), eventAt(right) + 1);
    } else paintOverlay();
  });
  live.addEventListener("pointercancel", () => {
    state.drag = null;
    paintOverlay();
  });
  live.addEventListener("dblclick", () => zoom(0, lifetimes.numEvents));

  const toolbar = figure.querySelector(".toolbar");
  for (const radio of toolbar.querySelectorAll("input")) {
    radio.addEventListener("change", () => {
      state.view = radio.value;
      state.cursor = null;
      draw();
    });
  }
  const actions = {
    in: () => zoomBy(1 / 2),
    out: () => zoomBy(2),
    all: () => zoom(0, lifetimes.numEvents),
    peak: toPeak,
  };
  for (const button of toolbar.querySelectorAll("[data-action]")) {
    button.addEventListener("click", actions[button.dataset.action]);
  }
  const steps = new Map();
  for (const { first, end, step } of lifetimes.stretches) {
    if (step >= 0) steps.set(step, [steps.get(step)?.[0] ?? first, end]);
  }
  const places = toolbar.querySelector(".steps");
  for (const [step, [first, end]] of [...steps].slice(0, 4)) {
    const button = element("button", "", `Step ${step}`);
    button.type = "button";
    button.addEventListener("click", () => zoom(first, end));
    places.append(button);
  }

  zoom(0, lifetimes.numEvents);
  showReadout(readout, lifetimes, readAt(lifetimes, lifetimes.peak, NOBODY, null));
  new ResizeObserver(() => draw()).observe(live);
  document.addEventListener("theme", draw);
}

// A timeline is read and drawn when it is about to become visible; until then it only has its space. Those that are
// visible at first do not wait: in the frame of a notebook an observer may be told late, or only after scrolling.
const NEAR = 800; // pixels
const timelines = JSON.parse(document.getElementById("timelines").textContent);
const start = (figure) => startTimeline(figure, readLifetimes(timelines[Number(figure.dataset.timeline)]));
const awaited = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    awaited.unobserve(target);
    start(target);
  }
}, { rootMargin: `${NEAR}px` });
for (const figure of document.querySelectorAll("figure[data-timeline]")) {
  figure.classList.add("is-live");
  for (const part of figure.querySelectorAll("[data-live]")) part.hidden = false;
  if (figure.getBoundingClientRect().top < window.innerHeight + NEAR) start(figure);
  else awaited.observe(figure);
}
