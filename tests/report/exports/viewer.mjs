// What PyTorch's memory_viz makes of a snapshot, as JSON: node viewer.mjs FOLDER SNAPSHOT, where FOLDER is PyTorch's
// torch/utils/viz. The viewer is a page that draws with d3 from the network: its functions run here without the page.
import fs from 'node:fs';
import path from 'node:path';

const [folder, snapshotFile] = process.argv.slice(2);
const source = ['process_alloc_data.js', 'MemoryViz.js']
  .map(name => path.join(folder, name))
  .filter(file => fs.existsSync(file))
  .map(file => fs.readFileSync(file, 'utf8'))
  .join('\n');

// Every function of the source, without the code that runs when the page is opened.
const functions = source.match(/^function [\s\S]*?^}$/gm).join('\n');

// Stands for everything that draws: takes every call, and counts as 0.
const drawn = new Proxy(function () {}, {
  get: (_target, key) => (key === Symbol.toPrimitive ? () => 0 : drawn),
  apply: () => drawn,
});

const viewer = new Function(
  'd3', 'zoom', 'scaleLinear', 'schemeTableau10', 'console',
  `${functions}\nreturn {unpickle, annotate_snapshot, process_alloc_data, MemoryView};`,
)(drawn, drawn, drawn, drawn, {log() {}});

function read() {
  const bytes = fs.readFileSync(snapshotFile);
  const snapshot = viewer.unpickle(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  viewer.annotate_snapshot(snapshot);
  return snapshot;
}

const snapshot = read();
const devices = snapshot.device_traces.map((trace, device) => {
  const active = viewer.process_alloc_data(snapshot, device, false, trace.length);
  const segments = viewer.process_alloc_data(snapshot, device, true, trace.length);
  const states = viewer.MemoryView(drawn, drawn, snapshot, device);
  const biggest = trace.reduce((found, event) => (event.action === 'alloc' && event.size > found.size ? event : found),
    {size: -1});
  const elements = trace.filter(event => event.action === 'alloc');
  return {
    events: trace.length,
    active_peak: Math.max(0, ...active.max_at_time),
    segments_peak: Math.max(0, ...segments.max_at_time),
    end_state: trace.length ? states.draw(trace.length - 1) : [0, 0],
    start_state: trace.length ? states.draw(0) : [0, 0],
    biggest: elements.length ? active.context_for_id(elements.indexOf(biggest)) : '',
  };
});
console.log(JSON.stringify({categories: snapshot.categories, devices}));
