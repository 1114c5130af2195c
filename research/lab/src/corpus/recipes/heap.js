// Reads the sources of Node's own modules, and keeps what it made of them: objects, maps, strings,
// parsed JSON. Grows until it is ended, or there is a file "enough". From then on it looks at what it
// has, mostly at the same few, and replaces a little.
'use strict';

const fs = require('fs');
const sources = process.binding('natives');
const names = Object.keys(sources).filter((name) => typeof sources[name] === 'string').sort();
const kept = [];
let round = 0;

function digest(name) {
  const text = sources[name];
  const words = text.match(/\w+/g) || [];
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) || 0) + 1);
  const lines = text.split('\n').map((line, number) => ({ number, line, indent: line.search(/\S/) }));
  const copy = JSON.parse(JSON.stringify({ name, round, words, lines: lines.slice(0, 200) }));
  kept.push({ name: `${name}#${round}`, counts, lines, copy, lengths: words.map((w) => w.length * 0.5) });
}

let used = 0;
function work() {
  const entry = kept[Math.floor(kept.length ** Math.random()) - 1];
  for (const count of entry.counts.values()) used += count;
  if (Math.random() < 0.02) {
    digest(names[Math.floor(Math.random() * names.length)]);
    const last = kept.pop();
    kept[Math.floor(Math.random() * kept.length)] = last;
  }
  setTimeout(work, 20);
}

let next = 0;
function step() {
  if (next % 16 === 1 && fs.existsSync('enough')) {
    work();
    return;
  }
  digest(names[next]);
  next += 1;
  if (next === names.length) {
    next = 0;
    round += 1;
  }
  setTimeout(step, 1);
}
step();
