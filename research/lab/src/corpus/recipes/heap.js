// Reads the sources of Node's own modules, and keeps what it made of them: objects, maps, strings,
// parsed JSON. Grows until it is ended.
'use strict';

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

let next = 0;
function step() {
  digest(names[next]);
  next += 1;
  if (next === names.length) {
    next = 0;
    round += 1;
  }
  setTimeout(step, 1);
}
step();
